/** Quality: how predictions agree with the target, by column, with filters. */

import { clipped, el, select } from "../base/dom.js";
import { count, formatOf, number, percent } from "../base/format.js";
import { calibrationOf, equalGroups, liftOf, metricsOf, meanOf, rocOf, thinned } from "../base/measures.js";
import { PlainCard, domainOf } from "../charts/plain.js";
import { Menu, categoryOptions } from "./controls.js";

const GROUPS = 10;
const MAX_NAMES = 15;

export class QualityView {
  constructor(app) {
    this.app = app;
    this.root = el(
      "section",
      { "aria-labelledby": "quality-title" },
      el(
        "h2",
        {
          id: "quality-title",
          class: "visually-hidden",
        },
        "Quality",
      ),
    );
    if (!app.rows.target) {
      this.root.append(
        el(
          "p",
          { class: "empty" },
          "The data have no column with what the model predicts: start with --target COLUMN to compare predictions with it.",
        ),
      );
      return;
    }
    this.by = select(
      "Compare by",
      [["", "prediction"], ...app.byImportance.map((column) => [column.name, column.name])],
      "",
      (by) => this.change({ by }),
    );
    this.filtered = select(
      "Only rows with",
      [
        ["", "choose a column"],
        ...app.columns.filter((column) => column.kind !== "multivalued").map((column) => [column.name, column.name]),
      ],
      "",
      (name) => this.begin(name),
    );
    this.editor = el("span", { class: "form" });
    this.filters = el("div", { class: "chips", role: "group", "aria-label": "Filters" });
    this.tiles = el("div", { class: "tiles" });
    this.calibration = new PlainCard("Calibration");
    this.residuals = new PlainCard("Residuals");
    this.lift = new PlainCard("Lift");
    this.roc = new PlainCard("ROC curve");
    this.grid = el(
      "div",
      { class: "grid two" },
      this.calibration.root,
      this.residuals.root,
      this.lift.root,
      this.roc.root,
    );
    this.root.append(
      el("div", { class: "toolbar" }, this.by, this.filtered, this.editor),
      this.filters,
      this.tiles,
      this.grid,
    );
  }

  change(part) {
    this.app.store.commit({ quality: { ...this.app.store.state.quality, ...part } });
  }

  /** Offer what rows can be restricted to: a range of numbers, or a category. */
  begin(name) {
    const column = this.app.column(name);
    this.editor.replaceChildren();
    if (!column) return;
    const add = (filter) => {
      this.editor.replaceChildren();
      this.filtered.querySelector("select").value = "";
      this.change({ filters: [...this.app.store.state.quality.filters, { column: name, ...filter }] });
    };
    if (column.kind !== "numerical") {
      const options = categoryOptions(column);
      const menu = new Menu(
        `Category of ${name}`,
        () => options,
        (value) => add({ is: value }),
      );
      menu.input.placeholder = "category";
      this.editor.append(menu.root);
      menu.input.focus();
      return;
    }
    const [low, high] = ["from", "to"].map((text) =>
      el("input", {
        type: "number",
        step: "any",
        placeholder: text,
        "aria-label": `${name} ${text}`,
      }),
    );
    const act = () =>
      add({
        low: Number.isFinite(low.valueAsNumber) ? low.valueAsNumber : null,
        high: Number.isFinite(high.valueAsNumber) ? high.valueAsNumber : null,
      });
    this.editor.append(low, high, el("button", { type: "button", on: { click: act } }, "filter"));
    low.focus();
  }

  update(state) {
    if (!this.app.rows.target) return;
    this.by.querySelector("select").value = state.quality.by;
    this.drawFilters(state.quality.filters);
    if (this.scored === state.cls) return this.draw(state);
    this.app.client.latest("predictions", "rowPredictions", [state.cls], (p) => {
      [this.p, this.scored] = [p, state.cls];
      this.draw(this.app.store.state);
    });
  }

  drawFilters(filters) {
    this.filters.replaceChildren(
      ...filters.map((filter, i) =>
        el(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-label": `Remove the filter ${this.filterText(filter)}`,
            on: {
              click: () => this.change({ filters: filters.filter((_, j) => j !== i) }),
            },
          },
          clipped(this.filterText(filter), 60),
          " ×",
        ),
      ),
    );
    this.filters.hidden = !filters.length;
  }

  filterText(filter) {
    if (filter.low === undefined) return `${filter.column} = ${filter.is ?? "(missing)"}`;
    return `${filter.column}: ${filter.low ?? "…"} to ${filter.high ?? "…"}`;
  }

  kept(filters) {
    const tests = filters
      .filter((filter) => this.app.column(filter.column))
      .map((filter) => {
        const values = this.app.rows.of(filter.column);
        if (filter.low === undefined) return (i) => values[i] === filter.is;
        return (i) =>
          values[i] !== null &&
          (filter.low === null || values[i] >= filter.low) &&
          (filter.high === null || values[i] <= filter.high);
      });
    return d3
      .range(this.app.rows.n)
      .filter((i) => Number.isFinite(this.app.rows.target[i]) && tests.every((test) => test(i)));
  }

  draw(state) {
    const { app, p } = this;
    const binary = app.link === "logistic" || app.link === "softmax";
    const y =
      app.link === "softmax"
        ? Float64Array.from(app.rows.target, (value) => Number(value === state.cls))
        : app.rows.target;
    const weight = app.rows.weight ?? new Float64Array(app.rows.n).fill(1);
    const rows = this.kept(state.quality.filters);
    const tiles = [
      ["rows", count(rows.length)],
      [`mean ${app.about.prediction_short}`, number(meanOf(rows, p, weight))],
      [app.measuredText(state), number(meanOf(rows, y, weight))],
      ...metricsOf(rows, p, y, weight, binary).map(([name, value]) => [name, number(value)]),
    ];
    this.tiles.replaceChildren(
      ...tiles.map(([name, value]) =>
        el("div", { class: "tile" }, el("b", {}, value), el("span", {}, clipped(name, 40))),
      ),
    );
    if (!rows.length) {
      this.grid.hidden = true;
      return;
    }
    this.grid.hidden = false;
    this.drawCalibration(state.quality.by, rows, p, y, weight);
    this.drawResiduals(rows, p, y, binary);
    this.drawLift(rows, p, y, weight);
    this.roc.root.hidden = !binary;
    if (binary) this.drawRoc(rows, p, y, weight);
  }

  drawCalibration(by, rows, p, y, weight) {
    const column = this.app.column(by);
    const target = this.app.measuredText(this.app.store.state);
    if (!column) {
      const groups = calibrationOf(equalGroups(rows, p, GROUPS), p, y, weight);
      const domain = domainOf(groups.flatMap((one) => [one.predicted, one.measured]));
      this.calibration.show({
        x: { domain, title: this.app.predictionText(this.app.store.state) },
        y: { domain, title: `${target}, in ten groups of rows` },
        lines: [
          {
            points: [
              [domain[0], domain[0]],
              [domain[1], domain[1]],
            ],
            class: "thin",
          },
        ],
        points: groups.map((one) => ({
          x: one.predicted,
          y: one.measured,
          low: Math.max(domain[0], one.measured - one.error),
          high: Math.min(domain[1], one.measured + one.error),
          class: "line-0",
        })),
        summary: `${groups.length} groups of rows by prediction`,
        table: {
          columns: ["mean prediction", target, "two standard errors", "rows"],
          rows: groups.map((one) => [one.predicted, one.measured, one.error, one.rows]),
        },
      });
      return;
    }
    const parts = this.groupsBy(column, rows);
    const groups = calibrationOf(
      parts.map((part) => part.rows),
      p,
      y,
      weight,
    );
    const domain = domainOf(groups.flatMap((one) => [one.predicted, one.measured]));
    const ticks = () => parts.map((part, i) => [i, clipped(part.name, 12)]);
    this.calibration.show({
      x: { domain: [-0.5, parts.length - 0.5], title: column.name, ticks },
      y: { domain, title: `${target} (dots) and mean prediction (dashes)` },
      lines: groups.map((one, i) => ({
        points: [
          [i - 0.36, one.predicted],
          [i + 0.36, one.predicted],
        ],
        class: "line-1",
      })),
      points: groups.map((one, i) => ({
        x: i,
        y: one.measured,
        low: Math.max(domain[0], one.measured - one.error),
        high: Math.min(domain[1], one.measured + one.error),
        class: "line-0",
      })),
      summary: `${parts.length} groups of rows by ${column.name}`,
      table: {
        columns: [column.name, "mean prediction", target, "two standard errors", "rows"],
        rows: groups.map((one, i) => [parts[i].name, one.predicted, one.measured, one.error, one.rows]),
      },
    });
  }

  groupsBy(column, rows) {
    const values = this.app.rows.of(column.name);
    const missing = rows.filter((i) => values[i] === null);
    const known = rows.filter((i) => values[i] !== null);
    let parts;
    if (column.kind === "numerical") {
      const format = formatOf(column);
      parts = equalGroups(known, values, GROUPS).map((part) => ({
        rows: part,
        name:
          values[part[0]] === values[part[part.length - 1]]
            ? format(values[part[0]])
            : `${format(values[part[0]])}–${format(values[part[part.length - 1]])}`,
      }));
    } else {
      const byName = d3
        .nest()
        .key((i) => String(Array.isArray(values[i]) ? (values[i][0] ?? "none") : values[i]))
        .entries(known)
        .sort((a, b) => b.values.length - a.values.length);
      parts = byName.slice(0, MAX_NAMES).map((one) => ({ rows: one.values, name: one.key }));
    }
    return missing.length ? [...parts, { rows: missing, name: "(missing)" }] : parts;
  }

  drawResiduals(rows, p, y, binary) {
    const values = rows.map((i) => y[i] - p[i]).sort(d3.ascending);
    const [low, high] = binary ? [-1, 1] : [d3.quantile(values, 0.005), d3.quantile(values, 0.995)];
    const domain = low < high ? [low, high] : [low - 1, high + 1];
    const bins = d3.histogram().domain(domain).thresholds(40)(
      values.filter((value) => value >= domain[0] && value <= domain[1]),
    );
    const top = d3.max(bins, (bin) => bin.length) / rows.length;
    this.residuals.show({
      x: { domain, title: binary ? "1 or 0 − probability" : `${this.app.rows.targetName} − prediction` },
      y: { domain: [0, top * 1.05 || 1], title: "share of the rows", ticks: shareTicks },
      bars: bins.map((bin) => ({ from: bin.x0, to: bin.x1, y: bin.length / rows.length, class: "line-0" })),
      lines: [
        {
          points: [
            [0, 0],
            [0, top],
          ],
          class: "thin",
        },
      ],
      summary: "distribution of target minus prediction",
      table: { columns: ["from", "to", "rows"], rows: bins.map((bin) => [bin.x0, bin.x1, bin.length]) },
    });
  }

  drawLift(rows, p, y, weight) {
    const points = liftOf(rows, p, y, weight);
    const possible = points.every(([, share]) => Number.isFinite(share)) && rows.every((i) => y[i] >= 0);
    this.lift.root.hidden = !possible;
    if (!possible) return;
    this.lift.show({
      ...sharePlot(
        points,
        "share of the rows, highest predictions first",
        `share of all ${this.app.link === "logistic" || this.app.link === "softmax" ? "cases" : this.app.rows.targetName}`,
      ),
      summary: "cumulative share of the target by rows in order of prediction",
      table: { columns: ["share of rows", "share of the target"], rows: thinned(points, 101) },
    });
  }

  drawRoc(rows, p, y, weight) {
    const { points, area } = rocOf(rows, p, y, weight);
    this.roc.show({
      ...sharePlot(
        points,
        "share of the others above the threshold",
        `share of the cases above the threshold; area ${number(area)}`,
      ),
      summary: `ROC curve with area ${number(area)}`,
      table: { columns: ["false positive rate", "true positive rate"], rows: thinned(points, 201) },
    });
  }
}

/** A line from none to all of two shares, and the diagonal. */
function sharePlot(points, across, upward) {
  return {
    x: { domain: [0, 1], title: across, ticks: shareTicks },
    y: { domain: [0, 1.02], title: upward, ticks: shareTicks },
    lines: [
      { points: d3.zip([0, 1], [0, 1]), class: "thin" },
      { points: thinned(points), class: "line-0" },
    ],
  };
}

function shareTicks(low, high, most) {
  const found = d3.ticks(low, Math.min(high, 1), most);
  const digits = found.length > 1 && found[1] - found[0] < 0.01 ? 1 : 0;
  return found.map((share) => [share, percent(share, digits)]);
}
