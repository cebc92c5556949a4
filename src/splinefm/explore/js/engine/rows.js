// Rows of the data, or items of a ranking, that the page has: columns of numbers and of codes of names.

/** Rows in columns. */
export class Rows {
  /**
   * @param {{n: number, columns: (object|null)[]}} plan of the payload
   * @param {Object<string, Float64Array|Int32Array>} buffers
   */
  constructor(plan, buffers) {
    this.n = plan.n;
    this.columns = plan.columns.map((column) => column && new Column(column, buffers));
  }

  /** The value of a source in row i. */
  value(source, i) {
    return this.columns[source].value(i);
  }

  /** The values of all sources in row i; those that rows do not have are taken from `others`. */
  values(i, others = null) {
    return this.columns.map((column, source) => (column ? column.value(i) : (others?.[source] ?? null)));
  }
}

class Column {
  constructor(plan, buffers) {
    this.kind = plan.kind;
    this.names = plan.names ?? null;
    this.codes = buffers[plan.kind === "numbers" ? plan.values : plan.codes];
    if (plan.kind !== "lists") return;
    this.lengths = buffers[plan.lengths];
    this.begins = new Int32Array(this.lengths.length + 1);
    this.lengths.forEach((length, i) => {
      this.begins[i + 1] = this.begins[i] + Math.max(0, length);
    });
  }

  value(i) {
    if (this.kind === "numbers") return Number.isNaN(this.codes[i]) ? null : this.codes[i];
    if (this.kind === "names") return this.codes[i] < 0 ? null : this.names[this.codes[i]];
    if (this.lengths[i] < 0) return null;
    return Array.from(this.codes.subarray(this.begins[i], this.begins[i + 1]), (code) => this.names[code]);
  }
}

/**
 * The rows that are most like a row: the most equal names and the closest numbers, in u, apart from some sources.
 * @param {object} model
 * @param {Array} values
 * @param {Set<number>} without
 * @param {number} most
 * @returns {number[]} numbers of rows, the most similar first
 */
export function similarRows(model, values, without, most) {
  const { rows, axes } = model;
  const likeness = new Float64Array(rows.n);
  rows.columns.forEach((column, source) => {
    if (without.has(source)) return;
    if (column.kind === "numbers") {
      const u = model.rowPositions(source);
      const own = unitPosition(axes[source], values[source]);
      for (let i = 0; i < rows.n; ++i) {
        const both = Number.isNaN(u[i]) || Number.isNaN(own);
        likeness[i] += both ? Number(Number.isNaN(u[i]) === Number.isNaN(own)) : 1 - Math.abs(u[i] - own);
      }
    } else if (column.kind === "names") {
      const code = values[source] === null ? -1 : column.names.indexOf(String(values[source]));
      for (let i = 0; i < rows.n; ++i) if (column.codes[i] === code) likeness[i] += 1;
    }
  });
  const order = Array.from(likeness.keys());
  return order.sort((i, j) => likeness[j] - likeness[i] || i - j).slice(0, most);
}

/** T(z) of an ordinary number; NaN for others. */
export function unitPosition(axis, value) {
  const [number] = axis.readers;
  const x = number.read(value);
  if (Number.isNaN(x) || number.rules.some((rule) => rule.holds(x))) return NaN;
  return axis.at(x);
}

/** Quantiles of each of several numbers over curves: for each level one array. */
export function quantilesOf(curves, levels) {
  const n = curves[0].length;
  const found = levels.map(() => new Float64Array(n));
  const column = new Float64Array(curves.length);
  for (let i = 0; i < n; ++i) {
    for (let j = 0; j < curves.length; ++j) column[j] = curves[j][i];
    column.sort();
    levels.forEach((level, l) => {
      const at = level * (curves.length - 1);
      const low = Math.floor(at);
      const high = Math.min(low + 1, curves.length - 1);
      found[l][i] = column[low] + (at - low) * (column[high] - column[low]);
    });
  }
  return found;
}
