/** The curve of one numerical column: lines, band, knots, extrema, density, and a handle that can be dragged. */

import { el, fitted, fresh, keep, put, svg } from "../base/dom.js";
import { axisOf, evenScale, evenTicks, formatOf, number, numberTicks, ticksOf } from "../base/format.js";
import { Card, bottomAxis, leftAxis, ticksWidth } from "./card.js";

const TOP = 10;
const BOTTOM = 24;
const STRIP = 26;
const LINES = 5;
const TOKEN = 54; // width for the mark and the name of a special value

export class CurveCard extends Card {
  /** @param {object} column  @param {(value: number, done: boolean) => void} move  @param {object} [options] */
  constructor(column, move, options = {}) {
    super(column.name, () => this.data(), { height: 208, ...options });
    [this.column, this.move, this.axis, this.format] = [column, move, axisOf(column), formatOf(column)];
    this.content = null;
    if (column.mark) this.note.before(el("span", { class: "note" }, `✓ ${column.mark} `));
    this.make();
    this.listen();
  }

  make() {
    this.parts = Object.fromEntries(
      ["bottom", "left", "density", "knots"].map((name) => [name, svg("g", { class: name })]),
    );
    this.band = svg("path", { class: "band" });
    this.lines = Array.from({ length: LINES }, (_, i) => svg("path", { class: `line line-${i}` }));
    this.extrema = svg("g", { class: "extrema" });
    this.tokens = svg("g", { class: "tokens" });
    this.zero = svg("line", { class: "zero" });
    this.cross = svg("line", { class: "cross" });
    this.dots = Array.from({ length: LINES }, (_, i) =>
      svg("circle", { class: `dot line-${i}`, r: 3.5, display: "none" }),
    );
    this.grip = svg("circle", { class: "grip", r: 6.5, cx: -20 });
    const { bottom, left, density, knots } = this.parts;
    const id = fresh("clip");
    this.window = svg("rect", { y: 0 });
    const clipped = svg("g", { "clip-path": `url(#${id})` }, this.band, [...this.lines].reverse());
    const still = svg(
      "g",
      { "aria-hidden": "true" },
      svg("clipPath", { id }, this.window),
      left,
      density,
      knots,
      bottom,
      this.zero,
      clipped,
      this.extrema,
      this.tokens,
      this.dots,
    );
    this.handle = svg(
      "g",
      {
        role: "slider",
        tabindex: "0",
        class: "handle",
        "aria-label": `${this.column.name}, drag along the curve`,
        "aria-valuemin": 0,
        "aria-valuemax": 1,
        "aria-valuenow": 0,
      },
      this.cross,
      this.grip,
    );
    this.plot.append(still, this.handle);
    this.plot.classList.add("draggable");
  }

  listen() {
    const at = (event) => {
      const x = event.clientX - this.plot.getBoundingClientRect().left;
      return this.rounded(this.x.invert(Math.min(this.right, Math.max(this.left, x))));
    };
    this.plot.addEventListener("pointerdown", (event) => {
      if (!this.content || event.button !== 0) return;
      this.plot.setPointerCapture(event.pointerId);
      this.dragging = true;
      this.handle.focus({ preventScroll: true });
      this.move(at(event), false);
    });
    this.plot.addEventListener("pointermove", (event) => this.dragging && this.move(at(event), false));
    for (const name of ["pointerup", "pointercancel"]) {
      this.plot.addEventListener(name, (event) => {
        if (!this.dragging) return;
        this.dragging = false;
        this.move(at(event), true);
      });
    }
    this.handle.addEventListener("keydown", (event) => this.pressed(event));
  }

  pressed(event) {
    const steps = {
      ArrowLeft: -1,
      ArrowDown: -1,
      ArrowRight: 1,
      ArrowUp: 1,
      PageDown: -10,
      PageUp: 10,
      Home: -1000,
      End: 1000,
    };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(stepped(this.column, this.axis, this.content?.value, step), true);
  }

  rounded(value) {
    return this.column.integers ? Math.round(value) : Number(value.toPrecision(6));
  }

  /**
   * Show other numbers.
   * @param {{x: Float64Array, lines: {name: string, y: Float64Array, at: number|null, value: number|null}[], value: number|null, yDomain: number[], xDomain: number[],
   *   title: string, band?: {low: Float64Array, high: Float64Array}|null, extrema?: {x: number, y: number, kind: string}[], knots?: number[], density?: object|null, difference?: boolean,
   *   tokens?: {name: string, y: number}[]}} content
   */
  show(content) {
    this.content = content;
    this.redraw();
    this.refreshTable();
  }

  redraw() {
    if (!this.content || !this.width || !this.onScreen) return;
    const c = this.content;
    const bottom = this.height - BOTTOM - STRIP;
    this.drawFrame(c, bottom);
    this.drawLines(c, bottom);
    this.drawExtrema(c.extrema ?? []);
    this.drawTokens(c.tokens ?? []);
    this.drawHandle(c, bottom);
  }

  /** Axes, density and knots: they stay while a value is dragged. */
  drawFrame(c, bottom) {
    const key = [this.width, c.even, ...c.xDomain, ...c.yDomain, c.knots?.length, c.density?.bars.length].join();
    if (key === this.framed) return;
    this.framed = key;
    this.y = d3.scaleLinear().domain(c.yDomain).range([bottom, TOP]);
    const yTicks = numberTicks(...c.yDomain, 5);
    this.left = Math.max(38, ticksWidth(yTicks));
    this.right = this.width - 12 - TOKEN * (c.tokens?.length ?? 0);
    this.x = c.even
      ? evenScale(this.axis, c.xDomain, [this.left, this.right])
      : d3.scaleLinear().domain(c.xDomain).range([this.left, this.right]);
    leftAxis(this.parts.left, yTicks, this.y, { left: this.left, right: this.right });
    const most = Math.max(3, Math.floor((this.right - this.left) / 64));
    const xTicks = c.even
      ? evenTicks(this.column, this.axis, c.xDomain, most)
      : ticksOf(this.column, ...c.xDomain, most);
    bottomAxis(this.parts.bottom, xTicks, this.x, this.height - BOTTOM, { width: this.right + 12 });
    this.drawDensity(c.density, this.height - BOTTOM);
    this.drawKnots(c.knots ?? [], bottom);
  }

  drawLines(c, bottom) {
    const [low, high] = c.xDomain;
    const inside = clippedRange(c.x, low, high);
    put(this.window, { x: this.left, width: this.right - this.left, height: bottom + 4 });
    const line = d3
      .line()
      .defined((i) => Number.isFinite(this.current[i]))
      .x((i) => this.x(c.x[i]))
      .y((i) => this.y(this.current[i]));
    this.lines.forEach((path, i) => {
      this.current = c.lines[i]?.y;
      put(path, { d: this.current ? (line(inside) ?? "") : "" });
    });
    const zero = c.difference && c.yDomain[0] < 0 && c.yDomain[1] > 0;
    put(this.zero, {
      x1: this.left,
      x2: this.right,
      y1: this.y(0),
      y2: this.y(0),
      display: zero ? "inline" : "none",
    });
    const area = d3
      .area()
      .x((i) => this.x(c.x[i]))
      .y0((i) => this.y(c.band.low[i]))
      .y1((i) => this.y(c.band.high[i]));
    put(this.band, { d: c.band ? area(inside) : "" });
  }

  drawDensity(density, base) {
    const bars = (density?.bars ?? []).filter(
      ([from, to]) => to > this.content.xDomain[0] && from < this.content.xDomain[1],
    );
    keep(this.parts.density, bars.length, () => svg("rect"));
    bars.forEach(([from, to, share], i) => {
      const [a, b] = [Math.max(this.left, this.x(from)), Math.min(this.right, this.x(to))];
      const tall = (STRIP - 4) * share;
      put(this.parts.density.children[i], {
        x: a,
        width: Math.max(0.5, b - a - 0.75),
        y: base - tall,
        height: tall,
      });
    });
  }

  drawKnots(knots, bottom) {
    const inside = knots.filter((x) => x >= this.content.xDomain[0] && x <= this.content.xDomain[1]);
    keep(this.parts.knots, inside.length, () => svg("line"));
    inside.forEach((x, i) =>
      put(this.parts.knots.children[i], {
        x1: this.x(x),
        x2: this.x(x),
        y1: bottom - 1,
        y2: bottom + 4,
      }),
    );
  }

  drawExtrema(extrema) {
    const [low, high] = this.content.xDomain;
    const inside = extrema.filter((one) => one.x >= low && one.x <= high && Number.isFinite(one.y));
    keep(this.extrema, inside.length, () => svg("path"));
    inside.forEach((one, i) => {
      const up = one.kind === "maximum" ? -1 : 1;
      const [x, y] = [this.x(one.x), this.y(one.y) + 4 * up];
      put(this.extrema.children[i], { d: `M${x},${y}l-4,${6 * up}h8z`, class: one.kind });
    });
  }

  /** Special and missing values, which have no place on the axis: at its right. */
  drawTokens(tokens) {
    keep(this.tokens, tokens.length, () => svg("g", {}, svg("path"), svg("text", { "text-anchor": "middle" })));
    tokens.forEach((token, i) => {
      const [mark, name] = this.tokens.children[i].children;
      const x = this.right + TOKEN * (i + 0.5) + 6;
      put(mark, { d: `M${x},${this.y(token.y) - 5}l5,5l-5,5l-5,-5z` });
      put(name, { x, y: this.height - BOTTOM + 14 });
      name.textContent = fitted(token.name, TOKEN - 2);
    });
  }

  drawHandle(c, bottom) {
    // A missing value has no place on the axis.
    const known = typeof c.value === "number";
    put(this.handle, { display: known ? "inline" : "none" });
    this.dots.forEach((dot, i) => {
      const line = i > 0 ? c.lines[i] : null;
      const here = line && typeof line.at === "number" && Number.isFinite(line.value);
      put(dot, {
        display: here ? "inline" : "none",
        cx: here ? this.x(clamp(line.at, c.xDomain)) : 0,
        cy: here ? this.y(line.value) : 0,
      });
    });
    const title = c.even ? `${c.title}; even axis` : c.title;
    if (!known) return this.say(title, c.special ?? "");
    const x = this.x(clamp(c.value, c.xDomain));
    const at = c.lines[0].value;
    put(this.cross, { x1: x, x2: x, y1: TOP, y2: this.height - BOTTOM });
    put(this.grip, { cx: x, cy: Number.isFinite(at) ? this.y(at) : bottom });
    this.say(title, `${this.format(c.value)} → ${number(at, 4)}`);
    put(this.handle, {
      "aria-valuemin": this.column.low,
      "aria-valuemax": this.column.high,
      "aria-valuenow": c.value,
      "aria-valuetext": `${this.format(c.value)}, ${c.title} ${number(at, 4)}`,
    });
  }

  data() {
    const c = this.content;
    if (!c) return { columns: [], rows: [] };
    const columns = [
      this.column.name,
      ...c.lines.map((line) => line.name),
      ...(c.band ? ["10 % of similar rows", "90 % of similar rows"] : []),
    ];
    const rows = Array.from(c.x, (x, i) => [
      x,
      ...c.lines.map((line) => line.y[i]),
      ...(c.band ? [c.band.low[i], c.band.high[i]] : []),
    ]);
    return { columns, rows };
  }
}

/** The value some steps further: integers, or hundredths of the axis. */
export function stepped(column, axis, value, step) {
  const from = typeof value === "number" ? value : (column.low + column.high) / 2;
  if (column.integers) return Math.min(column.high, Math.max(column.low, Math.round(from) + step));
  return Number(axis.toX(axis.toU(from) + step / 100).toPrecision(6));
}

/** Numbers of the points between two values, and one more on each side. */
function clippedRange(x, low, high) {
  let first = 0;
  let last = x.length - 1;
  while (first < last && x[first + 1] <= low) first += 1;
  while (last > first && x[last - 1] >= high) last -= 1;
  return d3.range(first, last + 1);
}

function clamp(value, [low, high]) {
  return Math.min(high, Math.max(low, value));
}
