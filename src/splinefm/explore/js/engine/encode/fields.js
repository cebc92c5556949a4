// Fields: from the raw values of a row to the features of its units, and their weights.

import { BasisWindow, Rule, Transform } from "./numbers.js";
import { canonicalName, hashBucket, nameOf } from "./names.js";

const NO_FEATURE = -1;

/** Features and weights of the units of a row, in arrays that grow and are used again. */
export class Terms {
  constructor() {
    this.features = new Int32Array(256);
    this.weights = new Float64Array(256);
    this.ends = new Int32Array(64);
    this.fields = new Int32Array(64);
    this.clear();
  }

  clear() {
    this.n = 0;
    this.units = 0;
  }

  add(feature, weight) {
    if (this.n === this.features.length) {
      this.features = grown(this.features);
      this.weights = grown(this.weights);
    }
    this.features[this.n] = feature;
    this.weights[this.n++] = weight;
  }

  /** Ends a unit of a field: the terms since the last end are summed into one vector. */
  endUnit(field) {
    if (this.units === this.ends.length) {
      this.ends = grown(this.ends);
      this.fields = grown(this.fields);
    }
    this.ends[this.units] = this.n;
    this.fields[this.units++] = field;
  }

  /** The first term of a unit. */
  begin(unit) {
    return unit ? this.ends[unit - 1] : 0;
  }
}

function grown(array) {
  const longer = new array.constructor(2 * array.length);
  longer.set(array);
  return longer;
}

/** Numbers: special values and missing ones have a feature each, the others the functions of a basis at T(z). */
export class NumberField {
  constructor(plan, buffers) {
    Object.assign(this, { first: plan.first, tokens: plan.tokens, missing: plan.missing, apart: plan.apart });
    this.outside = plan.outside ?? "clip";
    this.limits = plan.limits ?? [-Infinity, Infinity];
    this.rules = plan.rules.map((rule) => new Rule(rule));
    this.transform = plan.knots === null ? null : new Transform(buffers[plan.knots], buffers[plan.values], plan.powers);
    this.windows = plan.windows.map((window) => new BasisWindow(window, buffers));
  }

  /** The number that a value stands for; NaN if it is missing. */
  read(value) {
    if (typeof value === "number") return value;
    if (value === null || value === undefined) return NaN;
    if (typeof value === "boolean") return Number(value);
    const text = String(value).trim();
    const number = text === "" ? NaN : Number(text);
    if (Number.isNaN(number)) throw new Error(`${JSON.stringify(value)} is not a number`);
    return number;
  }

  /** The token of a number, or -1 if it is ordinary. */
  token(x) {
    for (let i = 0; i < this.rules.length; ++i) if (this.rules[i].holds(x)) return i;
    if (Number.isNaN(x)) {
      if (this.missing === null) throw new Error("missing values are not allowed in this column");
      return this.missing;
    }
    if (!Number.isFinite(x)) throw new Error(`the model does not take ${x}`);
    const [low, high] = this.limits;
    if (x >= low && x <= high) return NO_FEATURE;
    if (this.outside === "error") throw new Error(`${x} is beyond the range in training, ${low} to ${high}`);
    return this.missing;
  }

  /** u = T(z); steps take z itself. */
  position(x) {
    return this.transform ? this.transform.at(x) : x;
  }

  /** Adds the terms of an ordinary number. */
  addWindows(x, terms) {
    const u = this.position(x);
    for (const window of this.windows) window.addTerms(u, this.first + this.tokens, terms);
  }

  encode(value, field, terms) {
    const x = this.read(value);
    const token = this.token(x);
    const begin = terms.n;
    if (token !== NO_FEATURE) terms.add(this.first + token, 1);
    else this.addWindows(x, terms);
    if (!this.apart) {
      terms.endUnit(field);
      return;
    }
    // Identity reduction: a unit for each active function.
    const end = terms.n;
    for (let i = begin; i < end; ++i) {
      terms.n = i + 1;
      terms.endUnit(field);
    }
  }
}

/** Names: each category has a feature. */
export class NamesField {
  constructor(plan) {
    const { first, unseen, first_unseen, buckets, tokens, missing, spelling, names } = plan;
    Object.assign(this, { first, unseen, firstUnseen: first_unseen, buckets, tokens, missing, spelling });
    this.places = new Map(names.map((name, i) => [name, i]));
    this.known = new Map();
  }

  /** The position of a name in the vocabulary, in any spelling; -1 if it is not there. */
  position(name) {
    const at = this.places.get(name);
    if (at !== undefined || this.spelling === "text") return at ?? NO_FEATURE;
    return this.places.get(canonicalName(name, this.spelling)) ?? NO_FEATURE;
  }

  /** The feature of a value, inside the field; -1 if it has none. */
  feature(value) {
    if (value === null || value === undefined || Number.isNaN(value)) {
      if (this.missing === null) throw new Error("missing values are not allowed in this column");
      return this.missing;
    }
    return this.featureOfName(nameOf(value));
  }

  featureOfName(name) {
    let feature = this.known.get(name);
    if (feature === undefined) {
      const at = this.position(name);
      feature = at >= 0 ? this.tokens + at : this.unseenFeature(name);
      this.known.set(name, feature);
    }
    return feature;
  }

  unseenFeature(name) {
    if (this.unseen === "rare") return this.firstUnseen;
    if (this.unseen === "neutral") return NO_FEATURE;
    if (this.unseen === "hash") return this.firstUnseen + hashBucket(canonicalName(name, this.spelling), this.buckets);
    throw new Error(`${JSON.stringify(name)} is not a category of this column`);
  }

  encode(value, field, terms) {
    const feature = this.feature(value);
    if (feature >= 0) terms.add(this.first + feature, 1);
    terms.endUnit(field);
  }
}

/** Lists of names, summed or averaged; with the identity reduction each element is a unit. */
export class ListField {
  constructor(plan) {
    this.elements = new NamesField(plan);
    Object.assign(this, { first: plan.first, length: plan.length, averages: plan.averages, apart: plan.apart });
    this.separator = plan.separator;
  }

  /** The elements of a value that count; null if it is missing. */
  read(value) {
    if (value === null || value === undefined) return null;
    let names = value;
    if (typeof value === "string") {
      if (this.separator === null) throw new Error(`give a list of names instead of ${JSON.stringify(value)}`);
      names = value.split(this.separator);
    }
    names = names.filter((name) => name !== null && name !== undefined).map(nameOf);
    if (this.separator !== null) names = names.map((name) => name.trim());
    return names.filter((name) => name !== "").slice(0, this.length);
  }

  encode(value, field, terms) {
    const names = this.read(value);
    if (names === null) {
      const feature = this.elements.feature(null);
      terms.add(this.first + feature, 1);
      terms.endUnit(field);
      return;
    }
    const share = this.averages ? 1 / Math.max(1, names.length) : 1;
    for (const name of names) {
      const feature = this.elements.featureOfName(name);
      if (feature >= 0) terms.add(this.first + feature, share);
      if (this.apart) terms.endUnit(field);
    }
    if (!this.apart) terms.endUnit(field);
  }
}
