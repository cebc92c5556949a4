/** Plots that are looked at: lines, points and bars on two axes. */

import { keep, svg } from "../base/dom.js";
import { number, numberTicks } from "../base/format.js";
import { Card, bottomAxis, leftAxis, ticksWidth } from "./card.js";

const TOP = 10;

export class PlainCard extends Card {
  constructor(title, options = {}) {
    super(title, () => this.content?.table ?? { columns: [], rows: [] }, { height: 260, ...options });
    [this.left, this.bottom] = [svg("g", { class: "left" }), svg("g", { class: "bottom" })];
    [this.bars, this.areas, this.lines, this.points] = ["bars", "areas", "lines", "points"].map((name) =>
      svg("g", { class: name }),
    );
    this.plot.append(
      svg("g", { "aria-hidden": "true" }, this.left, this.bottom, this.bars, this.areas, this.lines, this.points),
    );
  }

  /**
   * Show other numbers.
   * @param {{x: {domain: number[], title: string, ticks?: Function, log?: boolean}, y: {domain: number[], title: string, ticks?: Function, log?: boolean},
   *   lines?: {points: number[][], class: string}[], points?: {x: number, y: number, r: number, class: string, low?: number, high?: number}[],
   *   bars?: {from: number, to: number, y: number, class: string}[], summary: string, table: object}} content
   */
  show(content) {
    this.content = content;
    this.say(content.y.title);
    this.plot.setAttribute("aria-description", content.summary ?? "");
    this.redraw();
    this.refreshTable();
  }

  redraw() {
    const c = this.content;
    if (!c || !this.width) return;
    const floor = this.height - 46;
    const y = scaleOf(c.y).range([floor, TOP]);
    const yTicks = ticksOn(c.y, 5);
    const left = Math.max(38, ticksWidth(yTicks));
    const right = this.width - 14;
    const x = scaleOf(c.x).range([left, right]);
    const most = Math.max(3, Math.floor((right - left) / 64));
    leftAxis(this.left, yTicks, y, { left, right });
    bottomAxis(this.bottom, ticksOn(c.x, most), x, floor, { width: this.width, title: c.x.title });
    this.drawBars(c.bars ?? [], x, y);
    const path = d3
      .line()
      .x((point) => x(point[0]))
      .y((point) => y(point[1]));
    keep(this.lines, c.lines?.length ?? 0, () => svg("path"));
    (c.lines ?? []).forEach((line, i) => {
      this.lines.children[i].setAttribute("d", path(line.points) ?? "");
      this.lines.children[i].setAttribute("class", line.class);
    });
    this.drawPoints(c.points ?? [], x, y);
  }

  drawBars(bars, x, y) {
    keep(this.bars, bars.length, () => svg("rect"));
    bars.forEach((bar, i) => {
      const [a, b] = [x(bar.from), x(bar.to)];
      const [top, base] = [y(Math.max(bar.y, 0)), y(Math.min(bar.y, 0))];
      for (const [name, value] of Object.entries({
        x: a + 0.5,
        width: Math.max(0.5, b - a - 1),
        y: top,
        height: Math.max(0, base - top),
        class: bar.class,
      }))
        this.bars.children[i].setAttribute(name, value);
    });
  }

  drawPoints(points, x, y) {
    keep(this.points, points.length, () => svg("g", {}, svg("line"), svg("circle")));
    points.forEach((point, i) => {
      const [whisker, dot] = this.points.children[i].children;
      const has = point.low !== undefined;
      for (const [name, value] of Object.entries({
        x1: x(point.x),
        x2: x(point.x),
        y1: y(has ? point.low : point.y),
        y2: y(has ? point.high : point.y),
      }))
        whisker.setAttribute(name, value);
      for (const [name, value] of Object.entries({
        cx: x(point.x),
        cy: y(point.y),
        r: point.r ?? 4,
        class: point.class,
      }))
        dot.setAttribute(name, value);
      whisker.setAttribute("class", `whisker ${point.class}`);
    });
  }
}

function scaleOf({ domain, log }) {
  return (log ? d3.scaleLog() : d3.scaleLinear()).domain(domain);
}

function ticksOn({ domain, ticks = numberTicks, log }, most) {
  if (!log) return ticks(...domain, most);
  const powers = d3.range(Math.ceil(Math.log10(domain[0])), Math.log10(domain[1]) + 1e-9).map((power) => 10 ** power);
  const digits = powers.length > most ? [1] : [1, 2, 5];
  return [powers[0] / 10, ...powers]
    .flatMap((power) => digits.map((digit) => digit * power))
    .filter((value) => value >= domain[0] && value <= domain[1])
    .map((value) => [value, number(value)]);
}

/** A domain around values, with a margin; `zero` includes zero. */
export function domainOf(values, { margin = 0.06, zero = false } = {}) {
  let [low, high] = d3.extent(values.filter(Number.isFinite));
  if (low === undefined) return [0, 1];
  if (zero) [low, high] = [Math.min(0, low), Math.max(0, high)];
  const space = (high - low) * margin || Math.abs(high) * 0.1 || 1;
  return [zero && low === 0 ? 0 : low - space, zero && high === 0 ? 0 : high + space];
}
