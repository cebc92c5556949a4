// Products of three units (see splinefm.inspect.terms).
//
// Coordinate by coordinate, a player f has a_f = Σ p_u, b_f = Σ_{u<v} p_u p_v and c_f = Σ_{u<v<w} p_u p_v p_w over its
// units, and all triples add Σ_{f<g<h} a_f a_g a_h + Σ_{f≠g} b_f a_g + Σ_f c_f. A product of three players is worth
// a_f a_g a_h to all of them, a_f a_g E[a_h] to two, a_f E[a_g a_h] to one, and E[a_f a_g a_h] to none.

/**
 * a, b and c of the players. Vectors are multiplied by their share of the weight of products, which then need none.
 * @param {object} formula
 * @param {object} units
 * @param {number[]} players of the units; units of player -1 do not count
 * @param {number} n players
 * @returns {{a: Float64Array, b: Float64Array, c: Float64Array, size: number}} a and b have `size` numbers for each
 */
export function unitSums(formula, units, players, n) {
  const size = formula.productTo - formula.productFrom;
  const share = Math.cbrt(formula.productWeight);
  const sums = { a: new Float64Array(n * size), b: new Float64Array(n * size), c: new Float64Array(n), size };
  players.forEach((player, u) => {
    if (player < 0) return;
    const from = u * formula.width + formula.productFrom;
    for (let t = 0, at = player * size; t < size; ++t, ++at) {
      const p = share * units.vectors[from + t];
      sums.c[player] += sums.b[at] * p;
      sums.b[at] += sums.a[at] * p;
      sums.a[at] += p;
    }
  });
  return sums;
}

/** Sums over the players, coordinate by coordinate, of what `term` gives for a position in the arrays. */
function totals(n, size, term) {
  const total = new Float64Array(size);
  for (let f = 0, at = 0; f < n; ++f) for (let t = 0; t < size; ++t, ++at) total[t] += term(at);
  return total;
}

/**
 * Shapley values of what the triples add, compared with a background whose means are given.
 * @param {{a: Float64Array, b: Float64Array, slope: Float64Array, remainder: Float64Array, offset: Float64Array}} means
 * @param {object} sums of `unitSums`
 * @returns {Float64Array} for each player
 */
export function tripleShares(means, { a, b, c, size }) {
  const n = c.length;
  const [A, B] = [means.a, means.b];
  const sumA = totals(n, size, (at) => A[at]);
  const sumB = totals(n, size, (at) => B[at]);
  const total = totals(n, size, (at) => a[at]);
  const totalB = totals(n, size, (at) => b[at]);
  const known = totals(n, size, (at) => a[at] * A[at]);
  const allPairs = totals(n, size, (at) => -(a[at] ** 2) / 2).map((value, t) => value + total[t] ** 2 / 2);
  const shares = Float64Array.from(c, (value, f) => value - means.offset[f]);
  for (let f = 0, at = 0; f < n; ++f) {
    for (let t = 0; t < size; ++t, ++at) {
      const others = total[t] - a[at];
      const rest = sumA[t] - A[at];
      const slope = means.slope[at] - (sumB[t] - B[at]);
      // Σ a_g E[a_h] over different g and h, both other than f, has half the weight.
      const value = ((others * rest - known[t] + a[at] * A[at]) / 2 + slope) * a[at];
      shares[f] += (value + (a[at] - A[at]) * (allPairs[t] - a[at] * others)) / 3;
      const othersB = totalB[t] - b[at];
      const mine = b[at] * (rest + others) - B[at] * others;
      shares[f] += (mine + a[at] * (sumB[t] - B[at] + othersB) - A[at] * othersB) / 2;
    }
  }
  for (let at = 0; at < a.length; ++at) {
    for (let f = 0; f < n; ++f) shares[f] -= (a[at] * means.remainder[at * n + f]) / 6;
  }
  return shares;
}
