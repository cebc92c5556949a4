/** Surface: two columns at once, with a crosshair and the slices through it. */

import { shownCategories } from "../base/columns.js";
import { choice, el, named, select } from "../base/dom.js";
import { axisOf, evenValues } from "../base/format.js";
import { CurveCard } from "../charts/curve.js";
import { HeatCard } from "../charts/heat.js";
import { domainOf } from "../charts/plain.js";
import { axisChoice } from "./segment.js";

const POINTS = 129;
const FINE = 72;
const COARSE = 36;
const MAX_NAMES = 40;

export class SurfaceView {
  constructor(app) {
    this.app = app;
    this.columns = app.byImportance.filter((column) => column.kind !== "multivalued");
    const options = this.columns.map((column) => [column.name, column.name]);
    this.first = select("Across", options, "", (a) => this.choose(a, app.store.state.surface.b));
    this.second = select("Upward", options, "", (b) => this.choose(app.store.state.surface.a, b));
    this.kind = choice(
      "Kind of plot",
      [
        ["heat", "heat map"],
        ["contour", "contours"],
      ],
      (kind) => this.change({ kind }),
    );
    this.scale = choice(
      "Scale",
      [
        ["prediction", app.about.prediction_short],
        ["score", app.about.score_short],
      ],
      (scale) => app.store.commit({ scale }),
    );
    this.axis = axisChoice(app);
    this.heat = new HeatCard("Surface", (a, b, done) => {
      const { surface } = app.store.state;
      app.setValues(
        {
          [surface.a]: a,
          [surface.b]: b,
        },
        done,
      );
    });
    this.slices = el("div", { class: "grid two" });
    this.cards = new Map();
    this.root = el(
      "section",
      { "aria-labelledby": "surface-title" },
      el(
        "h2",
        {
          id: "surface-title",
          class: "visually-hidden",
        },
        "Surface",
      ),
      el(
        "div",
        { class: "toolbar" },
        this.first,
        this.second,
        el(
          "button",
          {
            type: "button",
            on: {
              click: () => this.choose(app.store.state.surface.b, app.store.state.surface.a),
            },
          },
          "swap",
        ),
        this.kind,
        this.scale,
        this.axis,
      ),
      this.columns.length > 1 ? null : el("p", { class: "empty" }, "A surface needs two columns."),
      this.heat.root,
      this.slices,
    );
    this.root.classList.toggle("none", this.columns.length < 2);
  }

  choose(a, b) {
    const other = this.columns.find((column) => column.name !== a)?.name;
    this.change({ a, b: a === b ? other : b });
  }

  change(part) {
    this.app.store.commit({ surface: { ...this.app.store.state.surface, ...part } });
  }

  update(state, moving) {
    if (this.columns.length < 2) return;
    const { a, b, kind } = state.surface;
    const [one, two] = [this.app.column(a), this.app.column(b)];
    if (!one || !two || a === b) return this.choose(this.columns[0].name, this.columns[1].name);
    this.first.querySelector("select").value = a;
    this.second.querySelector("select").value = b;
    this.kind.choose(kind);
    this.scale.choose(state.scale);
    this.axis.choose(state.axis);
    const edges = [one, two].map((column) => this.edge(column, state, moving));
    this.app.client.latest(
      "surface",
      "surfaceOf",
      [state.row, [a, b], edges, POINTS, state.cls, this.app.asPrediction(state)],
      (found) => this.draw(state, found, moving, one, two),
    );
  }

  /** The values along an edge: numbers, or the most frequent categories. */
  edge(column, state, moving) {
    if (column.kind !== "numerical")
      return shownCategories(column, MAX_NAMES);
    const {
      domain: [low, high],
      even,
    } = this.app.density(column.name, state);
    const n = moving ? COARSE : FINE;
    if (even) return evenValues(axisOf(column), [low, high], n);
    if (column.integers && high - low < 2 * n) return d3.range(Math.ceil(low), Math.floor(high) + 1);
    return d3.range(n).map((i) => low + ((high - low) * i) / (n - 1));
  }

  draw(state, found, moving, a, b) {
    const title = this.app.scaleText(state);
    this.heat.title = `${a.name} × ${b.name}`;
    this.heat.heading.replaceChildren(named(this.heat.title, 60));
    const domain = d3.extent(found.z);
    this.heat.show({
      a,
      b,
      x: found.x,
      y: found.y,
      z: found.z,
      at: [state.row[a.name], state.row[b.name]],
      kind: state.surface.kind,
      title,
      value: found.level,
      domain,
      even: [a, b].map((column) => column.kind === "numerical" && this.app.density(column.name, state).even),
    });
    this.drawSlices(state, found, [a, b], title);
  }

  drawSlices(state, found, columns, title) {
    const numerical = columns.filter((column) => column.kind === "numerical");
    const cards = numerical.map((column) => {
      if (!this.cards.has(column.name))
        this.cards.set(
          column.name,
          new CurveCard(column, (value, done) => this.app.setValue(column.name, value, done)),
        );
      return this.cards.get(column.name);
    });
    const key = numerical.map((column) => column.name).join("\n");
    if (this.placed !== key) {
      this.slices.replaceChildren(...cards.map((card) => card.root));
      this.placed = key;
    }
    cards.forEach((card, i) => {
      const slice = found.slices[numerical[i].name];
      const density = this.app.density(numerical[i].name, state);
      const value = state.row[numerical[i].name];
      card.show({
        x: slice.x,
        lines: [{ name: title, y: slice.y, at: value, value: found.level }],
        value,
        xDomain: density.domain,
        even: density.even,
        yDomain: domainOf([...d3.extent(slice.y)]),
        title: `${title}, slice`,
        density,
        knots: numerical[i].knots,
      });
    });
  }
}
