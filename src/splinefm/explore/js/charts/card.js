/** A card with a plot, its title, downloads and the table behind it. */

import { el, fitted, fresh, keep, named, put, shown, svg, textWidth } from "../base/dom.js";
import { csvText, offer, pngBlob, svgText } from "../base/download.js";
import { makeTable } from "../base/table.js";

const MAX_ROWS = 300;

export class Card {
  /**
   * @param {string} title what the plot shows
   * @param {() => {columns: string[], rows: Array<Array>}} table the data of the plot, asked for when needed
   * @param {{height?: number, open?: () => void}} [options]
   */
  constructor(title, table, { height = 230, open = null, level = "h3" } = {}) {
    [this.title, this.table, this.height, this.width] = [title, table, height, 0];
    const id = fresh("card");
    this.heading = el(
      level,
      { id },
      open ? el("button", { type: "button", class: "link", on: { click: open } }, named(title, 60)) : named(title, 60),
    );
    this.note = el("span", { class: "note" });
    this.reading = el("span", { class: "reading" });
    this.plot = svg("svg", { role: "group", "aria-labelledby": id, class: "plot" });
    this.area = el("div", { class: "area" }, this.plot);
    this.toggle = el(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-expanded": "false",
        on: {
          click: () => this.showTable(),
        },
      },
      "Table",
    );
    this.behind = el("div", {
      class: "behind scroll",
      tabindex: "0",
      role: "region",
      "aria-label": `Data of ${title}`,
      hidden: true,
    });
    this.root = el(
      "figure",
      { class: "card", "aria-labelledby": id },
      el("div", { class: "head" }, this.heading, el("div", { class: "tools" }, this.toggle, this.downloads())),
      el("div", { class: "sub" }, this.note, this.reading),
      this.area,
      this.behind,
    );
    new ResizeObserver(() => this.resized()).observe(this.area);
    // Cards that are scrolled away are drawn when they come back.
    this.onScreen = true;
    new IntersectionObserver(
      (entries) => {
        this.onScreen = entries[entries.length - 1].isIntersecting;
        if (this.onScreen) this.redraw?.();
      },
      { rootMargin: "120px" },
    ).observe(this.root);
    addEventListener("beforeprint", () => {
      this.onScreen = true;
      this.redraw?.();
    });
  }

  downloads() {
    const button = (text, save) =>
      el(
        "button",
        {
          type: "button",
          class: "quiet",
          "aria-label": `Download ${text} of ${this.title}`,
          on: { click: save },
        },
        text,
      );
    return el(
      "span",
      { class: "downloads" },
      button("SVG", () =>
        offer(`${this.title}.svg`, new Blob([svgText(this.plot, this.fullTitle)], { type: "image/svg+xml" })),
      ),
      button("PNG", async () => offer(`${this.title}.png`, await pngBlob(this.plot, this.fullTitle))),
      button("CSV", () => {
        const { columns, rows } = this.table();
        offer(`${this.title}.csv`, new Blob([csvText(columns, rows)], { type: "text/csv" }));
      }),
    );
  }

  /** Draw again if the width has changed. */
  resized() {
    const width = Math.floor(this.area.clientWidth);
    if (!width || width === this.width) return;
    this.width = width;
    this.sized();
  }

  /** Draw in the current size. */
  sized() {
    this.plot.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.plot.setAttribute("width", this.width);
    this.plot.setAttribute("height", this.height);
    this.redraw?.();
  }

  /** A line under the title: what the vertical axis shows, and at its right what is pointed at. */
  say(text, reading = "") {
    write(this.note, text);
    write(this.reading, reading);
  }

  get fullTitle() {
    return [this.title, this.note.textContent].filter(Boolean).join(": ");
  }

  showTable() {
    this.behind.hidden = !this.behind.hidden;
    this.toggle.setAttribute("aria-expanded", String(!this.behind.hidden));
    this.refreshTable();
  }

  /** Fill the table again, if it is open. */
  refreshTable() {
    if (this.behind.hidden) return;
    const { columns, rows } = this.table();
    this.behind.replaceChildren(makeTable(columns, rows.slice(0, MAX_ROWS)));
    if (rows.length > MAX_ROWS)
      this.behind.append(
        el(
          "p",
          { class: "note" },
          `The first ${MAX_ROWS} of ${rows.length.toLocaleString("en-US")} rows; the CSV file has all.`,
        ),
      );
  }
}

/** Draw ticks along the bottom: texts that would touch their neighbors are left out. */
export function bottomAxis(group, ticks, scale, y, { title = "", width = 0, grid = 0 } = {}) {
  const kept = [];
  let free = -Infinity;
  for (const [value, text] of ticks) {
    const half = textWidth(text) / 2 + 2;
    const x = Math.min(Math.max(scale(value), half), width - half);
    if (x - half < free) continue;
    free = x + half + 5;
    kept.push([scale(value), x, text]);
  }
  keep(group.firstChild ?? group.appendChild(svg("g")), kept.length, () =>
    svg("g", { class: "tick" }, svg("line"), svg("text", { "text-anchor": "middle", dy: "0.71em" })),
  );
  [...group.firstChild.children].forEach((node, i) => {
    const [at, x, text] = kept[i];
    const [line, label] = node.children;
    put(line, { x1: at, x2: at, y1: y - grid, y2: y + 4 });
    put(label, { x, y: y + 8 });
    write(label, text);
  });
  const node =
    group.querySelector(".axis-title") ?? group.appendChild(svg("text", { class: "axis-title", "text-anchor": "end" }));
  put(node, { x: width - 12, y: y + 34 });
  write(node, fitted(title, width - 20));
}

/** Draw ticks along the left side, with lines across the plot. */
export function leftAxis(group, ticks, scale, { left, right }) {
  keep(group.firstChild ?? group.appendChild(svg("g")), ticks.length, () =>
    svg("g", { class: "tick grid" }, svg("line"), svg("text", { "text-anchor": "end", dy: "0.32em" })),
  );
  [...group.firstChild.children].forEach((node, i) => {
    const [line, label] = node.children;
    const y = scale(ticks[i][0]);
    put(line, { x1: left, x2: right, y1: y, y2: y });
    put(label, { x: left - 7, y });
    write(label, ticks[i][1]);
  });
}

/** Set a text, if it is another one. */
export function write(node, text) {
  const safe = shown(text);
  if (node.textContent !== safe) node.textContent = safe;
}

/** The width that the texts of ticks need. */
export function ticksWidth(ticks) {
  return 14 + 6.6 * Math.max(2, ...ticks.map(([, text]) => text.length));
}
