// Units along a numerical column: p(z) = Σ_i B_i(T(z)) q_i, where the q_i do not depend on z.
//
// For the field of the column, q_i are the vectors of its basis functions. For a cross that contains the column, they
// are sums of its vectors over the functions of the other parts, whose values are fixed. B_i(T(z)) are the same for
// every segment, so they are computed once for the values of a grid.

import { CrossField, Functions } from "./encode/crosses.js";
import { NumberField } from "./encode/fields.js";

/** The functions of a number at each of some values, one after the other; tokens count as functions, too. */
class Encoded {
  /**
   * @param {NumberField} number
   * @param {Float64Array} xs
   * @param {number[]} firsts where the functions of each window begin in the table of vectors
   * @param {boolean} hasTokens whether tokens have vectors; they come first
   */
  constructor(number, xs, firsts, hasTokens) {
    const each = new Functions();
    this.ends = Int32Array.from(xs, (x) => {
      const token = number.token(x);
      if (token >= 0) {
        if (hasTokens) each.add(token, 1);
      } else {
        const u = number.position(x);
        number.windows.forEach((window, w) => window.addTerms(u, firsts[w], each));
      }
      return each.features.length;
    });
    this.features = Int32Array.from(each.features);
    this.weights = Float64Array.from(each.weights);
  }
}

const ENCODED = new WeakMap(); // values -> number -> functions

function encodedAt(number, xs, firsts, hasTokens) {
  if (!ENCODED.has(xs)) ENCODED.set(xs, new Map());
  const known = ENCODED.get(xs);
  if (!known.has(number)) known.set(number, new Encoded(number, xs, firsts, hasTokens));
  return known.get(number);
}

/** The unit of a field along a column. */
class Path {
  constructor(field, width, vectors, linear, number, firsts, hasTokens) {
    Object.assign(this, { field, width, vectors, linear, number, firsts, hasTokens });
  }

  /** Encodings of some values, from which `addUnit` makes units. */
  along(xs) {
    return encodedAt(this.number, xs, this.firsts, this.hasTokens);
  }

  /** Adds the unit at value i of those that were encoded. */
  addUnit(encoded, i, units) {
    const { width, vectors, linear } = this;
    const u = units.push(this.field);
    const at = u * width;
    const to = units.vectors;
    for (let t = i ? encoded.ends[i - 1] : 0; t < encoded.ends[i]; ++t) {
      const weight = encoded.weights[t];
      const from = encoded.features[t] * width;
      units.linear[u] += weight * linear[encoded.features[t]];
      for (let d = 0; d < width; ++d) to[at + d] += weight * vectors[from + d];
    }
  }
}

/**
 * The units of all fields that vary along a column, or null where one is not a sum of functions of it.
 * @param {object} model
 * @param {object} formula
 * @param {Array} values of all sources
 * @param {number} source
 * @param {number[]} free fields
 * @returns {Path[]|null}
 */
export function pathsAlong(model, formula, values, source, free) {
  const paths = [];
  for (const f of free) {
    const isCross = model.fields[f].encoder instanceof CrossField;
    const path = isCross ? crossPath(model, formula, values, source, f) : fieldPath(model, formula, f);
    if (!path) return null;
    paths.push(path);
  }
  return paths;
}

function fieldPath(model, formula, f) {
  const { encoder, first, features } = model.fields[f];
  if (!(encoder instanceof NumberField) || encoder.apart) return null;
  const { width } = formula;
  const vectors = formula.factors.subarray(first * width, (first + features) * width);
  const firsts = encoder.windows.map(() => encoder.tokens);
  return new Path(f, width, vectors, formula.linear.subarray(first, first + features), encoder, firsts, true);
}

function crossPath(model, formula, values, source, f) {
  const { encoder, sources } = model.fields[f];
  const along = sources.map((_, i) => i).filter((i) => sources[i] === source);
  if (along.length > 1 || !encoder.numbers.includes(along[0])) return null;
  const [part] = along;
  const number = encoder.parts[part];
  const position = encoder.numbers.indexOf(part);
  const counts = encoder.sizes.map((sizes) => sizes[position]);
  const firsts = counts.map((_, level) => counts.slice(0, level).reduce((sum, count) => sum + count, 0));
  const n = firsts[firsts.length - 1] + counts[counts.length - 1];
  const { width } = formula;
  const path = new Path(f, width, new Float64Array(n * width), new Float64Array(n), number, firsts, false);
  const places = sources.map((other, i) => (i === part ? 0 : encoder.place(i, values[other])));
  const cell = encoder.cell(places);
  if (cell >= 0) sumOthers(encoder, formula, places, part, cell, path);
  return path;
}

/** q_i: the vectors of a cell, summed over the functions of the other numbers. */
function sumOthers(encoder, formula, places, part, cell, path) {
  const { factors, linear, width } = formula;
  let base = encoder.first + cell * encoder.block;
  encoder.sizes.forEach((sizes, level) => {
    // Distances of features from one function of a number to the next.
    const strides = sizes.map((_, number) => sizes.slice(number + 1).reduce((product, size) => product * size, 1));
    let [offsets, weights, stride] = [[0], [1], 1];
    encoder.numbers.forEach((i, number) => {
      if (i === part) {
        stride = strides[number];
        return;
      }
      const each = new Functions();
      encoder.parts[i].windows[level].addTerms(encoder.parts[i].position(places[i]), 0, each);
      offsets = offsets.flatMap((offset) => each.features.map((feature) => offset + feature * strides[number]));
      weights = weights.flatMap((weight) => each.weights.map((other) => weight * other));
    });
    const count = sizes[encoder.numbers.indexOf(part)];
    for (let i = 0; i < count; ++i) {
      const row = path.firsts[level] + i;
      for (let t = 0; t < offsets.length; ++t) {
        const feature = base + i * stride + offsets[t];
        path.linear[row] += weights[t] * linear[feature];
        for (let d = 0; d < width; ++d) path.vectors[row * width + d] += weights[t] * factors[feature * width + d];
      }
    }
    base += sizes.reduce((product, size) => product * size, 1);
  });
}
