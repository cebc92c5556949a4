// The model in the page: the same scores as `fitted.scores`, and curves, surfaces and explanations from them.

import { Axis, Segment } from "./curves.js";
import { CrossField } from "./encode/crosses.js";
import { ListField, NamesField, NumberField, Terms } from "./encode/fields.js";
import { Formula, Units } from "./formula.js";
import { Search } from "./explain/counterfactual.js";
import { predictions } from "./links.js";
import { Ranking } from "./ranking.js";
import { Rows, unitPosition } from "./rows.js";
import { Shapley } from "./explain/shapley.js";
import { barsOf, basisOf, extremaOf, spreadOf, surfaceOf } from "./views.js";

const ENCODERS = { number: NumberField, names: NamesField, lists: ListField, cross: CrossField };
const KINDS = { number: "numerical", names: "categorical", lists: "multivalued", cross: "cross" };

/**
 * A fitted model. A row is an object with a value for every column: a number, a name, a list of names, or null.
 */
export class Model {
  /**
   * @param {object} payload JSON of `make_payload`
   * @param {Object<string, Float32Array|Float64Array|Int32Array>} buffers
   */
  constructor(payload, buffers) {
    this.payload = payload;
    this.buffers = buffers;
    this.loss = payload.loss;
    this.link = payload.loss.link;
    this.outputs = payload.model.outputs;
    this.classes = this.outputs > 1 ? payload.loss.classes : null;
    this.columns = payload.columns;
    this.fields = payload.fields.map((plan) => ({
      name: plan.name,
      kind: KINDS[plan.kind],
      columns: plan.sources.map((source) => payload.columns[source].name),
      sources: plan.sources,
      first: plan.first,
      features: plan.features,
      encoder: new ENCODERS[plan.kind](plan, buffers),
    }));
    this.formulas = Array.from({ length: this.outputs }, (_, c) => new Formula(payload.model, buffers, c));
    this.numbers = new Map(payload.columns.map((column, i) => [column.name, i]));
    this.axes = payload.columns.map((column, i) =>
      column.kind === "numerical" ? new Axis(column, i, this.fields, buffers) : null,
    );
    // Sources of the same values: several fields may read one column.
    this.alike = payload.columns.map((column, i) => {
      const same = (other) => other.column === column.column && (other.part ?? null) === (column.part ?? null);
      return payload.columns.map((other, j) => (same(other) ? j : -1)).filter((j) => j >= 0);
    });
    this.terms = new Terms();
    this.kept = new Map(); // see `remembered`
    this.explanations = new Map();
    this.rows = new Rows(payload.rows, buffers);
    const { items } = payload;
    this.ranking = items ? new Ranking(this, new Rows(items, buffers), items.ids) : null;
  }

  /** @returns {Model} */
  static from(payload, buffers) {
    return new Model(payload, buffers);
  }

  /** The number of a column. */
  source(name) {
    const source = this.numbers.get(name);
    if (source === undefined) throw new Error(`the model has no column ${JSON.stringify(name)}`);
    return source;
  }

  /** The values of a row, in the order of the columns. */
  values(row) {
    return this.columns.map((column) => row[column.name] ?? null);
  }

  /** The fields that read some sources. */
  readersOf(sources) {
    return this.remembered(`readers ${sources}`, () => {
      const wanted = new Set(sources);
      return this.fields.map((_, f) => f).filter((f) => this.fields[f].sources.some((source) => wanted.has(source)));
    });
  }

  /** Adds the terms of a field. */
  encodeField(f, values, terms) {
    const { sources, encoder, columns } = this.fields[f];
    try {
      const own = encoder instanceof CrossField ? sources.map((source) => values[source]) : values[sources[0]];
      encoder.encode(own, f, terms);
    } catch (error) {
      throw new Error(`${columns.join(" × ")}: ${error.message}`);
    }
  }

  /** The terms of all fields but some. */
  encode(values, without = null) {
    this.terms.clear();
    for (let f = 0; f < this.fields.length; ++f) if (!without?.has(f)) this.encodeField(f, values, this.terms);
    return this.terms;
  }

  /** The units of a row, without some fields. */
  unitsOf(values, output, without = null) {
    return this.formulas[output].addUnits(this.encode(values, without), new Units(this.formulas[output].width));
  }

  /** The units of a row and its score, for segments of several columns. */
  whole(values, output) {
    const units = this.unitsOf(values, output);
    return { units, score: this.formulas[output].score(units) };
  }

  /** The scores of a row: one, or one for each class. */
  score(row) {
    return this.scoresOf(1, () => this.values(row));
  }

  /** The predictions of a row, as `fitted.predict`: one, or the probability of each class. */
  predict(row) {
    return predictions(this.loss, this.score(row), this.outputs);
  }

  /** The predictions for values in the order of the columns. */
  predictValues(values) {
    return predictions(
      this.loss,
      this.scoresOf(1, () => values),
      this.outputs,
    );
  }

  /**
   * Scores of many rows, `outputs` numbers for each.
   * @param {object[]|Object<string, Array>|null} rows objects, or arrays by column; the rows of the page by default
   * @returns {Float64Array}
   */
  scores(rows = null) {
    if (rows === null) return this.remembered("scores", () => this.scoresOf(this.rows.n, (i) => this.rows.values(i)));
    if (Array.isArray(rows)) return this.scoresOf(rows.length, (i) => this.values(rows[i]));
    const columns = this.columns.map(({ name }) => rows[name]);
    return this.scoresOf(columns[0].length, (i) => columns.map((column) => column[i] ?? null));
  }

  scoresOf(n, valuesOf) {
    const scores = new Float64Array(n * this.outputs);
    const units = new Units(this.payload.model.width);
    for (let i = 0; i < n; ++i) {
      const terms = this.encode(valuesOf(i));
      this.formulas.forEach((formula, c) => {
        units.n = 0;
        scores[i * this.outputs + c] = formula.score(formula.addUnits(terms, units));
      });
    }
    return scores;
  }

  /** Predictions of many rows; see `scores`. */
  predictions(rows = null) {
    return predictions(this.loss, this.scores(rows), this.outputs);
  }

  /** Row i of the data. */
  row(i) {
    return Object.fromEntries(this.rows.values(i).map((value, source) => [this.columns[source].name, value]));
  }

  /** What was computed before under a name. */
  remembered(name, make) {
    if (!this.kept.has(name)) this.kept.set(name, make());
    return this.kept.get(name);
  }

  /** T(z) of a numerical column for all rows of the data; NaN for special and missing values. */
  rowPositions(source) {
    return this.remembered(`positions ${source}`, () => {
      const positions = new Float64Array(this.rows.n);
      return positions.map((_, i) => unitPosition(this.axes[source], this.rows.value(source, i)));
    });
  }

  /**
   * Predictions of one output with other values of some sources, which all take the same one.
   * @param {Array} values
   * @param {number[]} sources
   * @param {Array} others
   * @param {number} cls
   */
  predictedAt(values, sources, others, cls) {
    const every = this.link === "softmax" ? this.formulas.map((_, c) => c) : [cls];
    const scores = every.map((c) => {
      const segment = new Segment(this, values, sources, c);
      return Float64Array.from(others, (value) => segment.at(...sources.map(() => value)));
    });
    return this.predicted(scores, every.indexOf(cls));
  }

  /** How many units vary along a segment. */
  unitsAlong(segment) {
    const counts = segment.free.map((f) => {
      const { encoder } = this.fields[f];
      return encoder.apart ? encoder.windows.reduce((sum, window) => sum + window.functions, 0) : 1;
    });
    return counts.reduce((sum, count) => sum + count, 0);
  }

  /** Scores at raw values of one column, the others fixed. */
  curve(row, column, xs, cls = 0) {
    return new Segment(this, this.values(row), [this.source(column)], cls).along(xs);
  }

  /**
   * The curves of all numerical columns, on grids that are evenly spaced in u and have all knots.
   * @param {object} row
   * @param {number} points of a grid, beside the knots
   * @param {number} cls
   * @param {string[]} [names] of columns; all numerical ones by default
   * @returns {Object<string, {x: Float64Array, u: Float64Array, score: Float64Array, prediction: Float64Array}>}
   */
  curves(row, points = 200, cls = 0, names = null) {
    const values = this.values(row);
    const every = this.link === "softmax" ? this.formulas.map((_, c) => c) : [cls];
    const whole = new Map(every.map((c) => [c, this.whole(values, c)]));
    const found = Object.create(null); // a column may be called __proto__
    this.axes.forEach((axis, source) => {
      const { name } = this.columns[source];
      if (!axis || (names && !names.includes(name))) return;
      const { x, u } = axis.grid(points);
      const scores = every.map((c) => new Segment(this, values, [source], c, whole.get(c)).along(x));
      const at = every.indexOf(cls);
      found[name] = { x, u, score: scores[at], prediction: this.predicted(scores, at) };
    });
    return found;
  }

  /** Predictions of one output, given the scores of each output that they take. */
  predicted(scores, position) {
    if (this.link !== "softmax") return predictions(this.loss, scores[position]);
    const n = scores[0].length;
    const flat = new Float64Array(n * scores.length);
    scores.forEach((own, c) =>
      own.forEach((score, i) => {
        flat[i * scores.length + c] = score;
      }),
    );
    return predictions(this.loss, flat, scores.length).filter((_, i) => i % scores.length === position);
  }

  /** The score over two columns: see `surfaceOf`. */
  surface(row, one, other, nx = 40, ny = 40, cls = 0) {
    return surfaceOf(this, this.values(row), [this.source(one), this.source(other)], [nx, ny], cls);
  }

  /** The score of each category of a column: see `barsOf`. */
  bars(row, column, cls = 0, most = Infinity) {
    return barsOf(this, this.values(row), this.source(column), cls, most);
  }

  /** Local extrema along a numerical column: see `extremaOf`. */
  extrema(row, column, cls = 0) {
    return extremaOf(this, this.values(row), this.source(column), cls);
  }

  /** Quantiles of the curves of similar rows of the data: see `spreadOf`. */
  spread(row, column, points = 60, cls = 0, most = 50) {
    return spreadOf(this, this.values(row), this.source(column), points, cls, most);
  }

  /** T and the functions of the basis along a numerical column: see `basisOf`. */
  basis(column, points = 200) {
    return basisOf(this, this.source(column), points);
  }

  /**
   * Exact Shapley values of a row, equal to `sf.shapley_values` with the background of the page.
   * @returns {{base: number, values: Object<string, number>}}
   */
  shapley(row, cls = 0) {
    if (!this.explanations.has(cls)) this.explanations.set(cls, new Shapley(this, cls));
    return this.explanations.get(cls).of(this.values(row));
  }

  /**
   * The smallest changes of one column that reach a wanted prediction; of two, if no single one does.
   * @param {object} row
   * @param {number} wanted prediction
   * @param {string[]|null} columns that may change; all by default
   * @param {number} cls
   * @returns {{changes: Object<string, number|string>, cost: number, prediction: number}[]} the smallest first
   */
  counterfactual(row, wanted, columns = null, cls = 0) {
    const search = new Search(this, this.values(row), wanted, cls);
    const sources = (columns ?? this.columns.map(({ name }) => name)).map((name) => this.source(name));
    if (search.isReached(search.current)) return [];
    const single = search.single(sources);
    return single.length ? single : search.pairs(sources);
  }

  /** How much fields, pairs and crosses matter, as measured by Python; null where the model has no such measure. */
  importance(cls = 0) {
    const { explain } = this.payload;
    return explain.reason ? null : explain.outputs[cls].importance;
  }

  /** The best items for a context: a row, of which the columns of items are ignored. */
  rank(row, count = 10, cls = 0) {
    if (!this.ranking) throw new Error("the page has no items to rank");
    return this.ranking.top(this.values(row), count, cls);
  }

  /** Columns whose value is a name that the page does not know: unseen, or left out of a large model (see `cut`). */
  unknown(row) {
    return this.columns
      .filter((column) => column.field !== null && column.kind === "categorical" && (row[column.name] ?? null) !== null)
      .filter((column) => this.fields[column.field].encoder.position(String(row[column.name])) < 0)
      .map(({ name }) => name);
  }
}
