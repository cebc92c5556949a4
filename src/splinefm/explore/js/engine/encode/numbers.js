// Numbers of a column: u = T(z), the functions of a basis at u, and the way back.
//
// T is linear or a cubic in each piece between its knots and constant beyond them. In each segment of u, the functions
// of a window that are not zero are polynomials of the position inside the segment, from -1 to 1. This is the
// description that the compiled scorer reads, too: see `describe_numerical` of splinefm.encode.fields.numerical.

/** How many of the first `n` increasing numbers after `from` are at most x. */
export function countAtMost(x, numbers, from, n) {
  let low = 0;
  while (n > 0) {
    const half = n >> 1;
    if (numbers[from + low + half] <= x) {
      low += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return low;
}

/** A monotone function of raw values in pieces of polynomials: u = T(z). */
export class Transform {
  /**
   * @param {Float64Array} knots increasing, one more than there are pieces
   * @param {Float64Array} values at the knots (powers = 1), or four coefficients for each piece, the lowest first
   * @param {number} powers 1 or 4
   */
  constructor(knots, values, powers) {
    this.knots = knots;
    this.values = values;
    this.powers = powers;
  }

  /** u = T(z), constant beyond the knots. */
  at(z) {
    const { knots } = this;
    const n = knots.length - 1;
    const x = Math.min(Math.max(z, knots[0]), knots[n]);
    const piece = countAtMost(x, knots, 1, n - 1);
    return this.inPiece(piece, (x - knots[piece]) / (knots[piece + 1] - knots[piece]));
  }

  /** The value at the position t, from 0 to 1, inside a piece. */
  inPiece(piece, t) {
    const { values, powers } = this;
    if (powers === 1) return values[piece] + t * (values[piece + 1] - values[piece]);
    const c = 4 * piece;
    return values[c] + t * (values[c + 1] + t * (values[c + 2] + t * values[c + 3]));
  }

  /** A raw value z with T(z) = u: by bisection of the pieces, then inside of one. */
  inverse(u) {
    const { knots } = this;
    let low = 0;
    let high = knots.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.inPiece(middle, 0) <= u) low = middle;
      else high = middle;
    }
    const width = knots[low + 1] - knots[low];
    const first = this.inPiece(low, 0);
    const last = this.inPiece(low, 1);
    if (u <= first) return knots[low];
    if (u >= last) return knots[low + 1];
    if (this.powers === 1) return knots[low] + (width * (u - first)) / (last - first);
    let a = 0;
    let b = 1;
    for (let i = 0; i < 60; ++i) {
      const t = (a + b) / 2;
      if (this.inPiece(low, t) < u) a = t;
      else b = t;
    }
    return knots[low] + (width * (a + b)) / 2;
  }
}

/** Neighboring functions of a basis that are not zero in a segment. */
export class BasisWindow {
  /**
   * @param {object} plan of the payload
   * @param {Object<string, Float64Array>} buffers
   */
  constructor(plan, buffers) {
    this.segments = plan.segments;
    this.edges = plan.edges === null ? null : buffers[plan.edges];
    this.coefficients = buffers[plan.coefficients];
    this.alike = plan.alike;
    this.functions = plan.functions;
    this.degree = plan.degree;
    this.start = plan.start;
    this.moves = plan.moves;
    this.around = plan.around;
  }

  /** The borders of the segments. */
  breaks() {
    if (this.edges) return Array.from(this.edges);
    return Array.from({ length: this.segments + 1 }, (_, i) => i / this.segments);
  }

  /**
   * Adds the functions at u, and their weights, to terms; functions count from `first`.
   * @param {number} u
   * @param {number} first
   * @param {{add: function(number, number): void}} terms
   */
  addTerms(u, first, terms) {
    const { segments, edges, functions, degree, coefficients } = this;
    let segment;
    let inside = 0;
    if (edges) {
      segment = countAtMost(u, edges, 1, segments - 1);
      if (degree) inside = (2 * (u - edges[segment])) / (edges[segment + 1] - edges[segment]) - 1;
    } else {
      const scaled = u > 0 ? u * segments : 0;
      segment = scaled < segments ? Math.floor(scaled) : segments - 1;
      inside = 2 * (scaled - segment) - 1;
    }
    let c = this.alike ? 0 : segment * functions * (degree + 1);
    let row = this.start + segment * this.moves;
    for (let i = 0; i < functions; ++i, ++row, c += degree + 1) {
      let weight = coefficients[c];
      for (let d = 1; d <= degree; ++d) weight = weight * inside + coefficients[c + d];
      if (row >= this.around) row -= this.around;
      terms.add(first + row, weight);
    }
  }
}

const COMPARE = {
  "==": (x, y) => x === y,
  "<": (x, y) => x < y,
  "<=": (x, y) => x <= y,
  ">": (x, y) => x > y,
  ">=": (x, y) => x >= y,
};

/** The largest number below x. */
export function numberBelow(x) {
  const bits = new BigInt64Array(1);
  const floats = new Float64Array(bits.buffer);
  if (x === 0) return -Number.MIN_VALUE;
  floats[0] = x;
  bits[0] += x > 0 ? -1n : 1n;
  return floats[0];
}

/** A special value: a comparison with a number. */
export class Rule {
  constructor([sign, number]) {
    this.sign = sign;
    this.number = Number(number);
  }

  holds(x) {
    return COMPARE[this.sign](x, this.number);
  }
}
