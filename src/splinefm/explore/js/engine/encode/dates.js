// Dates of a row: the parts that fields read, as in splinefm.encode.tables.dates.

const DAY = 86400;
const ISO = /^\s*(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)\s?(?:(Z)|([+-]\d{2}):?(\d{2})?)?)?\s*$/;

/** A date or time as ISO 8601 writes it, in milliseconds since 1970 by the clock of UTC; NaN if it is none. */
function milliseconds(text) {
  const found = ISO.exec(text);
  if (!found) return NaN;
  const [, day, clock = "00:00", , hours, minutes = "00"] = found;
  return Date.parse(`${day}T${clock}${hours ? `${hours}:${minutes}` : "Z"}`);
}

/** A date or time as `Date` writes it; null if it is none. */
export function isoDate(text) {
  const time = milliseconds(text);
  return Number.isNaN(time) ? null : new Date(time).toISOString();
}

/**
 * Seconds since 1970 of a date or time as ISO 8601 writes it; a time with a zone becomes UTC.
 * @param {string|number} value numbers are such seconds already
 */
export function secondsOf(value) {
  const time = typeof value === "number" ? 1000 * value : milliseconds(value);
  if (Number.isNaN(time)) throw new Error(`${JSON.stringify(value)} is not a date such as 2024-05-28 13:30`);
  return typeof value === "number" ? value : time / 1000;
}

/** Days since the last 1st of March, from days since 1970: leap days come last, and years have the same numbers. */
function daysSinceMarch(days) {
  const ofEra = (((days + 719468) % 146097) + 146097) % 146097; // since the 1st of March of the year 0
  const leaps = Math.floor(ofEra / 1460) - Math.floor(ofEra / 36524) + Math.floor(ofEra / 146096);
  const year = Math.floor((ofEra - leaps) / 365);
  return ofEra - (365 * year + Math.floor(year / 4) - Math.floor(year / 100));
}

/**
 * A part of a time: the seconds, hours since midnight, days since Monday, or the day of the year as a leap year counts.
 * @param {number} seconds since 1970
 * @param {"trend"|"hour"|"weekday"|"yearday"} part
 */
export function datePart(seconds, part) {
  if (part === "trend") return seconds;
  const days = Math.floor(seconds / DAY);
  if (part === "hour") return (seconds - days * DAY) / 3600;
  if (part === "weekday") return (((days + 3) % 7) + 7) % 7; // 1970 began on a Thursday
  return ((daysSinceMarch(days) + 60) % 366) + 1;
}

/**
 * A row of the columns of a table as a row of the model: several fields may read one column, as the parts of a date do.
 * @param {object[]} columns of the model
 * @param {object} given values by names of columns of the table, or of the model, which come first
 * @returns {{row: object, unknown: string[]}} values by names of columns of the model, and names that no field reads
 */
export function rowOfTable(columns, given) {
  const row = Object.create(null); // a column may be called __proto__
  for (const { name, column, part, format, zone } of columns) {
    if (Object.hasOwn(given, name)) {
      row[name] = given[name];
    } else if (Object.hasOwn(given, column)) {
      const value = given[column];
      const isDate = part && value !== null && value !== "";
      if (isDate && (format || zone)) throw new Error(`${column}: its dates have a format or zone; give ${name}`);
      row[name] = isDate ? datePart(secondsOf(value), part) : value;
    }
  }
  const read = new Set(columns.flatMap(({ name, column }) => [name, column]));
  return { row, unknown: Object.keys(given).filter((name) => !read.has(name)) };
}
