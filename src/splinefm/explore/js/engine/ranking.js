// The best items for a context: the columns of items vary, the columns of the context are fixed.

import { Terms } from "./encode/fields.js";
import { Rest, Units } from "./formula.js";

/** Ranks the items of the page. */
export class Ranking {
  constructor(model, items, ids) {
    Object.assign(this, { model, items, ids });
    this.sources = items.columns.map((_, source) => source).filter((source) => items.columns[source]);
    this.free = model.readersOf(this.sources);
    const inside = new Set(this.sources);
    // Crosses of an item's column with one of the context differ from context to context.
    this.fixed = this.free.filter((f) => model.fields[f].sources.every((source) => inside.has(source)));
    this.mixed = this.free.filter((f) => !this.fixed.includes(f));
    this.known = new Map();
  }

  /** The terms of some fields of all items, in one piece; `ends` says how many units belong to them. */
  encode(fields, values) {
    const terms = new Terms();
    const ends = new Int32Array(this.items.n);
    for (let i = 0; i < this.items.n; ++i) {
      const own = this.items.values(i, values);
      for (const f of fields) this.model.encodeField(f, own, terms);
      ends[i] = terms.units;
    }
    return { terms, ends };
  }

  /** The units of the items that do not depend on the context, for one score. */
  unitsOf(output) {
    if (!this.known.has(output)) {
      const { terms, ends } = this.encode(this.fixed, null);
      const formula = this.model.formulas[output];
      this.known.set(output, { units: formula.addUnits(terms, new Units(formula.width, terms.units || 1)), ends });
    }
    return this.known.get(output);
  }

  /** The score of every item for a context. */
  scores(values, output) {
    const formula = this.model.formulas[output];
    const free = new Set(this.free);
    const rest = new Rest(formula, this.model.unitsOf(values, output, free), free);
    const known = this.unitsOf(output);
    const more = this.mixed.length ? this.encode(this.mixed, values) : null;
    const mixed = more && { units: formula.addUnits(more.terms, new Units(formula.width)), ends: more.ends };
    const units = new Units(formula.width);
    return Float64Array.from({ length: this.items.n }, (_, i) => {
      units.n = 0;
      copyUnits(known, i, units);
      if (mixed) copyUnits(mixed, i, units);
      return rest.score(units);
    });
  }

  /**
   * The best items.
   * @returns {{id: string, item: number, score: number}[]}
   */
  top(values, count, output) {
    const scores = this.scores(values, output);
    const order = Array.from(scores.keys()).sort((i, j) => scores[j] - scores[i] || i - j);
    return order.slice(0, count).map((i) => ({ id: this.ids[i], item: i, score: scores[i] }));
  }
}

/** Appends the units of item i. */
function copyUnits({ units, ends }, i, to) {
  for (let u = i ? ends[i - 1] : 0; u < ends[i]; ++u) to.copy(units, u);
}
