/** Tables: numbers are aligned right, and rows can be sorted by a column. */

import { el, named } from "./dom.js";

const TALL = 25;

/**
 * A table.
 * @param {string[]} columns
 * @param {Array<Array>} rows cells are text, numbers, nodes, or {text, value} to show one thing and sort by another
 * @param {{caption?: string, sortable?: boolean}} [options]
 */
export function makeTable(columns, rows, { caption = null, sortable = false } = {}) {
  const isNumber = columns.map(
    (_, i) => rows.length > 0 && rows.every((row) => row[i] === null || typeof valueOf(row[i]) === "number"),
  );
  const heads = columns.map((name, i) =>
    el(
      "th",
      { scope: "col", class: isNumber[i] ? "number" : null },
      sortable && name ? el("button", { type: "button" }, name) : named(name),
    ),
  );
  const lines = rows.map((row) =>
    el(
      "tr",
      {},
      [...row].map((cell, i) => el("td", { class: isNumber[i] ? "number" : null }, cellNode(cell))),
    ),
  );
  const body = el("tbody", {}, lines);
  const table = el(
    "table",
    {},
    caption ? el("caption", {}, caption) : null,
    el("thead", {}, el("tr", {}, heads)),
    body,
  );
  if (sortable) heads.forEach((head, i) => head.firstChild.addEventListener("click", () => sort(i)));
  return table;

  function sort(column) {
    const before = heads[column].getAttribute("aria-sort");
    const descending = before ? before === "ascending" : isNumber[column];
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
    const keys = rows.map((row) => valueOf(row[column]));
    const compare = isNumber[column]
      ? (i, j) => (keys[i] ?? -Infinity) - (keys[j] ?? -Infinity) || 0
      : (i, j) => String(keys[i]).localeCompare(String(keys[j]));
    const order = [...rows.keys()].sort((i, j) => (descending ? compare(j, i) : compare(i, j)));
    body.append(...order.map((i) => lines[i]));
  }
}

/** A table that scrolls by itself where it is wide or long. */
export function scrolling(label, table) {
  const tall = table.tBodies[0].rows.length > TALL;
  return el("div", { class: tall ? "scroll tall" : "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
}

function valueOf(cell) {
  if (cell instanceof Node) return cell.textContent;
  return cell !== null && typeof cell === "object" ? cell.value : cell;
}

function cellNode(cell) {
  if (cell instanceof Node) return cell;
  if (typeof cell === "number") return String(Number(cell.toPrecision(7)));
  return named((cell !== null && typeof cell === "object" ? cell.text : cell) ?? "");
}
