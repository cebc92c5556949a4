/** Columns, as the views need them. */

import { clipped } from "./dom.js";

/** What the payload and Python say about a column. */
export function complete(column, shapes) {
  if (column.kind !== "numerical") {
    const frequent = d3.range(column.categories.length);
    if (column.counts) frequent.sort((a, b) => column.counts[b] - column.counts[a]);
    const isShort = column.categories.length <= 30;
    return { ...column, special: [], frequent, display: column.ordered || isShort ? column.order : frequent };
  }
  return {
    ...column,
    special: shapes.special,
    integers: column.is_integer || shapes.integers,
    knots: column.knots.map(Number).filter(Number.isFinite),
    transform: { ...column.transform, x: shapes.x, u: shapes.u },
    shapes: { u: shapes.at, functions: shapes.functions },
    low: Number(column.low),
    high: Number(column.high),
  };
}

/**
 * The most frequent categories of a column, in the order to show them: numbers, days and months by what they mean.
 * @param {object} column  @param {number} most how many  @param {string|null} also one that is among them in any case
 * @returns {string[]}
 */
export function shownCategories(column, most, also = null) {
  const kept = new Set(column.frequent.slice(0, most));
  const extra = also === null ? -1 : column.categories.indexOf(also);
  if (extra >= 0 && !kept.has(extra)) kept.delete(column.frequent[most - 1]);
  if (extra >= 0) kept.add(extra);
  return column.display.filter((i) => kept.has(i)).map((i) => column.categories[i]);
}

/** Which categories a large model has lost on its way into the page. */
export function cutText(kept) {
  const cut = Object.entries(kept);
  if (!cut.length) return "";
  return ` The model is large: this page has the most frequent categories of ${cut
    .map(
      ([name, [kept, total]]) =>
        `${clipped(name, 30)} (${kept.toLocaleString("en-US")} of ${total.toLocaleString("en-US")})`,
    )
    .slice(0, 4)
    .join(", ")}; others count as unseen.`;
}
