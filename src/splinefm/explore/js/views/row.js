/** Row: why a row gets its prediction, what would change it, and how little would reach another one. */

import { announce, el, named, shown } from "../base/dom.js";
import { count, number, signed, valueText } from "../base/format.js";
import { BarsCard, waterfall } from "../charts/bars.js";
import { readRow } from "../base/paste.js";
import { makeTable } from "../base/table.js";

const MAX_BARS = 14;

export class RowView {
  constructor(app) {
    this.app = app;
    this.number = el("input", {
      type: "number",
      min: 1,
      max: app.rows.n,
      step: 1,
      "aria-label": "Number of the row",
      on: { change: () => this.pick(Number(this.number.value) - 1) },
    });
    this.pasted = el("textarea", {
      rows: 3,
      spellcheck: "false",
      "aria-label": "A row as JSON, or two lines of CSV or of a spreadsheet",
      placeholder: '{"column": value, …}, or the header and a line of a CSV file or spreadsheet',
    });
    this.problem = el("p", { class: "note", role: "alert" });
    const button = (text, act, kind = "") => el("button", { type: "button", class: kind, on: { click: act } }, text);
    this.changed = el("div", { class: "panel", role: "region", "aria-label": "What was changed" });
    this.wanted = el("input", {
      type: "number",
      step: "any",
      "aria-label": `Wanted ${app.about.prediction_short}`,
      on: { keydown: (event) => event.key === "Enter" && this.search() },
    });
    this.answers = el("div", { "aria-live": "polite" });
    this.card = new BarsCard("Why this prediction");
    this.root = el(
      "section",
      { "aria-labelledby": "row-title" },
      el(
        "h2",
        {
          id: "row-title",
          class: "visually-hidden",
        },
        "Row",
      ),
      el(
        "div",
        { class: "toolbar" },
        el(
          "span",
          { class: "form" },
          "Row",
          this.number,
          `of ${count(app.rows.n)}`,
          button("previous", () => this.pick(this.at() - 1)),
          button("next", () => this.pick(this.at() + 1)),
          button("any", () => this.pick(Math.floor(Math.random() * app.rows.n))),
        ),
        el(
          "details",
          { class: "paste" },
          el("summary", {}, "Paste a row"),
          this.pasted,
          button("Read", () => this.paste()),
          this.problem,
        ),
      ),
      el(
        "div",
        { class: "grid reason" },
        this.card.root,
        el(
          "div",
          {},
          this.changed,
          el(
            "div",
            { class: "panel" },
            el("h3", {}, "What would it take?"),
            el(
              "p",
              { class: "lead" },
              "The smallest change of one column, or of two, that reaches a wanted prediction, found on the exact curve.",
            ),
            el(
              "div",
              { class: "form" },
              el("span", {}, app.about.prediction_short),
              this.wanted,
              button("Find", () => this.search(), "primary"),
            ),
            this.answers,
          ),
        ),
      ),
    );
  }

  at() {
    return this.app.store.state.picked ?? 0;
  }

  pick(i) {
    const picked = Math.min(this.app.rows.n - 1, Math.max(0, Number.isFinite(i) ? Math.round(i) : 0));
    this.app.store.commit({ picked, row: { ...this.app.store.state.row, ...this.app.rows.row(picked) } });
  }

  paste() {
    try {
      const { row, unknown } = readRow(this.pasted.value, this.app.columns);
      this.problem.textContent = shown(
        unknown.length ? `Not columns of the model: ${unknown.slice(0, 5).join(", ")}` : "",
      );
      this.app.store.commit({ picked: null, row: { ...this.app.store.state.row, ...row } });
      announce("The row was read");
    } catch (error) {
      this.problem.textContent = shown(error.message);
    }
  }

  search() {
    const wanted = this.wanted.valueAsNumber;
    if (!Number.isFinite(wanted)) {
      this.answers.replaceChildren(el("p", { class: "note" }, "Type the prediction that you want."));
      return;
    }
    const { row, cls } = this.app.store.state;
    this.answers.replaceChildren(el("p", { class: "note" }, "Searching…"));
    this.app.client.latest("counterfactual", "counterfactual", [row, wanted, null, cls], (found) =>
      this.showAnswers(found, wanted),
    );
  }

  showAnswers(found, wanted) {
    if (!found.length) {
      this.answers.replaceChildren(
        el(
          "p",
          { class: "note" },
          `No change of one or two columns within the range of the data reaches ${number(wanted)}.`,
        ),
      );
      return;
    }
    const { row } = this.app.store.state;
    const rows = found.map((one) => {
      const text = Object.entries(one.changes).map(([name, value]) =>
        el(
          "div",
          {},
          named(name, 30),
          `: ${valueText(this.app.column(name), row[name])} → ${valueText(this.app.column(name), value)}`,
        ),
      );
      return [
        el("div", {}, text),
        number(one.prediction),
        el(
          "button",
          {
            type: "button",
            on: {
              click: () => this.app.setValues(one.changes, true),
            },
          },
          "apply",
        ),
      ];
    });
    this.answers.replaceChildren(
      el(
        "div",
        {
          class: "scroll",
          tabindex: "0",
          role: "region",
          "aria-label": "Changes that reach the wanted prediction",
        },
        makeTable(["change", this.app.about.prediction_short, ""], rows),
      ),
    );
  }

  update(state, moving) {
    if (document.activeElement !== this.number) this.number.value = state.picked === null ? "" : state.picked + 1;
    this.app.client.latest("shapley", "why", [state.row, state.cls], (found) => this.draw(state, found));
    if (!moving) this.drawChanges(state);
  }

  draw(state, found) {
    const label = (name) => {
      const column = this.app.column(name);
      return column ? `${name} = ${valueText(column, state.row[name])}` : name;
    };
    const { unit_scale: scale, unit_zero: zero } = this.app.about;
    const values = Object.fromEntries(Object.entries(found.values).map(([name, value]) => [name, scale * value]));
    const base = zero + scale * found.base;
    const { bars, end, rows } = waterfall(base, values, MAX_BARS, label);
    const levels = [
      { name: "average of the rows", from: base, to: base, class: "total", text: number(base, 3) },
      ...bars,
      { name: `this row`, from: end, to: end, class: "total", text: number(end, 3) },
    ];
    this.card.show({
      bars: levels,
      waterfall: true,
      title: `exact Shapley values, ${this.app.about.score_unit}`,
      reading: `${this.app.about.prediction_short} ${number(found.prediction)}`,
      xTitle: this.app.about.score_unit,
      table: {
        columns: ["column", "Shapley value"],
        rows: [["average of the rows", base], ...rows, ["this row", end]],
      },
    });
  }

  drawChanges(state) {
    const from = state.picked === null ? null : this.app.rows.row(state.picked);
    const differing = from
      ? this.app.columns.filter(
          (column) => JSON.stringify(from[column.name]) !== JSON.stringify(state.row[column.name]),
        )
      : [];
    const actual =
      from && this.app.rows.target
        ? el(
            "p",
            {},
            `${this.app.rows.targetName} of this row: `,
            named(this.app.targetText(this.app.rows.target[state.picked])),
          )
        : null;
    const title = el("h3", {}, from ? `Row ${count(state.picked + 1)}` : "A segment that is not a row of the data");
    if (!differing.length) {
      this.changed.replaceChildren(
        title,
        ...(actual ? [actual] : []),
        el(
          "p",
          { class: "note" },
          from ? "As in the data. Move a slider to see what would change." : "Pick a row, or paste one.",
        ),
      );
      return;
    }
    this.app.client.latest("before", "judge", [from, state.cls], (before) => {
      const rows = differing.map((column) => [
        named(column.name, 30),
        valueText(column, from[column.name]),
        valueText(column, state.row[column.name]),
      ]);
      this.app.client.latest("after", "judge", [state.row, state.cls], (after) =>
        this.changed.replaceChildren(
          title,
          ...(actual ? [actual] : []),
          makeTable(["changed", "was", "is"], rows),
          el(
            "p",
            {},
            `${this.app.about.prediction_short}: ${number(before.prediction)} → ${number(after.prediction)} (${signed(after.prediction - before.prediction)})`,
          ),
          el(
            "div",
            { class: "buttons" },
            el(
              "button",
              {
                type: "button",
                on: {
                  click: () => this.pick(state.picked),
                },
              },
              "as in the data",
            ),
          ),
        ),
      );
    });
  }
}
