/** Rows that users paste: JSON, or a header and a line of CSV or of a spreadsheet. */

import { rowOfTable } from "../engine/encode/dates.js";
import { parseExact } from "../engine/encode/json.js";

/**
 * Read a row.
 * @param {string} text  @param {object[]} columns
 * @returns {{row: object, unknown: string[]}} values of known columns, and names that are none
 */
export function readRow(text, columns) {
  const given = text.trim().startsWith("{") ? fromJson(text) : fromLines(text);
  const { row: found, unknown } = rowOfTable(columns, given);
  const byName = new Map(columns.map((column) => [column.name, column]));
  const row = Object.fromEntries(
    Object.entries(found).map(([name, value]) => [name, readValue(value, byName.get(name))]),
  );
  if (!Object.keys(row).length)
    throw new Error(
      `None of these is a column of the model: ${unknown.slice(0, 5).join(", ") || "nothing was pasted"}`,
    );
  return { row, unknown };
}

function fromJson(text) {
  const value = parseExact(text);
  if (typeof value !== "object" || Array.isArray(value) || value === null)
    throw new Error('Paste one object, such as {"age": 40}');
  return value;
}

function fromLines(text) {
  const lines = text.trim().split(/\r?\n/).filter(Boolean);
  if (lines.length !== 2)
    throw new Error("Paste a JSON object, or two lines: the names of the columns and their values");
  const separator = ["\t", ";", ","].find((one) => lines[0].includes(one)) ?? ",";
  const [names, values] = lines.map((line) => cells(line, separator));
  if (names.length !== values.length)
    throw new Error(`The first line has ${names.length} cells, the second ${values.length}`);
  return Object.fromEntries(names.map((name, i) => [name, values[i]]));
}

function cells(line, separator) {
  const found = [""];
  let quoted = false;
  for (let i = 0; i < line.length; i += 1) {
    const letter = line[i];
    if (letter === '"' && quoted && line[i + 1] === '"') {
      found[found.length - 1] += letter;
      i += 1;
    } else if (letter === '"') quoted = !quoted;
    else if (letter === separator && !quoted) found.push("");
    else found[found.length - 1] += letter;
  }
  return found.map((cell) => cell.trim());
}

function readValue(value, column) {
  if (value === null || value === "") return null;
  if (column.kind === "multivalued")
    return Array.isArray(value)
      ? value.map(String)
      : String(value)
          .split(column.separator || "|")
          .filter(Boolean);
  if (column.kind !== "numerical") return String(value);
  const number = typeof value === "number" ? value : Number(String(value));
  if (!Number.isFinite(number)) throw new Error(`${column.name}: ${JSON.stringify(value)} is not a number`);
  return number;
}
