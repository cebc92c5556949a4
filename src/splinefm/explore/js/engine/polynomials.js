// Curves as polynomials in pieces: their roots and extrema, exactly.

const SPACING = 1e-13; // of roots

/** Coefficients, the lowest power first, of the polynomial on [-1, 1] with values at `chebyshevNodes(n)`. */
export function throughNodes(values) {
  const n = values.length;
  // Chebyshev coefficients by the discrete cosine transform, then powers by the recurrence of T_k.
  let [before, now] = [[1], [0, 1]];
  const powers = new Float64Array(n);
  for (let k = 0; k < n; ++k) {
    let sum = 0;
    for (let j = 0; j < n; ++j) sum += values[j] * Math.cos((Math.PI * k * (j + 0.5)) / n);
    const coefficient = (k ? 2 : 1) * (sum / n);
    const polynomial = k === 0 ? before : now;
    polynomial.forEach((value, i) => {
      powers[i] += coefficient * value;
    });
    if (k > 0) {
      const next = [0, ...now.map((value) => 2 * value)];
      before.forEach((value, i) => {
        next[i] -= value;
      });
      [before, now] = [now, next];
    }
  }
  return powers;
}

/** n points inside of (-1, 1) that determine a polynomial of degree n - 1 well. */
export function chebyshevNodes(n) {
  return Float64Array.from({ length: n }, (_, j) => Math.cos((Math.PI * (j + 0.5)) / n));
}

/** The value of a polynomial. */
export function valueAt(coefficients, t) {
  let value = 0;
  for (let i = coefficients.length - 1; i >= 0; --i) value = value * t + coefficients[i];
  return value;
}

/** The coefficients of the derivative. */
export function derivative(coefficients) {
  return coefficients.slice(1).map((value, i) => value * (i + 1));
}

/**
 * The roots in [-1, 1] where a polynomial changes its sign, ascending. Between the roots of its derivative a polynomial
 * is monotone, so that each root is alone in an interval, where bisection finds it.
 */
export function rootsOf(coefficients) {
  let degree = coefficients.length - 1;
  const size = coefficients.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  while (degree > 0 && Math.abs(coefficients[degree]) <= 1e-15 * size) --degree;
  if (degree < 1 || size === 0) return [];
  const own = coefficients.slice(0, degree + 1);
  const borders = [-1, ...rootsOf(derivative(own)), 1];
  const roots = [];
  for (let i = 1; i < borders.length; ++i) {
    const root = bisect((t) => valueAt(own, t), borders[i - 1], borders[i]);
    if (root !== null && !(roots.length && root - roots[roots.length - 1] < SPACING)) roots.push(root);
  }
  return roots;
}

/**
 * Where a function changes its sign between two points; null if it does not.
 * @param {function(number): number} f
 */
export function bisect(f, low, high) {
  let [a, b] = [low, high];
  const [atLow, atHigh] = [f(a), f(b)];
  if (atLow === 0) return a;
  if (atHigh === 0) return b;
  if (atLow > 0 === atHigh > 0) return null;
  for (let i = 0; i < 100 && b - a > 1e-16 * Math.max(Math.abs(a), Math.abs(b)); ++i) {
    const middle = (a + b) / 2;
    if (middle === a || middle === b) break;
    if (f(middle) > 0 === atHigh > 0) b = middle;
    else a = middle;
  }
  return (a + b) / 2;
}

/** A polynomial of the position from -1 to 1 inside an interval of u. */
export class Piece {
  constructor(low, high, coefficients) {
    Object.assign(this, { low, high, coefficients });
  }

  /** u at a position inside. */
  u(t) {
    return t <= -1 ? this.low : t >= 1 ? this.high : this.low + ((t + 1) / 2) * (this.high - this.low);
  }

  /** The points of u where the polynomial has a value, other than by touching it. */
  crossings(value) {
    const shifted = Float64Array.from(this.coefficients);
    shifted[0] -= value;
    return rootsOf(shifted).map((t) => this.u(t));
  }

  /** The ends, and where the derivative is zero between them: pairs of u and the value there. */
  turns() {
    const inner = rootsOf(derivative(this.coefficients)).filter((t) => t > -1 && t < 1);
    return [-1, ...inner, 1].map((t) => [this.u(t), valueAt(this.coefficients, t)]);
  }
}

/**
 * Local extrema of a curve in pieces, from left to right: between two turns a polynomial is monotone. A stretch where
 * the curve is constant counts as the point in its middle.
 * @param {Piece[]} pieces
 * @returns {{u: number, score: number, kind: "minimum"|"maximum", isEnd: boolean}[]}
 */
export function localExtrema(pieces) {
  const turns = pieces.flatMap((piece) => piece.turns());
  const size = turns.reduce((most, [, value]) => Math.max(most, Math.abs(value)), 1e-300);
  const flat = []; // [first u, last u, value] of stretches without change
  for (const [u, value] of turns) {
    const last = flat[flat.length - 1];
    if (last && Math.abs(value - last[2]) <= 1e-12 * size) last[1] = u;
    else flat.push([u, u, value]);
  }
  const found = [];
  flat.forEach(([first, last, value], i) => {
    const neighbors = [flat[i - 1], flat[i + 1]].filter((side) => side !== undefined);
    const sides = neighbors.map((side) => Math.sign(value - side[2]));
    if (!sides.length || sides.some((side) => side !== sides[0])) return;
    const kind = sides[0] > 0 ? "maximum" : "minimum";
    found.push({ u: (first + last) / 2, score: value, kind, isEnd: sides.length < 2 });
  });
  return found;
}
