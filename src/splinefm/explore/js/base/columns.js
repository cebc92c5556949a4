/** Columns, as the views need them. */

import { clipped } from "./dom.js";

/** What the payload and Python say about a column. */
export function complete(column, shapes) {
  if (column.kind !== "numerical") {
    const byCount = column.counts
      ? d3.range(column.categories.length).sort((a, b) => column.counts[b] - column.counts[a])
      : null;
    return {
      ...column,
      special: [],
      byCount: byCount && column.categories.length > 30 ? byCount : (column.order ?? byCount),
    };
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
