/** Horizontal bars with names at their left: importance, and waterfalls from a base to a score. */

import { fitted, keep, svg } from "../base/dom.js";
import { numberTicks, signed } from "../base/format.js";
import { Card, bottomAxis } from "./card.js";

const ROW = 27;
const NARROW = 400; // below this width, names are above the bars

export class BarsCard extends Card {
  constructor(title, options = {}) {
    super(title, () => this.content?.table ?? { columns: [], rows: [] }, { height: 120, ...options });
    this.bottom = svg("g", { class: "bottom" });
    this.rows = svg("g", { class: "rows" });
    this.plot.append(svg("g", { "aria-hidden": "true" }, this.bottom), this.rows);
    this.plot.addEventListener("click", (event) => this.chosen(event));
    this.plot.addEventListener(
      "keydown",
      (event) => (event.key === "Enter" || event.key === " ") && this.chosen(event),
    );
  }

  /**
   * Show other bars.
   * @param {{bars: {name: string, detail?: string, from: number, to: number, class: string, text: string, open?: () => void}[],
   *   title: string, xTitle: string, marks?: {x: number, text: string}[], waterfall?: boolean, fromMean?: boolean, table: object}} content
   */
  show(content) {
    this.content = content;
    this.say(content.title, content.reading ?? "");
    if (!this.fit()) this.redraw();
    this.refreshTable();
  }

  /** Set the height that the bars need; true if that has drawn them. */
  fit() {
    this.row = (this.width || this.area.clientWidth) < NARROW ? 42 : ROW; // reading a width from the page takes time
    const height = this.content.bars.length * this.row + (this.content.xTitle ? 52 : 30);
    if (height === this.height) return false;
    this.height = height;
    if (!this.width) return false;
    this.sized();
    return true;
  }

  redraw() {
    const c = this.content;
    if (!c || !this.width || this.fit() || !this.onScreen) return;
    const narrow = this.row > ROW;
    const names = narrow ? 4 : Math.min(250, Math.max(110, this.width * 0.36));
    const right = this.width - 64;
    const ends = c.bars.flatMap((bar) => [bar.from, bar.to]);
    const [low, high] = d3.extent(c.waterfall || c.fromMean ? ends : [0, ...ends]);
    const x = d3
      .scaleLinear()
      .domain(low === high ? [low - 1, high + 1] : [low, high])
      .range([names + (c.waterfall || c.fromMean ? 62 : 0), right]);
    const floor = c.bars.length * this.row + 4;
    bottomAxis(this.bottom, numberTicks(...x.domain(), Math.max(2, Math.floor((right - names) / 80))), x, floor, {
      width: this.width,
      title: c.xTitle,
      grid: floor,
    });
    keep(this.rows, c.bars.length, () =>
      svg(
        "g",
        {},
        svg("rect", { class: "hit" }),
        svg("text", { class: "name" }),
        svg("line", { class: "link" }),
        svg("rect"),
        svg("text", { class: "amount", dy: "0.32em" }),
      ),
    );
    c.bars.forEach((bar, i) =>
      this.drawBar(this.rows.children[i], bar, i, {
        x,
        names,
        next: c.waterfall ? c.bars[i + 1] : null,
      }),
    );
  }

  drawBar(group, bar, i, { x, names, next }) {
    const [hit, name, link, rect, amount] = group.children;
    group.open = bar.open;
    const key = [
      this.width,
      bar.name,
      bar.text,
      bar.class,
      x(bar.from).toFixed(1),
      x(bar.to).toFixed(1),
      next ? 1 : 0,
    ].join("\n");
    if (group.key === key) return;
    group.key = key;
    const narrow = this.row > ROW;
    const y = i * this.row + 4;
    const at = y + (narrow ? this.row - ROW + 3 : 0); // of the bar
    const [a, b] = [x(Math.min(bar.from, bar.to)), x(Math.max(bar.from, bar.to))];
    attributes(hit, { x: 0, width: this.width, y, height: this.row });
    attributes(name, {
      x: narrow ? 2 : names - 10,
      y: narrow ? y + 11 : y + ROW / 2,
      dy: "0.32em",
      "text-anchor": narrow ? "start" : "end",
    });
    name.textContent = fitted(bar.name, (narrow ? this.width : names) - 14);
    attributes(rect, { x: a, width: Math.max(1.5, b - a), y: at + 5, height: ROW - 10, rx: 1.5, class: bar.class });
    attributes(link, {
      x1: x(bar.to),
      x2: x(bar.to),
      y1: at + 5,
      y2: at + this.row + ROW - 5,
      display: next && !narrow ? "inline" : "none",
    });
    const atLeft = (this.content.waterfall || this.content.fromMean) && bar.to < bar.from;
    attributes(amount, { x: atLeft ? a - 5 : b + 5, y: at + ROW / 2, "text-anchor": atLeft ? "end" : "start" });
    amount.textContent = bar.text;
    attributes(
      group,
      bar.open
        ? {
            role: "button",
            tabindex: 0,
            "aria-label": `${bar.name}: ${bar.text}; open`,
            class: "open",
          }
        : { role: "img", "aria-label": `${bar.name}: ${bar.text}`, class: "" },
    );
  }

  chosen(event) {
    const group = event.target.closest(".rows > g");
    if (!group?.open) return;
    event.preventDefault();
    group.open();
  }
}

/** Bars from a base to a score, the largest first; the smallest are added up. */
export function waterfall(base, values, most, label) {
  const sorted = Object.entries(values).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const shownOnes = sorted.length > most ? sorted.slice(0, most - 1) : sorted;
  const rest = sorted.slice(shownOnes.length);
  const steps = shownOnes.map(([name, value]) => ({ name: label(name), value }));
  if (rest.length) steps.push({ name: `${rest.length} others`, value: d3.sum(rest, ([, value]) => value) });
  let at = base;
  const bars = steps.map(({ name, value }) => {
    const bar = { name, from: at, to: at + value, class: value >= 0 ? "up" : "down", text: signed(value) };
    at += value;
    return bar;
  });
  return { bars, end: at, rows: sorted.map(([name, value]) => [label(name), value]) };
}

function attributes(node, given) {
  for (const [name, value] of Object.entries(given)) node.setAttribute(name, value);
}
