/** Segment: the curves of all numerical columns for one segment, moved and compared. */

import { shownCategories } from "../base/columns.js";
import { choice, el, named, quietly } from "../base/dom.js";
import { number, signed, valueText } from "../base/format.js";
import { makeTable } from "../base/table.js";
import { BarsCard } from "../charts/bars.js";
import { CurveCard } from "../charts/curve.js";
import { domainOf } from "../charts/plain.js";

const POINTS = 129;
const MAX_CARDS = 24;
const MAX_NAMES = 10;
const SHOWN = [
  ["density", "rows"],
  ["spread", "spread of similar rows"],
  ["knots", "knots"],
  ["extrema", "extrema"],
  ["categories", "categories"],
];

/** How numerical columns are laid out: by value, by u, or by u where most rows would be at one end. */
export function axisChoice(app) {
  return choice(
    "Horizontal axis",
    [
      ["auto", "auto axis"],
      ["values", "by value"],
      ["even", "even"],
    ],
    (axis) => app.store.commit({ axis }),
  );
}

export class SegmentView {
  constructor(app) {
    this.app = app;
    this.columns = app.byImportance.filter((column) => column.kind === "numerical");
    this.named = app.byImportance.filter((column) => column.kind === "categorical").slice(0, MAX_CARDS);
    this.cards = new Map();
    this.bars = new Map();
    this.extra = null;
    this.domain = null;
    this.scale = choice(
      "Vertical axis",
      [
        ["prediction", app.about.prediction_short],
        ["score", app.about.score_short],
      ],
      (scale) => app.store.commit({ scale }),
    );
    this.same = choice(
      "Range of the vertical axes",
      [
        ["same", "same range"],
        ["own", "own range"],
      ],
      (range) => app.store.commit({ range }),
    );
    this.axis = axisChoice(app);
    this.compare = choice(
      "Pinned segments",
      [
        ["overlay", "overlay"],
        ["difference", "difference"],
      ],
      (compare) => app.store.commit({ compare }),
    );
    this.boxes = SHOWN.map(([name, text]) => {
      const box = el("input", {
        type: "checkbox",
        on: {
          change: () =>
            app.store.commit({
              show: {
                ...app.store.state.show,
                [name]: box.checked,
              },
            }),
        },
      });
      return [name, box, el("label", { class: "check" }, box, text)];
    });
    this.legend = el("div", { class: "pins-table" });
    this.grid = el("div", { class: "grid" });
    this.names = el("div", { class: "grid names" });
    this.more = el("button", { type: "button", hidden: true, on: { click: () => app.store.commit({ all: true }) } });
    this.root = el(
      "section",
      { "aria-labelledby": "segment-title" },
      el("h2", { id: "segment-title", class: "visually-hidden" }, "Segment"),
      el(
        "div",
        { class: "toolbar" },
        this.scale,
        this.same,
        this.axis,
        this.compare,
        el(
          "div",
          {
            class: "checks",
            role: "group",
            "aria-label": "Shown in the plots",
          },
          this.boxes.map((one) => one[2]),
        ),
      ),
      this.legend,
      this.grid,
      this.more,
      this.names,
      this.columns.length
        ? null
        : el("p", { class: "empty" }, "This model has no numerical columns: see Importance and Surface."),
    );
    this.later = quietly(160, () => this.around());
  }

  /** The columns that have a card, the focused one first. */
  visible(state) {
    const all = this.columns.map((column) => column.name);
    const first = all.includes(state.focus) ? [state.focus] : [];
    const ordered = [...first, ...all.filter((name) => name !== state.focus)];
    return state.all ? ordered : ordered.slice(0, MAX_CARDS);
  }

  update(state, moving) {
    this.scale.choose(state.scale);
    this.same.choose(state.range);
    this.axis.choose(state.axis);
    this.compare.choose(state.compare);
    this.compare.hidden = !state.pins.length;
    for (const [name, box] of this.boxes) box.checked = state.show[name];
    this.place(state);
    if (!moving) this.domain = null;
    this.updateNames(state, moving);
    const rows = [state.row, ...state.pins.map((pin) => pin.row)];
    if (!this.columns.length) return;
    this.app.client.latest(
      "segment",
      "curvesOf",
      [rows, this.visible(state), POINTS, state.cls, this.app.asPrediction(state)],
      (found) => this.draw(state, found, moving),
    );
    this.later();
  }

  place(state) {
    const names = this.visible(state);
    const key = JSON.stringify(names);
    if (this.placed === key) return;
    this.placed = key;
    const cards = names.map((name) => {
      if (!this.cards.has(name)) {
        const column = this.app.column(name);
        this.cards.set(name, new CurveCard(column, (value, done) => this.app.setValue(name, value, done)));
      }
      return this.cards.get(name);
    });
    this.grid.replaceChildren(...cards.map((card) => card.root));
    const hidden = this.columns.length - names.length;
    this.more.hidden = hidden <= 0;
    this.more.textContent = `Show ${hidden} more columns`;
  }

  /** The categories of a column that have a bar: the most frequent, and the current one. */
  shownNames(column, value) {
    const names = shownCategories(column, MAX_NAMES, value);
    // A value that is no category of the model has a bar, too.
    return value === null || names.includes(value) ? names : [...names.slice(0, MAX_NAMES - 1), value];
  }

  updateNames(state, moving) {
    this.names.hidden = !state.show.categories || !this.named.length;
    // Curves come first: while a value is dragged, bars take every second frame.
    const now = performance.now();
    if (this.names.hidden || (moving && now - this.namesAt < 30)) return;
    this.namesAt = now;
    const wanted = Object.fromEntries(
      this.named.map((column) => [column.name, this.shownNames(column, state.row[column.name])]),
    );
    this.app.client.latest(
      "categories",
      "categoriesOf",
      [state.row, wanted, state.cls, this.app.asPrediction(state)],
      (found) => {
        for (const column of this.named) this.drawNames(column, wanted[column.name], found[column.name], state);
      },
    );
  }

  drawNames(column, names, values, state) {
    if (!this.bars.has(column.name)) {
      this.bars.set(column.name, new BarsCard(column.name));
      this.names.replaceChildren(
        ...this.named.filter((one) => this.bars.has(one.name)).map((one) => this.bars.get(one.name).root),
      );
    }
    const now = state.row[column.name];
    const bars = names.map((name, i) => ({
      name,
      from: 0,
      to: values[i],
      class: name === now ? "now" : "line-0",
      text: number(values[i], 3),
      open: () => this.app.setValue(column.name, name, true),
    }));
    const left = column.categories.length - names.length;
    this.bars.get(column.name).show({
      bars,
      title: this.app.scaleText(state) + (left > 0 ? `; ${left} rarer ones are not shown` : ""),
      reading: valueText(column, now),
      xTitle: "",
      table: {
        columns: [column.name, this.app.scaleText(state)],
        rows: names.map((name, i) => [name, values[i]]),
      },
    });
  }

  around() {
    const state = this.app.store.state;
    if (state.view !== "segment") return;
    const names = this.visible(state);
    const asked = this.key(state);
    this.app.client.latest(
      "around",
      "around",
      [state.row, names, POINTS, state.cls, this.app.asPrediction(state), state.show],
      (extra) => {
        this.extra = { ...extra, asked };
        if (this.last && this.key(this.last.state) === asked) this.draw(...Object.values(this.last));
      },
    );
  }

  key(state) {
    return JSON.stringify([state.row, state.cls, state.scale, state.show, this.visible(state)]);
  }

  draw(state, found, moving) {
    this.last = { state, found, moving };
    const names = this.visible(state);
    const extra = this.extra?.asked === this.key(state) && !moving ? this.extra : null;
    const difference = state.compare === "difference" && state.pins.length > 0;
    const contents = names.map((name) => this.content(name, state, found, extra, difference)).filter(Boolean);
    if (state.range === "same") {
      const domain = domainOf(contents.flatMap((content) => content.extent));
      this.domain =
        moving && this.domain ? [Math.min(domain[0], this.domain[0]), Math.max(domain[1], this.domain[1])] : domain;
      for (const content of contents) content.yDomain = this.domain;
    } else for (const content of contents) content.yDomain = domainOf(content.extent);
    for (const content of contents) this.cards.get(content.name).show(content);
    if (!moving) this.drawLegend(state, found);
  }

  content(name, state, found, extra, difference) {
    const [now, ...pins] = found;
    const curve = now.curves[name];
    if (!curve) return null;
    const density = this.app.density(name, state);
    const value = state.row[name];
    const all = [
      { name: difference ? "" : "now", y: curve.y, at: value, value: now.level },
      ...pins.map((pin, i) => ({
        name: state.pins[i].name,
        y: pin.curves[name].y,
        at: state.pins[i].row[name],
        value: pin.level,
      })),
    ];
    const lines = !difference
      ? all
      : pins.map((pin, i) => ({
          name: `now − ${state.pins[i].name}`,
          y: curve.y.map((y, j) => y - pin.curves[name].y[j]),
          at: null,
          value: i ? null : now.level - valueAt(curve.x, pin.curves[name].y, value),
        }));
    const band = difference ? null : (extra?.bands[name] ?? null);
    const inside = (i) => curve.x[i] >= density.domain[0] && curve.x[i] <= density.domain[1];
    const extent = [...lines, ...(band ? [{ y: band.low }, { y: band.high }] : [])].flatMap((line) =>
      d3.extent(Array.from(line.y).filter((_, i) => inside(i))),
    );
    const special = typeof value === "number" && this.app.column(name).special.includes(value);
    if (special && !difference) extent.push(now.level);
    return {
      name,
      x: curve.x,
      lines,
      band,
      difference,
      value: special && difference ? null : value, // a special value has its level beside the curve
      xDomain: density.domain,
      even: density.even,
      extent,
      special: special || value === null ? `${valueText(this.app.column(name), value)} → ${number(now.level)}` : "",
      title: difference ? `${this.app.scaleText(state)}, difference` : this.app.scaleText(state),
      extrema: difference ? [] : (extra?.extrema[name] ?? []),
      knots: state.show.knots ? this.app.column(name).knots : [],
      density: state.show.density ? density : null,
    };
  }

  /** What the pinned segments differ in. */
  drawLegend(state, found) {
    this.legend.replaceChildren();
    if (!state.pins.length) return;
    const rows = [state.row, ...state.pins.map((pin) => pin.row)];
    const differing = this.app.columns.filter(
      (column) => new Set(rows.map((row) => JSON.stringify(row[column.name]))).size > 1,
    );
    const names = ["now", ...state.pins.map((pin) => pin.name)];
    const body = rows.map((row, i) => [
      el("span", { class: `key line-${i}` }, names[i]),
      `${number(found[i].level)}${i ? ` (${signed(found[i].level - found[0].level)})` : ""}`,
      ...differing.map((column) => named(valueText(column, row[column.name]), 30)),
    ]);
    const table = makeTable(["", this.app.scaleText(state), ...differing.map((column) => column.name)], body);
    this.legend.append(
      el(
        "div",
        {
          class: "card scroll",
          tabindex: "0",
          role: "region",
          "aria-label": "Pinned segments",
        },
        table,
      ),
    );
  }
}

/** A curve's value between its points. */
function valueAt(x, y, at) {
  if (typeof at !== "number") return NaN;
  const i = Math.min(x.length - 1, Math.max(1, d3.bisectLeft(x, at)));
  const share = (at - x[i - 1]) / (x[i] - x[i - 1] || 1);
  return y[i - 1] + Math.min(1, Math.max(0, share)) * (y[i] - y[i - 1]);
}
