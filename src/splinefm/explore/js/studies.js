/** Questions that take several calls of the model; they run in its worker. */

const SIMILAR = 40;

/** The curves of a row as scores or predictions: {column: {x, y}}. */
function drawn(model, row, points, cls, asPrediction, names = null) {
  const found = {};
  for (const [name, curve] of Object.entries(model.curves(row, points, cls, names))) found[name] = { x: curve.x, y: asPrediction ? curve.prediction : curve.score };
  return found;
}

/** The score of a row, or its prediction. */
function levelOf(model, row, cls, asPrediction) {
  return (asPrediction ? model.predict(row) : model.score(row))[cls];
}

/** The rows most like a row: few other categories, and numbers nearby. */
function similarRows(model, row, most) {
  const names = Object.keys(row);
  const rows = model.exploreRows ??= Array.from({ length: model.n_rows }, (_, i) => model.row(i));
  const spread = model.exploreSpread ??= spreads(rows, names);
  const distance = rows.map((other) => {
    let sum = 0;
    for (const name of names) {
      const [a, b] = [row[name], other[name]];
      if (typeof a === "number" && typeof b === "number") sum += Math.min(1, Math.abs(a - b) / spread[name]) ** 2;
      else if (Array.isArray(a) && Array.isArray(b)) sum += a.some((one) => b.includes(one)) || !a.length ? 0 : 1;
      else if (a !== b) sum += 1;
    }
    return sum;
  });
  const order = Uint32Array.from(distance.keys()).sort((a, b) => distance[a] - distance[b]);
  return Array.from(order.subarray(0, most), (i) => rows[i]);
}

/** Half the range of the middle 80 % of numbers. */
function spreads(rows, names) {
  const found = {};
  for (const name of names) {
    const values = rows.map((row) => row[name]).filter((value) => typeof value === "number").sort((a, b) => a - b);
    const at = (share) => values[Math.floor(share * (values.length - 1))];
    found[name] = values.length ? Math.max((at(0.9) - at(0.1)) / 2, Math.abs(at(0.5)) * 1e-6, 1e-12) : 1;
  }
  return found;
}

/** The 10 % and 90 % quantiles of the curves of similar rows. */
function spreadOf(model, row, names, points, cls, asPrediction) {
  const rows = similarRows(model, row, SIMILAR);
  const all = rows.map((other) => drawn(model, other, points, cls, asPrediction, names));
  const bands = {};
  for (const name of Object.keys(all[0] ?? {})) {
    const n = all[0][name].x.length;
    const [low, high] = [new Float64Array(n), new Float64Array(n)];
    const column = new Float64Array(all.length);
    for (let i = 0; i < n; i += 1) {
      all.forEach((curves, j) => { column[j] = curves[name].y[i]; });
      column.sort();
      low[i] = column[Math.floor(0.1 * (all.length - 1))];
      high[i] = column[Math.ceil(0.9 * (all.length - 1))];
    }
    bands[name] = { low, high };
  }
  return { bands, n: rows.length };
}

export const studies = {
  /** Curves of several rows, and their levels. */
  curvesOf(model, rows, names, points, cls, asPrediction) {
    return rows.map((row) => ({ curves: drawn(model, row, points, cls, asPrediction, names), level: levelOf(model, row, cls, asPrediction) }));
  },

  /** Extrema of curves of a row, and the spread of the curves of similar rows. */
  around(model, row, names, points, cls, asPrediction, wanted) {
    const extrema = {};
    const exact = wanted.extrema && !(asPrediction && model.link === "softmax"); // a probability of several classes turns elsewhere
    if (exact) for (const name of names) extrema[name] = model.extrema(row, name, cls).map((one) => ({ x: one.x, kind: one.kind, y: asPrediction ? one.prediction : one.score }));
    return { extrema, spread: wanted.spread ? spreadOf(model, row, names, points, cls, asPrediction) : null };
  },

  /** Score and prediction of a row, for one class. */
  judge(model, row, cls) {
    return { score: levelOf(model, row, cls, false), prediction: levelOf(model, row, cls, true) };
  },

  /** Shapley values of a row, and its prediction. */
  why(model, row, cls) {
    return { ...model.shapley(row, cls), prediction: levelOf(model, row, cls, true) };
  },

  /** Predictions of all rows, for one class. */
  predictions(model, cls) {
    return Float64Array.from({ length: model.n_rows }, (_, i) => levelOf(model, model.row(i), cls, true));
  },
};
