/** Importance: which columns, pairs and crosses move the score; each opens its view. */

import { el } from "../base/dom.js";
import { number } from "../base/format.js";
import { BarsCard } from "../charts/bars.js";

const MAX_BARS = 25;

export class ImportanceView {
  constructor(app) {
    this.app = app;
    this.grid = el("div", { class: "grid two" });
    this.root = el(
      "section",
      { "aria-labelledby": "importance-title" },
      el(
        "h2",
        {
          id: "importance-title",
          class: "visually-hidden",
        },
        "Importance",
      ),
      el(
        "p",
        { class: "lead" },
        `How far each column moves the ${app.about.score_short} from the average, up or down: the mean absolute Shapley value over the rows of this page. Choose a bar to open its curve, a pair to open its surface.`,
      ),
      this.grid,
    );
  }

  show(found) {
    if (!found?.fields?.length) {
      this.grid.replaceChildren(
        el(
          "p",
          { class: "empty" },
          this.app.payload.explain?.reason ?? "The importance of this model's columns is not known.",
        ),
      );
      return;
    }
    const scale = this.app.about.unit_scale;
    const cards = [
      this.bars(
        "Columns",
        "mean |Shapley value|",
        [...found.fields]
          .sort((a, b) => b.shapley - a.shapley)
          .map((one) => [one.name, scale * one.shapley, () => this.openColumn(one.name), scale * one.main]),
        ["column", "mean |Shapley value|", "main effect"],
      ),
    ];
    if (found.pairs?.length) {
      cards.push(
        this.bars(
          "Pairs of columns",
          "standard deviation of the joint effect",
          found.pairs.map((one) => [one.names.join(" × "), scale * one.value, () => this.openPair(one.names)]),
          ["pair", "pair effect"],
        ),
      );
    }
    const crosses = (found.crosses ?? []).filter((one) => one.value !== null);
    if (crosses.length)
      cards.push(
        this.bars(
          "Crosses",
          "standard deviation of the joint effect",
          crosses.map((one) => [
            one.name,
            scale * one.value,
            one.columns.length === 2 ? () => this.openPair(one.columns) : null,
          ]),
          ["cross", "joint effect"],
        ),
      );
    if (found.triples?.length)
      cards.push(
        this.bars(
          "Triples of columns",
          "standard deviation of the joint effect",
          found.triples.map((one) => [one.names.join(" × "), scale * one.value, null]),
          ["triple", "triple effect"],
        ),
      );
    this.grid.replaceChildren(...cards.map((card) => card.root));
  }

  bars(title, xTitle, rows, columns) {
    const card = new BarsCard(title);
    const bars = rows.slice(0, MAX_BARS).map(([name, value, open]) => ({
      name,
      from: 0,
      to: value,
      class: "line-0",
      text: number(value, 3),
      open,
    }));
    card.show({
      bars,
      title: xTitle + (rows.length > MAX_BARS ? `, the ${MAX_BARS} largest of ${rows.length}` : ""),
      xTitle: this.app.about.score_unit,
      table: {
        columns,
        rows: rows.map(([name, value, , other]) => [name, value, ...(other === undefined ? [] : [other])]),
      },
    });
    return card;
  }

  openColumn(name) {
    const column = this.app.column(name);
    if (column?.kind === "numerical") this.app.store.commit({ view: "segment", focus: name });
    else if (column)
      this.app.store.commit({
        view: "surface",
        surface: {
          ...this.app.store.state.surface,
          a: name,
          b:
            this.app.byImportance.find((one) => one.name !== name && one.kind === "numerical")?.name ??
            this.app.byImportance.find((one) => one.name !== name).name,
        },
      });
  }

  openPair([a, b]) {
    if (this.app.column(a) && this.app.column(b))
      this.app.store.commit({
        view: "surface",
        surface: {
          ...this.app.store.state.surface,
          a,
          b,
        },
      });
  }

  update(state) {
    if (this.cls === state.cls) return;
    this.cls = state.cls;
    this.app.client.latest("importance", "importance", [state.cls], (found) => this.show(found));
  }
}
