// JSON of users, whose integers may have more digits than a number of JavaScript holds.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * Parse JSON; integers beyond 2^53 become text with all of their digits, because they may name categories.
 * @param {string} text
 * @returns {*}
 */
export function parseExact(text) {
  return JSON.parse(text.replace(TOKEN, (token) => (isLarge(token) ? `"${token}"` : token)));
}

function isLarge(token) {
  return /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token));
}
