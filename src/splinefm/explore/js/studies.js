/** Questions of the page that take several calls of the model; they run in its worker. */

import { Segment } from "./engine/curves.js";

const SIMILAR = 40;
const PROMINENT = 0.12;

/** The curves of a row as scores or predictions: {column: {x, y}}. */
function drawn(model, row, points, cls, asPrediction, names) {
  const found = Object.create(null); // a column may be called __proto__
  for (const [name, curve] of Object.entries(model.curves(row, points, cls, names)))
    found[name] = {
      x: curve.x,
      y: asPrediction ? curve.prediction : curve.score,
    };
  return found;
}

/** The score of a row, or its prediction. */
function levelOf(model, row, cls, asPrediction) {
  return (asPrediction ? model.predict(row) : model.score(row))[cls];
}

/** The 10 % and 90 % quantiles of the curves of rows that are similar apart from the column; null where there are none. */
function bandOf(model, row, name, points, cls, asPrediction) {
  const { score } = model.spread(row, name, points, cls, SIMILAR);
  const [low, high] = [score[0], score[score.length - 1]];
  return asPrediction ? { low: model.predicted([low], 0), high: model.predicted([high], 0) } : { low, high };
}

/** Extrema inside the range, without ripples: neighbors that differ by little cancel each other, the smallest first. */
export function prominent(extrema) {
  const kept = [...extrema];
  const size = Math.max(...kept.map((one) => one.score)) - Math.min(...kept.map((one) => one.score));
  if (!(size > 1e-9)) return [];
  for (;;) {
    let least = -1;
    for (let i = 0; i + 1 < kept.length; i += 1) {
      const step = Math.abs(kept[i + 1].score - kept[i].score);
      if (step < PROMINENT * size && (least < 0 || step < Math.abs(kept[least + 1].score - kept[least].score)))
        least = i;
    }
    if (least < 0) return kept.filter((one) => !one.isEnd);
    kept.splice(least, 2);
  }
}

export const studies = {
  /** Curves of several rows, and their levels. */
  curvesOf(model, rows, names, points, cls, asPrediction) {
    return rows.map((row) => ({
      curves: drawn(model, row, points, cls, asPrediction, names),
      level: levelOf(model, row, cls, asPrediction),
    }));
  },

  /** The level of a row with each of some categories of a column in place of its own: {column: numbers}. */
  categoriesOf(model, row, wanted, cls, asPrediction) {
    const found = Object.create(null);
    const every = asPrediction && model.link === "softmax" ? model.formulas.map((_, c) => c) : [cls];
    for (const [name, categories] of Object.entries(wanted)) {
      const scores = every.map((c) => new Segment(model, model.values(row), [model.source(name)], c).along(categories));
      found[name] = asPrediction ? model.predicted(scores, every.indexOf(cls)) : scores[0];
    }
    return found;
  },

  /** Extrema of curves of a row, and the spread of the curves of similar rows. Not for probabilities of several classes. */
  around(model, row, names, points, cls, asPrediction, wanted) {
    const [extrema, bands] = [Object.create(null), Object.create(null)];
    const possible = !(asPrediction && model.link === "softmax");
    for (const name of possible ? names : []) {
      if (wanted.extrema)
        extrema[name] = prominent(model.extrema(row, name, cls)).map((one) => ({
          x: one.x,
          kind: one.kind,
          y: asPrediction ? one.prediction : one.score,
        }));
      if (wanted.spread) bands[name] = bandOf(model, row, name, points, cls, asPrediction);
    }
    return { extrema, bands };
  },

  /** The score or prediction over values of two columns, by rows of the second one, and the slices through the row. */
  surfaceOf(model, row, names, [x, y], points, cls, asPrediction) {
    const sources = names.map((name) => model.source(name));
    const every = asPrediction && model.link === "softmax" ? model.formulas.map((_, c) => c) : [cls];
    const scores = every.map((c) => new Segment(model, model.values(row), sources, c).over(x, y));
    const flat = asPrediction ? model.predicted(scores, every.indexOf(cls)) : scores[0];
    const z = new Float64Array(flat.length);
    for (let i = 0; i < x.length; i += 1)
      for (let j = 0; j < y.length; j += 1) z[j * x.length + i] = flat[i * y.length + j];
    const numbers = names.filter((_, i) => model.columns[sources[i]].kind === "numerical");
    return {
      x,
      y,
      z,
      slices: drawn(model, row, points, cls, asPrediction, numbers),
      level: levelOf(model, row, cls, asPrediction),
    };
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
  rowPredictions(model, cls) {
    const all = model.predictions();
    return model.outputs === 1 ? all : all.filter((_, i) => i % model.outputs === cls);
  },

  /** The best items for a context: by score or, of several classes, by the probability of one. */
  bestItems(model, row, k, cls) {
    if (!model.ranking) throw new Error("the page has no items to rank");
    const values = model.values(row);
    const every = model.link === "softmax" ? model.formulas.map((_, c) => c) : [cls];
    const scores = every.map((c) => model.ranking.scores(values, c));
    const own = scores[every.indexOf(cls)];
    const predictions = model.predicted(scores, every.indexOf(cls));
    const keys = model.link === "softmax" ? predictions : own;
    const best = Array.from(keys.keys())
      .sort((a, b) => keys[b] - keys[a] || a - b)
      .slice(0, k);
    return {
      ids: best.map((i) => model.ranking.ids[i]),
      scores: best.map((i) => own[i]),
      predictions: best.map((i) => predictions[i]),
    };
  },
};
