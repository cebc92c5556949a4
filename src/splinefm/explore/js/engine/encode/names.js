// Names of categories: one name for each value however it is spelled, and buckets of names by a hash.

import { isoDate } from "./dates.js";

const NUMBER = /^[ \t\n\f\r]*([+-]?)((\d*)(?:\.(\d*))?(?:[eE][+-]?\d+)?)[ \t\n\f\r]*$/;
const EXACT = 2 ** 53; // floats below it that are integers are spelled like integers
const FINE = /\.\d{4,}/; // browsers have milliseconds

/**
 * A number as the name of a category: integers without a decimal point, others by the digits that tell them apart.
 * @param {number} x
 * @returns {string}
 */
export function numberName(x) {
  if (Number.isInteger(x) && Math.abs(x) < EXACT) return String(x === 0 ? 0 : x);
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "nan" : x > 0 ? "inf" : "-inf";
  const [digits, power] = Math.abs(x).toExponential().split("e");
  const exponent = Number(power);
  const sign = x < 0 ? "-" : "";
  if (exponent < -6 || exponent >= 10) return `${sign}${digits}e${exponent < 0 ? "" : "+"}${exponent}`;
  const plain = digits.replace(".", "");
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${plain}`;
  return `${sign}${plain.slice(0, exponent + 1)}.${plain.slice(exponent + 1)}`;
}

function canonicalNumber(name) {
  const found = NUMBER.exec(name);
  if (!found) return name;
  const [, sign, text, digits = "", decimals = ""] = found;
  if (!digits && !decimals) return name;
  const whole = digits && /^0*$/.test(decimals) && !/e/i.test(text);
  if (!whole) return numberName((sign === "-" ? -1 : 1) * Number(text));
  const short = digits.replace(/^0+(?=\d)/, "");
  return sign === "-" && short !== "0" ? `-${short}` : short;
}

/**
 * The one name of a category.
 * @param {string} name in any spelling
 * @param {"text"|"numbers"|"booleans"|"dates"} spelling what the names of the column spell
 * @returns {string}
 */
export function canonicalName(name, spelling) {
  if (spelling === "text") return name;
  if (spelling === "dates") return canonicalDate(name);
  const spaced = name.replace(/^[ \t\n\f\r]+|[ \t\n\f\r]+$/g, "").toLowerCase();
  const isTrue = spaced === "true";
  const isFalse = spaced === "false";
  const found = isTrue || isFalse ? name : canonicalNumber(name);
  if (spelling === "numbers") return isTrue ? "1" : isFalse ? "0" : found;
  return isTrue || found === "1" ? "true" : isFalse || found === "0" ? "false" : found;
}

/** A date without a time if that is midnight, by the clock of UTC if it has a zone. */
function canonicalDate(name) {
  const text = isoDate(name);
  if (text === null) return name;
  if (FINE.test(name)) throw new Error(`${JSON.stringify(name)} is finer than milliseconds; write it as in the list`);
  const plain = text.replace("T", " ").replace("Z", "");
  return plain
    .replace(/(\.\d*?)0+$/, "$1")
    .replace(/\.$/, "")
    .replace(/ 00:00:00$/, "");
}

/**
 * The name of a value as the encoder spells it.
 * @param {string|number|boolean} value
 */
export function nameOf(value) {
  if (typeof value === "number") return numberName(value);
  return String(value);
}

// BLAKE2b with a digest of eight bytes, as in splinefm.encode.fields.vocabulary.hash_bucket

const MASK = (1n << 64n) - 1n;
const BLAKE_IV = [
  0x6a09e667f3bcc908n,
  0xbb67ae8584caa73bn,
  0x3c6ef372fe94f82bn,
  0xa54ff53a5f1d36f1n,
  0x510e527fade682d1n,
  0x9b05688c2b3e6c1fn,
  0x1f83d9abfb41bd6bn,
  0x5be0cd19137e2179n,
];
const SIGMA = [
  [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
  [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
  [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
  [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
  [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
  [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
  [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
  [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
  [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
  [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

function rotated(x, n) {
  return ((x >> n) | (x << (64n - n))) & MASK;
}

function mix(v, a, b, c, d, x, y) {
  v[a] = (v[a] + v[b] + x) & MASK;
  v[d] = rotated(v[d] ^ v[a], 32n);
  v[c] = (v[c] + v[d]) & MASK;
  v[b] = rotated(v[b] ^ v[c], 24n);
  v[a] = (v[a] + v[b] + y) & MASK;
  v[d] = rotated(v[d] ^ v[a], 16n);
  v[c] = (v[c] + v[d]) & MASK;
  v[b] = rotated(v[b] ^ v[c], 63n);
}

function compress(h, block, end, isLast) {
  const m = Array.from({ length: 16 }, (_, i) => block.getBigUint64(8 * i, true));
  const v = [...h, ...BLAKE_IV];
  v[12] ^= BigInt(end);
  if (isLast) v[14] ^= MASK;
  for (let round = 0; round < 12; ++round) {
    const s = SIGMA[round % 10];
    for (let i = 0; i < 4; ++i) mix(v, i, i + 4, i + 8, i + 12, m[s[2 * i]], m[s[2 * i + 1]]);
    for (let i = 0; i < 4; ++i) {
      mix(v, i, 4 + ((i + 1) % 4), 8 + ((i + 2) % 4), 12 + ((i + 3) % 4), m[s[8 + 2 * i]], m[s[9 + 2 * i]]);
    }
  }
  for (let i = 0; i < 8; ++i) h[i] ^= v[i] ^ v[i + 8];
}

/**
 * A bucket for a name, the same on every machine.
 * @param {string} name
 * @param {number} buckets
 */
export function hashBucket(name, buckets) {
  const text = new TextEncoder().encode(name);
  const blocks = Math.max(1, Math.ceil(text.length / 128));
  const padded = new Uint8Array(128 * blocks);
  padded.set(text);
  const h = [...BLAKE_IV];
  h[0] ^= 0x01010000n ^ 8n;
  for (let i = 0; i < blocks; ++i) {
    const isLast = i === blocks - 1;
    compress(h, new DataView(padded.buffer, 128 * i, 128), isLast ? text.length : 128 * (i + 1), isLast);
  }
  return Number(h[0] % BigInt(buckets));
}
