/** A surface as a heat map with contour lines, a crosshair that can be moved, and slices next to it. */

import { fitted, keep, svg, textWidth } from "../base/dom.js";
import { axisOf, evenTicks, number, numberTicks, ticksOf, valueText } from "../base/format.js";
import { Card, bottomAxis, leftAxis } from "./card.js";
import { stepped } from "./curve.js";

const TOP = 12;
const FLOOR = 46;
const LEGEND = 64;
// Viridis by a few of its colors: even steps of lightness, which also those see who do not see red or green.
const COLORS = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"];

export class HeatCard extends Card {
  /** @param {string} title  @param {(a: any, b: any, done: boolean) => void} move  @param {object} [options] */
  constructor(title, move, options = {}) {
    super(title, () => this.data(), { height: 440, ...options });
    this.move = move;
    this.image = svg("image", { preserveAspectRatio: "none", class: "heat" });
    [this.left, this.bottom, this.contours, this.legend] = ["left", "bottom", "contours", "legend"].map((name) =>
      svg("g", { class: name }),
    );
    this.rows = svg("g", { class: "row-dots" });
    this.ramp = svg("image", { preserveAspectRatio: "none" });
    [this.vertical, this.horizontal] = [svg("line", { class: "cross" }), svg("line", { class: "cross" })];
    this.grip = svg("circle", { class: "grip", r: 6.5 });
    this.handle = svg(
      "g",
      {
        role: "slider",
        tabindex: "0",
        class: "handle",
        "aria-label": "crosshair: arrow keys move it",
        "aria-valuemin": 0,
        "aria-valuemax": 1,
        "aria-valuenow": 0,
      },
      this.vertical,
      this.horizontal,
      this.grip,
    );
    this.yTitle = svg("text", { class: "axis-title", y: 0 });
    this.plot.append(
      svg("g", { "aria-hidden": "true" }, this.image, this.contours, this.rows, this.left, this.bottom, this.legend, this.ramp),
      this.handle,
    );
    this.plot.classList.add("draggable", "surface");
    this.canvas = document.createElement("canvas");
    this.listen();
  }

  listen() {
    const act = (event, done) => {
      const box = this.plot.getBoundingClientRect();
      this.move(this.ax.at(event.clientX - box.left), this.ay.at(event.clientY - box.top), done);
    };
    this.plot.addEventListener("pointerdown", (event) => {
      if (!this.content || event.button !== 0) return;
      this.plot.setPointerCapture(event.pointerId);
      this.dragging = true;
      this.handle.focus({ preventScroll: true });
      act(event, false);
    });
    this.plot.addEventListener("pointermove", (event) => this.dragging && act(event, false));
    for (const name of ["pointerup", "pointercancel"]) {
      this.plot.addEventListener(name, (event) => {
        if (this.dragging) act(event, true);
        this.dragging = false;
      });
    }
    this.handle.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key];
      if (!step || !this.content) return;
      event.preventDefault();
      const c = this.content;
      this.move(this.ax.stepped(c.at[0], step[0]), this.ay.stepped(c.at[1], step[1]), true);
    });
  }

  /** @param {{a: object, b: object, x: any[], y: any[], z: Float64Array, at: any[], even: boolean[], kind: "heat"|"contour", title: string, value: number, dots?: any[][]}} content z by rows of y; dots are rows of the data */
  show(content) {
    this.content = content;
    this.redraw();
    this.refreshTable();
  }

  redraw() {
    const c = this.content;
    if (!c || !this.width) return;
    this.plotLeft = 12 + Math.max(38, ...labels(c.b, c.y).map(textWidth));
    const [right, floor] = [this.width - LEGEND, this.height - FLOOR];
    this.ax = edgeAxis(c.a, c.x, this.plotLeft, right, c.even[0]);
    this.ay = edgeAxis(c.b, c.y, floor, TOP, c.even[1]);
    const domain = c.domain ?? d3.extent(c.z);
    this.paint(c, domain);
    attributes(this.image, { x: this.plotLeft, y: TOP, width: right - this.plotLeft, height: floor - TOP });
    this.drawContours(c, domain, right, floor);
    this.drawRows(c.dots ?? []);
    const most = Math.max(2, Math.floor((right - this.plotLeft) / 64));
    bottomAxis(this.bottom, this.ax.ticks(most), this.ax.scale, floor, { width: right + 12, title: c.a.name });
    leftAxis(this.left, this.ay.ticks(7), this.ay.scale, { left: this.plotLeft, right: this.plotLeft });
    this.drawLegend(domain, right, floor);
    const [x, y] = [this.ax.place(c.at[0]), this.ay.place(c.at[1])];
    const known = Number.isFinite(x) && Number.isFinite(y);
    this.handle.setAttribute("visibility", known ? "visible" : "hidden");
    const text = `${c.a.name} ${valueText(c.a, c.at[0])}, ${c.b.name} ${valueText(c.b, c.at[1])}`;
    const by = c.a.name ? `, by ${c.b.name} (upward) and ${c.a.name}` : "";
    this.say(`${c.title}${by}`, Number.isFinite(c.value) ? `→ ${number(c.value)}` : "");
    if (!known) return;
    attributes(this.vertical, { x1: x, x2: x, y1: TOP, y2: floor });
    attributes(this.horizontal, { x1: this.plotLeft, x2: right, y1: y, y2: y });
    attributes(this.grip, { cx: x, cy: y });
    attributes(this.handle, { "aria-valuenow": this.ax.share(x), "aria-valuetext": `${text}: ${number(c.value)}` });
  }

  paint(c, domain) {
    [this.canvas.width, this.canvas.height] = [c.x.length, c.y.length];
    const context = this.canvas.getContext("2d");
    const pixels = context.createImageData(c.x.length, c.y.length);
    const table = colorTable();
    const steps = c.kind === "contour" ? 10 : 255;
    for (let j = 0; j < c.y.length; j += 1) {
      for (let i = 0; i < c.x.length; i += 1) {
        const share = (c.z[j * c.x.length + i] - domain[0]) / (domain[1] - domain[0] || 1);
        const level = Math.min(
          255,
          Math.max(
            0,
            c.kind === "contour"
              ? Math.round((Math.floor(share * steps) / (steps - 1)) * 255)
              : Math.round(share * 255),
          ),
        );
        const at = 4 * ((c.y.length - 1 - j) * c.x.length + i);
        pixels.data.set(table.subarray(4 * level, 4 * level + 4), at);
      }
    }
    context.putImageData(pixels, 0, 0);
    this.image.setAttribute("href", this.canvas.toDataURL());
    const smooth = c.a.kind === "numerical" && c.b.kind === "numerical" && c.kind === "heat";
    this.image.style.setProperty("image-rendering", smooth ? "auto" : "pixelated");
  }

  drawContours(c, domain, right, floor) {
    const wanted = c.a.kind === "numerical" && c.b.kind === "numerical" && !c.stepped;
    const levels = wanted ? d3.ticks(...domain, 9) : [];
    const shapes = wanted ? d3.contours().size([c.x.length, c.y.length]).thresholds(levels)(c.z) : [];
    keep(this.contours, shapes.length, () => svg("path"));
    const sx = (right - this.plotLeft) / c.x.length;
    const sy = (floor - TOP) / c.y.length;
    shapes.forEach((shape, i) => {
      const path = shape.coordinates
        .flat()
        .map((ring) =>
          openRing(ring, c.x.length, c.y.length)
            .map(
              (part) =>
                "M" +
                part.map(([x, y]) => `${(this.plotLeft + x * sx).toFixed(1)},${(floor - y * sy).toFixed(1)}`).join("L"),
            )
            .join(""),
        )
        .join("");
      this.contours.children[i].setAttribute("d", path);
    });
  }

  drawRows(dots) {
    const [xs, ys] = [this.ax, this.ay].map((axis, i) => dots.map((dot) => axis.place(dot[i])));
    keep(this.rows, dots.length, () => svg("circle", { r: 1.4 }));
    dots.forEach((_, i) => attributes(this.rows.children[i], { cx: xs[i].toFixed(1), cy: ys[i].toFixed(1) }));
  }

  drawLegend(domain, right, floor) {
    const tall = Math.min(220, floor - TOP);
    const scale = d3
      .scaleLinear()
      .domain(domain)
      .range([TOP + tall, TOP]);
    if (!this.ramp.hasAttribute("href")) this.ramp.setAttribute("href", rampImage());
    attributes(this.ramp, { x: right + 12, y: TOP, width: 10, height: tall });
    leftAxis(this.legend, numberTicks(...domain, 6), scale, { left: right + 22, right: right + 25 });
    for (const node of this.legend.firstChild.children)
      attributes(node.lastChild, {
        x: right + 28,
        "text-anchor": "start",
      });
  }

  data() {
    const c = this.content;
    if (!c) return { columns: [], rows: [] };
    const rows = [];
    c.y.forEach((y, j) => c.x.forEach((x, i) => rows.push([x, y, c.z[j * c.x.length + i]])));
    return { columns: [c.a.name, c.b.name, c.title], rows };
  }
}

/** Where values of a column are along an edge: columns of pixels have the same width, values are looked up. */
function edgeAxis(column, values, from, to, even) {
  const n = values.length;
  const cell = (to - from) / n;
  if (column.kind !== "numerical") {
    const scale = (i) => from + (i + 0.5) * cell;
    const at = (place) => values[Math.min(n - 1, Math.max(0, Math.floor((place - from) / cell)))];
    return {
      scale,
      at,
      place: (value) => (values.includes(value) ? scale(values.indexOf(value)) : NaN),
      share: (place) => (place - from) / (to - from),
      ticks: (most) =>
        labels(column, values)
          .map((text, i) => [i, text])
          .filter((_, i) => i % Math.ceil(n / Math.max(most, Math.abs(to - from) / 16)) === 0),
      stepped: (value, step) => values[Math.min(n - 1, Math.max(0, values.indexOf(value) + step))],
    };
  }
  const scale = d3
    .scaleLinear()
    .domain(values)
    .range(d3.range(n).map((i) => from + (i + 0.5) * cell))
    .clamp(true);
  const axis = axisOf(column);
  const back = d3
    .scaleLinear()
    .domain(d3.range(n).map((i) => from + (i + 0.5) * cell))
    .range(values)
    .clamp(true);
  return {
    scale,
    place: (value) => (typeof value === "number" ? scale(value) : NaN),
    share: (place) => (place - from) / (to - from),
    at: (place) => (column.integers ? Math.round(back(place)) : Number(back(place).toPrecision(6))),
    ticks: (most) =>
      even
        ? evenTicks(column, axis, [values[0], values[n - 1]], most)
        : ticksOf(column, values[0], values[n - 1], most),
    stepped: (value, step) => (step ? stepped(column, axis, value, step) : value),
  };
}

function labels(column, values) {
  return column.kind === "numerical" ? ["000,000"] : values.map((value) => fitted(String(value), 110));
}

/** Parts of a ring that are not on the frame. */
function openRing(ring, nx, ny) {
  const onFrame = ([x, y]) => x <= 0.5 || y <= 0.5 || x >= nx - 0.5 || y >= ny - 0.5;
  const parts = [[]];
  ring.forEach((point, i) => {
    if (i && onFrame(point) && onFrame(ring[i - 1])) parts.push([]);
    parts[parts.length - 1].push(point);
  });
  return parts.filter((part) => part.length > 1);
}

let colors = null;

function colorTable() {
  if (colors) return colors;
  const ramp = d3
    .scaleLinear()
    .domain(COLORS.map((_, i) => (255 * i) / (COLORS.length - 1)))
    .range(COLORS)
    .interpolate(d3.interpolateRgb);
  colors = new Uint8ClampedArray(1024);
  for (let i = 0; i < 256; i += 1) {
    const { r, g, b } = d3.rgb(ramp(i));
    colors.set([r, g, b, 255], 4 * i);
  }
  return colors;
}

function rampImage() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [1, 256];
  const pixels = new ImageData(1, 256);
  const table = colorTable();
  for (let i = 0; i < 256; i += 1) pixels.data.set(table.subarray(4 * (255 - i), 4 * (255 - i) + 4), 4 * i);
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}

function attributes(node, given) {
  for (const [name, value] of Object.entries(given)) node.setAttribute(name, value);
}
