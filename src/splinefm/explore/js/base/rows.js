/** The sampled rows on the page's side: for pickers, densities, typical values and the quality view. */

import { axisOf, evenValues } from "./format.js";

const BINS = 48;
const SKEWED = 0.1;

export class Rows {
  /** @param {object[]} columns  @param {object} data `rows` of the payload  @param {object} buffers */
  constructor(columns, data, buffers) {
    [this.columns, this.n] = [columns, data.n];
    this.values = columns.map((column, i) => (data.columns[i] ? readColumn(data.columns[i], buffers, data.n) : null));
    this.target = data.target ? buffers[data.target] : null;
    this.weight = data.weight ? buffers[data.weight] : null;
    this.targetName = data.target_name ?? null;
  }

  /** Row i as an object. */
  row(i) {
    return Object.fromEntries(this.columns.map((column, c) => [column.name, this.values[c]?.[i] ?? null]));
  }

  /** Values of a column. */
  of(name) {
    return this.values[this.columns.findIndex((column) => column.name === name)];
  }

  /** Medians of numbers and the most frequent categories. */
  typical() {
    return Object.fromEntries(
      this.columns.map((column, c) => [column.name, this.typicalValue(column, this.values[c] ?? [])]),
    );
  }

  typicalValue(column, values) {
    const known = values.filter((value) => value !== null);
    if (!known.length) return null;
    if (column.kind === "numerical") {
      const middle = d3.median(known);
      return column.integers ? Math.round(middle) : Number(middle.toPrecision(4));
    }
    const counts = new Map();
    for (const value of known) counts.set(JSON.stringify(value), (counts.get(JSON.stringify(value)) ?? 0) + 1);
    return JSON.parse([...counts].reduce((best, one) => (one[1] > best[1] ? one : best))[0]);
  }

  /**
   * Where the rows are along a numerical column: bars with heights up to 1, the range of the axis, and whether most rows
   * are near one of its ends. An even axis gives each part of u the same width, and shows all values.
   */
  density(column, even = false) {
    const values = (this.of(column.name) ?? [])
      .filter((value) => value !== null && Number.isFinite(value))
      .sort(d3.ascending);
    if (!values.length) return { bars: [], domain: [column.low, column.high], skewed: false };
    const axis = axisOf(column);
    const domain = even ? [values[0], values[values.length - 1]] : shownRange(values, column);
    const middle = (d3.quantile(values, 0.5) - domain[0]) / (domain[1] - domain[0] || 1);
    const whole = !even && column.integers && domain[1] - domain[0] <= 3 * BINS;
    const edges = even
      ? evenValues(axis, domain, BINS + 1)
      : whole
        ? d3.range(Math.floor(domain[0]) - 0.5, Math.ceil(domain[1]) + 1)
        : d3.range(BINS + 1).map((i) => domain[0] + (i / BINS) * (domain[1] - domain[0]));
    const counts = new Float64Array(edges.length - 1);
    for (const value of values) {
      const bin = d3.bisectRight(edges, value) - 1;
      if (value === edges[edges.length - 1]) counts[counts.length - 1] += 1;
      else if (bin >= 0 && bin < counts.length) counts[bin] += 1;
    }
    const top = d3.max(counts) || 1;
    const bars = [...counts]
      .map((rows, i) => [edges[i], edges[i + 1], Math.sqrt(rows / top), rows])
      .filter((bar) => bar[3] > 0);
    return { bars, domain, even, skewed: middle < SKEWED || middle > 1 - SKEWED };
  }
}

/** The range of an axis: all values, or all but the outermost if these would take most of it. */
function shownRange(values, column) {
  const [low, high] = [values[0], values[values.length - 1]];
  const [near, far] = [d3.quantile(values, 0.005), d3.quantile(values, 0.995)];
  const pad = (a, b) => (b > a ? [a, b] : [a - 0.5, b + 0.5]);
  if (column.part) return pad(column.low ?? low, column.high ?? high);
  return far > near && high - low > 2 * (far - near) ? [near, far] : pad(low, high);
}

function readColumn(described, buffers, n) {
  if (described.kind === "numbers")
    return Array.from(buffers[described.values], (value) => (Number.isNaN(value) ? null : value));
  const codes = buffers[described.codes];
  if (described.kind === "names") return Array.from(codes, (code) => (code < 0 ? null : described.names[code]));
  const lengths = buffers[described.lengths];
  const lists = [];
  let at = 0;
  for (let i = 0; i < n; i += 1) {
    const size = Math.max(0, lengths[i]);
    lists.push(lengths[i] < 0 ? null : Array.from(codes.subarray(at, at + size), (code) => described.names[code]));
    at += size;
  }
  return lists;
}
