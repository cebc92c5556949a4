/** Ranking: the best items of a catalog for the current context, and how they change as it moves. */

import { el, named, select } from "../base/dom.js";
import { number } from "../base/format.js";
import { BarsCard } from "../charts/bars.js";

export class RankingView {
  constructor(app) {
    this.app = app;
    this.root = el(
      "section",
      { "aria-labelledby": "ranking-title" },
      el(
        "h2",
        {
          id: "ranking-title",
          class: "visually-hidden",
        },
        "Ranking",
      ),
    );
    const { ranking } = app.about;
    if (!ranking) {
      this.root.append(
        el(
          "p",
          { class: "empty" },
          "No catalog was given: start with --index items.sfi, or with --items TABLE --ids COLUMN.",
        ),
      );
      return;
    }
    if (ranking.offline) {
      this.root.append(el("p", { class: "empty" }, ranking.offline));
      return;
    }
    this.k = select(
      "Items",
      [10, 20, 50].map((k) => [String(k), `the best ${k}`]),
      "20",
      (k) => app.store.commit({ k: Number(k) }),
    );
    this.text = el(
      "p",
      { class: "lead" },
      `${ranking.n.toLocaleString("en-US")} items, scored ${ranking.inPage ? "in this page" : "by the server"}. Columns of the context: `,
      named(ranking.context.join(", "), 200),
      ". Moves are compared with the ranking when this view was opened, or when you last set the baseline.",
    );
    this.card = new BarsCard("Best items");
    this.root.append(
      el(
        "div",
        { class: "toolbar" },
        this.k,
        el(
          "button",
          {
            type: "button",
            on: {
              click: () => {
                this.baseline = null;
                this.update(app.store.state);
              },
            },
          },
          "set the baseline",
        ),
      ),
      this.text,
      this.card.root,
    );
  }

  update(state) {
    if (!this.card) return;
    const { ranking } = this.app.about;
    this.k.querySelector("select").value = String(state.k);
    if (ranking.inPage)
      this.app.client.latest("rank", "bestItems", [state.row, state.k, state.cls], (found) => this.draw(found));
    else this.ask(Object.fromEntries(ranking.context.map((name) => [name, state.row[name] ?? null])), state.k);
  }

  /** Ask the server, for the newest context only. */
  async ask(context, k) {
    this.next = { context, k };
    if (this.asking) return;
    this.asking = true;
    while (this.next) {
      const body = JSON.stringify(this.next);
      this.next = null;
      try {
        const response = await fetch(this.app.about.ranking.address, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          body,
        });
        const found = await response.json();
        if (!response.ok) throw new Error(found.detail ?? response.statusText);
        this.draw(found);
      } catch (error) {
        this.app.fail(new Error(`The server does not rank: ${error.message}`));
        break;
      }
    }
    this.asking = false;
  }

  draw({ ids, predictions, scores }) {
    this.baseline ??= new Map(ids.map((id, i) => [String(id), i]));
    const moved = ids.map((id, i) => {
      const before = this.baseline.get(String(id));
      return before === undefined ? "new" : before === i ? "" : before > i ? `▲ ${before - i}` : `▼ ${i - before}`;
    });
    const low = Math.min(0, ...predictions);
    const bars = ids.map((id, i) => ({
      name: `${i + 1}. ${id}`,
      from: low,
      to: predictions[i],
      class: moved[i] === "new" ? "down" : "line-0",
      text: `${number(predictions[i], 3)} ${moved[i]}`,
    }));
    this.card.show({
      bars,
      title: this.app.predictionText(this.app.store.state),
      xTitle: this.app.about.prediction_short,
      table: {
        columns: ["rank", "id", "prediction", "score", "moved"],
        rows: ids.map((id, i) => [i + 1, String(id), predictions[i], scores[i], moved[i]]),
      },
    });
  }
}
