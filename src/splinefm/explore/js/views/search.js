/** What the fit tried: a table of settings, the best first. */

import { el } from "../base/dom.js";

export function makeSearch({ title, columns, rows, chosen }) {
  const heads = columns.map((name) => el("th", { scope: "col" }, name));
  const cells = (row, i) =>
    row.map((text, j) => el("td", {}, text, j === 0 && chosen.includes(i) ? el("b", {}, " (chosen)") : null));
  return el(
    "details",
    { id: "search" },
    el("summary", {}, title),
    el(
      "div",
      { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
      el(
        "table",
        {},
        el("thead", {}, el("tr", {}, heads)),
        el(
          "tbody",
          {},
          rows.map((row, i) => el("tr", {}, cells(row, i))),
        ),
      ),
    ),
  );
}
