/** The page: reads its data, starts the model's worker, and shows one view at a time. */

import { announce, clipped, el, isQuiet, named, quietly, set, shown } from "./base/dom.js";
import { Client } from "./base/client.js";
import { usable } from "./base/checks.js";
import { complete, cutText } from "./base/columns.js";
import { number, valueText } from "./base/format.js";
import { Rows } from "./base/rows.js";
import { Store } from "./base/store.js";
import { chooseTheme, printLight, switchTheme } from "./base/theme.js";
import { decodePayload } from "./engine/payload.js";
import { makeControls } from "./views/controls.js";
import { makeHelp } from "./views/help.js";
import { ImportanceView } from "./views/importance.js";
import { QualityView } from "./views/quality.js";
import { RankingView } from "./views/ranking.js";
import { RowView } from "./views/row.js";
import { makeSearch } from "./views/search.js";
import { SegmentView } from "./views/segment.js";
import { SurfaceView } from "./views/surface.js";
import { TransformsView } from "./views/transforms.js";

const VIEWS = {
  segment: ["Segment", SegmentView],
  surface: ["Surface", SurfaceView],
  row: ["Row", RowView],
  importance: ["Importance", ImportanceView],
  quality: ["Quality", QualityView],
  ranking: ["Ranking", RankingView],
  transforms: ["Transforms", TransformsView],
};
const WITH_VALUES = new Set(["segment", "surface", "row", "ranking"]);
const PINS = ["A", "B", "C", "D"];
const byId = (id) => document.getElementById(id);

class App {
  constructor(about, payload, buffers) {
    [this.about, this.payload] = [about, payload];
    this.columns = payload.columns.map((column) => complete(column, about.columns[column.name]));
    this.byName = new Map(this.columns.map((column) => [column.name, column]));
    this.link = payload.loss.link;
    this.classes = payload.model.outputs > 1 ? payload.loss.classes : null;
    this.rows = new Rows(this.columns, payload.rows, buffers);
    this.byImportance = this.ordered(payload.explain?.outputs?.[0]?.importance?.fields ?? []);
    this.densities = new Map();
    this.client = new Client(byId("worker-source").textContent, payload, buffers);
    this.client.onError = (error) => this.fail(error);
    const start = this.startState();
    const page = {
      columns: this.columns,
      classes: payload.model.outputs,
      rows: this.rows.n,
      views: Object.keys(VIEWS),
      pins: PINS,
    };
    this.store = new Store(start, (found) => usable(found, start, page));
    this.views = new Map();
  }

  startState() {
    const pair = this.payload.explain?.outputs?.[0]?.importance?.pairs?.[0]?.names ?? [];
    const drawable =
      pair.length === 2 && pair.every((name) => this.column(name) && this.column(name).kind !== "multivalued");
    const [a, b] = drawable
      ? pair.slice().sort((one, other) => Number(/lon|lng/i.test(other)) - Number(/lon|lng/i.test(one)))
      : this.byImportance
          .filter((column) => column.kind === "numerical")
          .concat(this.byImportance.filter((column) => column.kind === "categorical"))
          .map((column) => column.name);
    return {
      view: "segment",
      row: this.rows.typical(),
      cls: 0,
      scale: "prediction",
      range: "same",
      axis: "auto",
      compare: "overlay",
      show: { density: true, spread: true, knots: false, extrema: true, categories: true },
      pins: [],
      focus: "",
      all: false,
      surface: { a: a ?? "", b: b ?? "", kind: "heat" },
      picked: null,
      quality: { by: "", filters: [] },
      transformed: "",
      k: 20,
    };
  }

  ordered(fields) {
    const rank = new Map(fields.map((field, i) => [field.name, [-(field.shapley ?? 0), i]]));
    const place = (column) => rank.get(column.name)?.[0] ?? rank.get(column.column)?.[0] ?? 0;
    return [...this.columns].sort((a, b) => place(a) - place(b));
  }

  column(name) {
    return this.byName.get(name);
  }

  /** Where the rows are along a column, on the axis that a state asks for; without one, by value. */
  density(name, state = { axis: "values" }) {
    const plain = this.remembered(name, false);
    return state.axis === "even" || (state.axis === "auto" && plain.skewed && !this.column(name).part)
      ? this.remembered(name, true)
      : plain;
  }

  remembered(name, even) {
    const key = `${even} ${name}`;
    if (!this.densities.has(key)) this.densities.set(key, this.rows.density(this.column(name), even));
    return this.densities.get(key);
  }

  /** Whether a state shows predictions, not scores. */
  asPrediction(state) {
    return state.scale === "prediction";
  }

  scaleText(state) {
    if (this.asPrediction(state)) return this.predictionText(state);
    return this.classes ? `score of ${this.classes[state.cls]}` : this.about.score_text;
  }

  predictionText(state) {
    return this.classes ? `probability of ${this.classes[state.cls]}` : this.about.prediction_text;
  }

  targetText(value) {
    return this.payload.loss.classes ? String(this.payload.loss.classes[value] ?? value) : number(value);
  }

  /** What predictions are compared with. */
  measuredText(state) {
    const labels = this.payload.loss.classes;
    if (this.link === "softmax") return `share of ${labels[state.cls]}`;
    return this.link === "logistic"
      ? `share of ${labels ? labels[1] : `${this.rows.targetName} = 1`}`
      : `mean ${this.rows.targetName}`;
  }

  setValue(name, value, done) {
    this.setValues(
      {
        [name]: value,
      },
      done,
    );
  }

  setValues(values, done) {
    const row = { ...this.store.state.row, ...values };
    if (done) this.store.commit({ row });
    else this.store.move({ row });
  }

  fail(error) {
    byId("failure").textContent = shown(error.message);
    byId("failure").hidden = false;
  }

  async start() {
    byId("title").replaceChildren("Explorer: ", named(this.about.title, 60));
    byId("about").textContent = shown(this.about.subtitle + cutText(this.payload.cut ?? {}));
    byId("footer").textContent = shown(
      `Made by splinefm from ${this.about.model}. The model runs in this page, which loads nothing from elsewhere.`,
    );
    if (this.about.search) byId("footer").append(makeSearch(this.about.search));
    await this.client.ready;
    this.makeActions();
    this.makeTabs();
    this.makeSide();
    byId("loading").remove();
    this.store.listen((state, moving) => this.update(state, moving));
    this.update(this.store.state, false);
    document.addEventListener("keydown", (event) => this.pressed(event));
    document.documentElement.dataset.ready = "true";
  }

  /** Whether nothing is being computed or waited for. */
  get isIdle() {
    return isQuiet() && this.client.waiting.size === 0;
  }

  makeActions() {
    const button = (text, label, act) =>
      el("button", { type: "button", "aria-label": label, title: label, on: { click: act } }, text);
    this.undo = button("↶", "Undo (Ctrl+Z)", () => this.store.undo());
    this.redo = button("↷", "Redo (Ctrl+Shift+Z)", () => this.store.redo());
    this.share = button("Copy link", "Copy the address of this view", () => this.copy());
    this.theme = button("◐", "Light or dark", switchTheme);
    this.help = makeHelp();
    byId("actions").append(
      this.undo,
      this.redo,
      this.share,
      this.theme,
      button("?", "Keys", () => this.help.showModal()),
      this.help,
    );
  }

  makeTabs() {
    this.tabs = Object.entries(VIEWS).map(([view, [title]]) =>
      el(
        "button",
        {
          type: "button",
          role: "tab",
          id: `tab-${view}`,
          "aria-controls": "panel",
          on: { click: () => this.store.commit({ view }) },
        },
        title,
      ),
    );
    set(byId("tabs"), { role: "tablist", "aria-label": "Views" }).append(...this.tabs);
    byId("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = this.tabs[(this.tabs.indexOf(document.activeElement) + step + this.tabs.length) % this.tabs.length];
      next.focus();
      next.click();
    });
    byId("panel").setAttribute("role", "tabpanel");
  }

  makeSide() {
    this.controls = makeControls(this);
    this.level = el("output", { for: "controls" });
    this.scoreText = el("span", { class: "score" });
    this.what = el("span", { class: "what" });
    this.pins = el("ul", { class: "pins", "aria-label": "Pinned segments" });
    this.pin = el("button", { type: "button", on: { click: () => this.addPin() } }, "Pin");
    const reset = el(
      "button",
      { type: "button", on: { click: () => this.store.commit({ row: this.store.start.row, picked: null }) } },
      "Typical row",
    );
    const any = el("button", { type: "button", on: { click: () => this.pickAny() } }, "Any row");
    const classes = this.classes
      ? el("label", { class: "field" }, el("span", { class: "visually-hidden" }, "Class"), this.classMenu())
      : null;
    set(byId("side"), { "aria-label": "Values of the current row" }).append(
      el(
        "div",
        { class: "panel" },
        el("div", { class: "level" }, this.what, this.level, this.scoreText),
        classes,
        el("div", { class: "buttons" }, this.pin, reset, any),
        this.pins,
      ),
      el(
        "details",
        { class: "panel", open: !matchMedia("(max-width: 900px)").matches },
        el("summary", {}, "Change the values"),
        this.controls.root,
      ),
    );
  }

  classMenu() {
    this.classes_ = el(
      "select",
      { "aria-label": "Class", on: { change: () => this.store.commit({ cls: Number(this.classes_.value) }) } },
      this.classes.map((name, i) => el("option", { value: i }, clipped(name, 40))),
    );
    return this.classes_;
  }

  addPin() {
    const { pins, row } = this.store.state;
    const name = PINS.find((one) => !pins.some((pin) => pin.name === one));
    if (!name) return;
    this.store.commit({ pins: [...pins, { name, row }] });
    announce(`Pinned as ${name}`);
  }

  pickAny() {
    const picked = Math.floor(Math.random() * this.rows.n);
    this.store.commit({ picked, row: { ...this.store.state.row, ...this.rows.row(picked) } });
  }

  update(state, moving) {
    if (!moving) byId("failure").hidden = true;
    const withValues = WITH_VALUES.has(state.view);
    byId("side").hidden = !withValues;
    byId("frame").classList.toggle("wide", !withValues);
    this.tabs.forEach((tab) => {
      const chosen = tab.id === `tab-${state.view}`;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    });
    byId("panel").setAttribute("aria-labelledby", `tab-${state.view}`);
    [this.undo.disabled, this.redo.disabled] = [!this.store.past.length, !this.store.future.length];
    if (withValues) this.updateSide(state, moving);
    const view = this.view(state.view);
    if (byId("panel").firstElementChild !== view.root) byId("panel").replaceChildren(view.root);
    view.update(state, moving);
  }

  view(name) {
    if (!this.views.has(name)) this.views.set(name, new VIEWS[name][1](this));
    return this.views.get(name);
  }

  updateSide(state, moving) {
    this.controls.update(state.row);
    if (this.classes_) this.classes_.value = state.cls;
    this.pin.disabled = state.pins.length >= PINS.length;
    const text = this.predictionText(state);
    if (this.what.textContent !== shown(text)) this.what.textContent = shown(text);
    this.client.latest("judge", "judge", [state.row, state.cls], ({ score, prediction }) => {
      this.level.textContent = number(prediction);
      this.scoreText.textContent = this.link === "identity" ? "" : `score ${number(score)}`;
    });
    if (moving) return;
    this.pins.hidden = !state.pins.length;
    this.pins.replaceChildren(
      ...state.pins.map((pin, i) =>
        el(
          "li",
          {},
          el(
            "button",
            {
              type: "button",
              class: "go",
              title: "Go to this segment",
              on: { click: () => this.store.commit({ row: pin.row }) },
            },
            el("span", { class: `key line-${i + 1}` }, pin.name),
            " ",
            this.pinText(pin, state),
          ),
          el(
            "button",
            {
              type: "button",
              class: "quiet",
              "aria-label": `Remove pin ${pin.name}`,
              on: { click: () => this.store.commit({ pins: state.pins.filter((one) => one !== pin) }) },
            },
            "×",
          ),
        ),
      ),
    );
  }

  pinText(pin, state) {
    const differing = this.columns.filter(
      (column) => JSON.stringify(pin.row[column.name]) !== JSON.stringify(state.row[column.name]),
    );
    return differing.length
      ? clipped(
          differing
            .slice(0, 2)
            .map((column) => `${column.name} ${valueText(column, pin.row[column.name])}`)
            .join(", "),
          34,
        )
      : "as now";
  }

  pressed(event) {
    const typing = event.target.matches?.("input:not([type=range]):not([type=checkbox]), textarea, select");
    const control = event.ctrlKey || event.metaKey;
    if (control && event.key.toLowerCase() === "z" && !typing) {
      event.preventDefault();
      if (event.shiftKey) this.store.redo();
      else this.store.undo();
    } else if (control && event.key.toLowerCase() === "y" && !typing) {
      event.preventDefault();
      this.store.redo();
    } else if (!control && !event.altKey && !typing && !this.help.open) {
      const view = Object.keys(VIEWS)[Number(event.key) - 1];
      if (view) this.store.commit({ view });
      else if (event.key === "?") this.help.showModal();
      else if (event.key.toLowerCase() === "t") this.theme.click();
      else if (event.key.toLowerCase() === "p" && WITH_VALUES.has(this.store.state.view)) this.addPin();
      else if (event.key === "Escape") this.store.cancel();
    }
  }

  async copy() {
    try {
      await navigator.clipboard.writeText(location.href);
      announce("The address was copied");
      this.share.textContent = "Copied";
      quietly(1500, () => {
        this.share.textContent = "Copy link";
      })();
    } catch {
      this.fail(new Error("The browser does not allow copying: copy the address of this window"));
    }
  }
}

chooseTheme();
printLight();
const { payload, buffers } = decodePayload(byId("payload-data").textContent);
const app = new App(JSON.parse(byId("about-data").textContent), payload, buffers);
globalThis.explorer = app;
app.start().catch((error) => app.fail(error));
