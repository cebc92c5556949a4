/** The values of the current row: a slider per number, a searchable menu per category. */

import { clipped, el, fresh, named, shown } from "../base/dom.js";
import { axisOf, formatOf, percent } from "../base/format.js";
import { stepped } from "../charts/curve.js";

const STEPS = 1000;
const MAX_OPTIONS = 60;

/** All controls; `update(row)` shows other values. */
export function makeControls(app) {
  const controls = app.columns.map((column) => {
    const change = (value, done) => app.setValue(column.name, value, done);
    if (column.kind === "numerical") return new NumberControl(column, change);
    return column.kind === "multivalued" ? new ListControl(column, change) : new MenuControl(column, change);
  });
  const search = el("input", {
    type: "search",
    class: "search",
    placeholder: "Find a column",
    "aria-label": "Find a column",
  });
  search.hidden = controls.length < 9;
  search.addEventListener("input", () =>
    controls.forEach((one) => {
      one.root.hidden = !one.column.name.toLowerCase().includes(search.value.toLowerCase());
    }),
  );
  const root = el(
    "div",
    { class: "controls" },
    search,
    controls.map((one) => one.root),
  );
  return { root, update: (row) => controls.forEach((one) => one.show(row[one.column.name])) };
}

class NumberControl {
  constructor(column, change) {
    [this.column, this.change, this.axis, this.format] = [column, change, axisOf(column), formatOf(column)];
    const id = fresh("number");
    this.slider = el("input", {
      type: "range",
      min: 0,
      max: STEPS,
      step: 1,
      "aria-labelledby": id,
      on: {
        input: () => change(this.read(), false),
        change: () => change(this.read(), true),
        keydown: (event) => this.pressed(event),
      },
    });
    // Days and times of day are read as text, and moved with the slider.
    this.isText = column.part && column.part !== "trend";
    this.box = this.isText
      ? el("span", { class: "box", "aria-hidden": "true" })
      : el("input", {
          type: column.part === "trend" ? "date" : "number",
          step: "any",
          class: "box",
          "aria-label": `${column.name}, value`,
          on: { change: () => this.typed() },
        });
    const states = [
      ["number", "number"],
      ...(column.missing && d3.sum(column.token_rows ?? [1]) > 0 ? [["missing", "missing"]] : []),
      ...column.special.map((value) => [String(value), `= ${value}`]),
    ];
    this.state =
      states.length < 2
        ? null
        : el(
            "select",
            {
              class: "state",
              "aria-label": `${column.name}: number, missing or a special value`,
              on: { change: () => this.chosen() },
            },
            states.map(([value, text]) => el("option", { value }, text)),
          );
    this.root = el(
      "div",
      { class: "control", role: "group", "aria-labelledby": id },
      el("div", { class: "line" }, el("span", { id, class: "name" }, named(column.name, 40)), this.box),
      el("div", { class: "line" }, this.slider, this.state),
    );
  }

  read() {
    const value = this.axis.toX(this.slider.value / STEPS);
    return this.column.integers ? Math.round(value) : Number(value.toPrecision(4));
  }

  pressed(event) {
    const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 }[event.key];
    if (step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.change(stepped(this.column, this.axis, this.value, step), true);
  }

  typed() {
    if (this.box.value === "") return this.show(this.value);
    const value = this.column.part === "trend" ? Date.parse(this.box.value) / 1000 : Number(this.box.value);
    return Number.isFinite(value) ? this.change(value, true) : this.show(this.value);
  }

  chosen() {
    const kind = this.state.value;
    const middle = this.column.integers ? Math.round(this.axis.toX(0.5)) : Number(this.axis.toX(0.5).toPrecision(4));
    this.change(kind === "missing" ? null : kind === "number" ? middle : Number(kind), true);
  }

  show(value) {
    this.value = value;
    const known = typeof value === "number";
    const special = known && this.column.special.includes(value);
    if (this.state) this.state.value = known ? (special ? String(value) : "number") : "missing";
    this.slider.disabled = !known;
    if (known) {
      const at = Math.round(STEPS * this.axis.toU(value));
      if (Number(this.slider.value) !== at) this.slider.value = at;
      this.slider.style.setProperty("--filled", `${at / 10}%`);
    }
    this.slider.setAttribute("aria-valuetext", known ? this.format(value) : "missing");
    if (this.isText) {
      this.box.textContent = known ? this.format(value) : "";
      return;
    }
    const exact = Number.isInteger(value) ? value : Number(value?.toPrecision(6));
    const text = !known
      ? ""
      : this.column.part === "trend"
        ? new Date(1000 * value).toISOString().slice(0, 10)
        : String(exact);
    if (document.activeElement !== this.box || this.box.value === "") this.box.value = text;
    else if (Number(this.box.value) !== value && this.column.part !== "trend") this.box.value = text;
  }
}

/** A text box with a list of the categories that contain what was typed, the most frequent first. */
export class Menu {
  /** @param {string} label  @param {() => {value: any, text: string, detail?: string}[]} options  @param {(value: any) => void} choose */
  constructor(label, options, choose) {
    [this.options, this.choose, this.at, this.text] = [options, choose, -1, ""];
    const id = fresh("menu");
    this.input = el("input", {
      type: "text",
      role: "combobox",
      autocomplete: "off",
      spellcheck: "false",
      "aria-expanded": "false",
      "aria-controls": id,
      "aria-autocomplete": "list",
      "aria-label": label,
      on: {
        focus: () => this.input.select(),
        click: () => this.open(""),
        input: () => this.open(this.input.value),
        keydown: (event) => this.pressed(event),
        blur: () => this.close(),
      },
    });
    this.list = el("ul", { id, role: "listbox", "aria-label": label, hidden: true });
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const item = event.target.closest("li[role=option]");
      if (item) this.pick(Number(item.dataset.at));
    });
    this.root = el("div", { class: "menu" }, this.input, this.list);
  }

  open(text) {
    const wanted = text.toLowerCase();
    const all = this.options();
    this.found = all.filter((one) => one.text.toLowerCase().includes(wanted)).slice(0, MAX_OPTIONS);
    this.at = text ? 0 : this.found.findIndex((one) => one.text === this.text);
    const items = this.found.map((one, i) =>
      el(
        "li",
        {
          role: "option",
          id: `${this.list.id}-${i}`,
          "data-at": i,
          "aria-selected": "false",
        },
        named(one.text, 60),
        one.detail ? el("span", { class: "detail" }, one.detail) : null,
      ),
    );
    const hidden = all.length - this.found.length;
    if (!text && hidden > 0)
      items.push(
        el("li", { class: "more", role: "presentation" }, `${hidden.toLocaleString("en-US")} more: type to find them`),
      );
    if (!items.length) items.push(el("li", { class: "more", role: "presentation" }, "nothing found"));
    this.list.replaceChildren(...items);
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === this.at)));
    const item = this.at >= 0 ? this.list.children[this.at] : null;
    if (item) this.input.setAttribute("aria-activedescendant", item.id);
    else this.input.removeAttribute("aria-activedescendant");
    item?.scrollIntoView({ block: "nearest" });
  }

  pressed(event) {
    const isOpen = !this.list.hidden;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen) return this.open("");
      this.at = Math.min(this.found.length - 1, Math.max(0, this.at + (event.key === "ArrowDown" ? 1 : -1)));
      this.mark();
    } else if (event.key === "Enter" && isOpen) {
      event.preventDefault();
      this.pick(this.at);
    } else if (event.key === "Escape" && isOpen) {
      event.stopPropagation();
      this.close();
    }
    return undefined;
  }

  pick(i) {
    const one = this.found[i];
    this.close();
    if (one) this.choose(one.value);
  }

  close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
    this.input.value = this.text;
  }

  show(text) {
    this.text = shown(text);
    if (this.list.hidden) this.input.value = this.text;
  }
}

/** The categories of a column as options, with their shares of the training rows. */
export function categoryOptions(column, withMissing = column.missing) {
  const total = column.counts ? d3.sum(column.counts) + d3.sum(column.token_counts ?? []) : 0;
  const options = column.display.map((i) => ({
    value: column.categories[i],
    text: column.categories[i],
    detail: total ? percent(column.counts[i] / total) : null,
  }));
  return withMissing ? [{ value: null, text: "(missing)" }, ...options] : options;
}

class MenuControl {
  constructor(column, change) {
    this.column = column;
    const options = categoryOptions(column);
    this.menu = new Menu(
      column.name,
      () => options,
      (value) => change(value, true),
    );
    this.root = el(
      "div",
      { class: "control" },
      el("div", { class: "line" }, el("span", { class: "name", "aria-hidden": "true" }, named(column.name, 40))),
      this.menu.root,
    );
  }

  show(value) {
    this.menu.show(value === null ? "(missing)" : String(value));
  }
}

class ListControl {
  constructor(column, change) {
    [this.column, this.change, this.value] = [column, change, null];
    const options = categoryOptions(column, false);
    this.menu = new Menu(
      `Add to ${column.name}`,
      () => options.filter((one) => !(this.value ?? []).includes(one.value)),
      (value) => change([...(this.value ?? []), value], true),
    );
    this.menu.input.placeholder = "add";
    this.chips = el("div", { class: "chips" });
    this.root = el(
      "div",
      { class: "control", role: "group", "aria-label": column.name },
      el("div", { class: "line" }, el("span", { class: "name", "aria-hidden": "true" }, named(column.name, 40))),
      this.chips,
      this.menu.root,
    );
  }

  show(value) {
    if (JSON.stringify(value) === JSON.stringify(this.value) && this.chips.children.length) return;
    this.value = value;
    this.chips.replaceChildren(
      ...(value ?? []).map((name) =>
        el(
          "button",
          {
            type: "button",
            class: "chip",
            "aria-label": `Remove ${name}`,
            on: {
              click: () =>
                this.change(
                  this.value.filter((one) => one !== name),
                  true,
                ),
            },
          },
          clipped(name, 24),
          " ×",
        ),
      ),
    );
    this.menu.show("");
  }
}
