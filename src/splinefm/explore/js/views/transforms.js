/** Transforms: how a numerical column becomes u in [0, 1], and which basis functions see enough rows. */

import { el, select, shown } from "../base/dom.js";
import { axisOf, count, percent, ticksOf } from "../base/format.js";
import { PlainCard } from "../charts/plain.js";

export class TransformsView {
  constructor(app) {
    this.app = app;
    this.columns = app.byImportance.filter((column) => column.kind === "numerical");
    this.root = el(
      "section",
      { "aria-labelledby": "transforms-title" },
      el(
        "h2",
        {
          id: "transforms-title",
          class: "visually-hidden",
        },
        "Transforms",
      ),
    );
    if (!this.columns.length) {
      this.root.append(el("p", { class: "empty" }, "This model has no numerical columns."));
      return;
    }
    this.chosen = select(
      "Column",
      this.columns.map((column) => [column.name, column.name]),
      "",
      (transformed) => app.store.commit({ transformed }),
    );
    this.text = el("p", { class: "lead" });
    this.values = new PlainCard("Distribution");
    this.mapped = new PlainCard("Transform T");
    this.basis = new PlainCard("Basis functions");
    this.starved = new PlainCard("Rows per basis function");
    this.root.append(
      el("div", { class: "toolbar" }, this.chosen),
      this.text,
      el("div", { class: "grid two" }, this.values.root, this.mapped.root, this.basis.root, this.starved.root),
    );
  }

  update(state) {
    if (!this.columns.length) return;
    const column = this.columns.find((one) => one.name === state.transformed) ?? this.columns[0];
    this.chosen.querySelector("select").value = column.name;
    if (this.drawn === column.name) return;
    this.drawn = column.name;
    const hungry = (column.starvation ?? []).filter((one) => one.starved).length;
    this.text.textContent = shown(
      `${column.transform.name} maps ${column.name} to u between 0 and 1; the basis, ${column.basis.text}, has ${column.basis.functions} functions of u. ` +
        (hungry
          ? `${hungry} of them saw less than a tenth of the training rows that an even spread would give them: predictions there rely on few rows.`
          : "All of them saw enough training rows.") +
        (column.note ? ` Note: ${column.note}.` : ""),
    );
    this.drawValues(column);
    this.drawTransform(column);
    this.drawBasis(column);
    this.drawStarvation(column);
  }

  drawValues(column) {
    const { bars, domain } = this.app.density(column.name);
    const top = d3.max(bars, (bar) => bar[3]) || 1;
    this.values.show({
      x: { domain, title: column.name, ticks: (low, high, most) => ticksOf(column, low, high, most) },
      y: { domain: [0, top * 1.05], title: "rows of the sample" },
      bars: bars.map(([from, to, , rows]) => ({
        from: Math.max(domain[0], from),
        to: Math.min(domain[1], to),
        y: rows,
        class: "line-0",
      })),
      summary: `distribution of ${column.name}`,
      table: { columns: ["from", "to", "rows"], rows: bars.map(([from, to, , rows]) => [from, to, rows]) },
    });
  }

  drawTransform(column) {
    const { domain } = this.app.density(column.name);
    const axis = axisOf(column);
    const points = d3
      .range(201)
      .map((i) => domain[0] + (i / 200) * (domain[1] - domain[0]))
      .map((x) => [x, axis.toU(x)]);
    const knots = column.knots.filter((x) => x >= domain[0] && x <= domain[1]);
    this.mapped.show({
      x: { domain, title: column.name, ticks: (low, high, most) => ticksOf(column, low, high, most) },
      y: { domain: [0, 1.02], title: "u = T(value), knots as dots" },
      lines: [{ points, class: "line-0" }],
      points: knots.map((x) => ({ x, y: axis.toU(x), r: 2.5, class: "line-1" })),
      summary: `transform of ${column.name}`,
      table: { columns: [column.name, "u"], rows: points },
    });
  }

  drawBasis(column) {
    const { u, functions } = column.shapes ?? { u: [], functions: [] };
    this.basis.root.hidden = !functions.length;
    if (!functions.length) return;
    const low = Math.min(
      0,
      d3.min(functions, (one) => d3.min(one)),
    );
    const high = d3.max(functions, (one) => d3.max(one));
    this.basis.show({
      x: { domain: [0, 1], title: "u" },
      y: {
        domain: [low, high * 1.05],
        title: `values of ${functions.length} functions${functions.length < column.basis.functions ? `, the first of ${column.basis.functions}` : ""}`,
      },
      lines: functions.map((one, i) => ({
        points: one.map((value, j) => [u[j], value]).filter(([, value], j) => value !== 0 || one[j - 1] || one[j + 1]),
        class: `basis line-${i % 5} solid`,
      })),
      summary: `basis functions of ${column.name}`,
      table: {
        columns: ["u", ...functions.map((_, i) => `function ${i + 1}`)],
        rows: u.map((at, j) => [at, ...functions.map((one) => one[j])]),
      },
    });
  }

  drawStarvation(column) {
    const shares = column.starvation ?? [];
    this.starved.root.hidden = !shares.length;
    if (!shares.length) return;
    const top = d3.max(shares, (one) => Math.max(one.share, one.even));
    this.starved.show({
      x: { domain: [0.5, shares.length + 0.5], title: "number of the function" },
      y: {
        domain: [0, top * 1.05],
        title: "share of the training rows; dashed: an even spread",
        ticks: (low, high, most) => d3.ticks(low, high, most).map((share) => [share, percent(share)]),
      },
      bars: shares.map((one, i) => ({
        from: i + 0.5,
        to: i + 1.5,
        y: one.share,
        class: one.starved ? "starved" : "line-0",
      })),
      lines: [
        {
          points: shares.flatMap((one, i) => [
            [i + 0.5, one.even],
            [i + 1.5, one.even],
          ]),
          class: "thin",
        },
      ],
      summary: `${count(shares.filter((one) => one.starved).length)} starved functions`,
      table: {
        columns: ["function", "from", "to", "share of rows", "starved"],
        rows: shares.map((one) => [one.function, one.low, one.high, one.share, one.starved ? "yes" : "no"]),
      },
    });
  }
}
