// Crosses: the products of the features of several columns.
//
// Names choose a cell: a combination of their features that is kept, or a bucket of a hash. A cell has `block`
// features, the products of the functions of the numbers: for every resolution all combinations, the last number's next
// to each other. A row without a cell, and one with a special or missing number, has none: its vector is zero.

import { NamesField, NumberField } from "./fields.js";

/** Combinations of features, with a table that finds them. */
class Cells {
  constructor(cells, parts) {
    this.parts = parts;
    this.sizes = new Array(parts).fill(0);
    const n = cells.length / parts;
    for (let i = 0; i < cells.length; ++i) this.sizes[i % parts] = Math.max(this.sizes[i % parts], cells[i] + 1);
    this.exact = this.sizes.reduce((product, size) => product * size, 1) < 2 ** 53;
    this.places = new Map();
    for (let i = 0; i < n; ++i) this.places.set(this.key(cells.subarray(i * parts, (i + 1) * parts)), i);
  }

  key(features) {
    if (!this.exact) return Array.prototype.join.call(features, ",");
    let key = 0;
    for (let p = 0; p < this.parts; ++p) key = key * this.sizes[p] + features[p];
    return key;
  }

  find(features) {
    for (let p = 0; p < this.parts; ++p) if (features[p] >= this.sizes[p]) return -1;
    return this.places.get(this.key(features)) ?? -1;
  }
}

/** A bucket for every combination: ((f_0 + 1) m_0 + (f_1 + 1) m_1 + ..) modulo a prime, modulo their number. */
class Buckets {
  constructor(n, multipliers, prime) {
    this.n = BigInt(n);
    this.multipliers = multipliers.map(BigInt);
    this.prime = BigInt(prime);
  }

  find(features) {
    let total = 0n;
    this.multipliers.forEach((multiplier, p) => {
      total = (total + (BigInt(features[p]) + 1n) * multiplier) % this.prime;
    });
    return Number(total % this.n);
  }
}

/** Collects the functions of one number. */
export class Functions {
  constructor() {
    this.features = [];
    this.weights = [];
  }

  add(feature, weight) {
    this.features.push(feature);
    this.weights.push(weight);
  }
}

/** A field whose features are products of the features of its parts. */
export class CrossField {
  constructor(plan, buffers) {
    this.first = plan.first;
    this.block = plan.block;
    this.sizes = plan.sizes;
    this.sources = plan.parts.map((part) => part.source);
    const kinds = { number: NumberField, names: NamesField };
    this.parts = plan.parts.map((part) => new kinds[part.kind](part, buffers));
    this.names = this.parts.map((_, i) => i).filter((i) => this.parts[i] instanceof NamesField);
    this.numbers = this.parts.map((_, i) => i).filter((i) => this.parts[i] instanceof NumberField);
    this.cells = null;
    if (plan.buckets) this.cells = new Buckets(plan.buckets, plan.multipliers, plan.prime);
    else if (this.names.length) this.cells = new Cells(buffers[plan.cells], this.names.length);
  }

  /**
   * Where the value of a part is, so that parts of different rows can be put together: the feature of a name, -1 if it
   * is unseen; the number itself, NaN if it is special or missing.
   */
  place(i, value) {
    const part = this.parts[i];
    if (part instanceof NamesField) return part.feature(value);
    const x = part.read(value);
    return part.token(x) < 0 ? x : NaN;
  }

  /** The cell of places, or -1 if the row has no features. */
  cell(places) {
    for (const i of this.numbers) if (Number.isNaN(places[i])) return -1;
    const features = this.names.map((i) => places[i]);
    if (features.some((feature) => feature < 0)) return -1;
    return this.cells ? this.cells.find(features) : 0;
  }

  /** Adds the terms at places. */
  addPlaces(places, terms) {
    const cell = this.cell(places);
    if (cell < 0) return;
    let base = this.first + cell * this.block;
    this.sizes.forEach((sizes, level) => {
      let features = [0];
      let weights = [1];
      let product = 1;
      this.numbers.forEach((i, number) => {
        const part = this.parts[i];
        const each = new Functions();
        part.windows[level].addTerms(part.position(places[i]), 0, each);
        const size = sizes[number];
        features = features.flatMap((feature) => each.features.map((other) => feature * size + other));
        weights = weights.flatMap((weight) => each.weights.map((other) => weight * other));
        product *= size;
      });
      features.forEach((feature, t) => terms.add(base + feature, weights[t]));
      base += product;
    });
  }

  /** Adds the terms of values, one for each part. */
  encode(values, field, terms) {
    this.addPlaces(
      values.map((value, i) => this.place(i, value)),
      terms,
    );
    terms.endUnit(field);
  }
}
