/** What rows say about predictions: metrics, calibration, lift, ROC. Rows are numbers i into arrays. */

/** Weighted mean of values over rows. */
export function meanOf(rows, values, weight) {
  let [sum, total] = [0, 0];
  for (const i of rows) {
    sum += weight[i] * values[i];
    total += weight[i];
  }
  return total ? sum / total : NaN;
}

/** Metrics of probabilities against 0 and 1, or of numbers. */
export function metricsOf(rows, p, y, weight, binary) {
  const mean = (of) => {
    let [sum, total] = [0, 0];
    for (const i of rows) {
      sum += weight[i] * of(i);
      total += weight[i];
    }
    return total ? sum / total : NaN;
  };
  if (binary) {
    const clip = (value) => Math.min(1 - 1e-15, Math.max(1e-15, value));
    return [
      ["log loss", mean((i) => -Math.log(clip(y[i] ? p[i] : 1 - p[i])))],
      ["AUC", rocOf(rows, p, y, weight).area],
      ["Brier score", mean((i) => (p[i] - y[i]) ** 2)],
    ];
  }
  const level = mean((i) => y[i]);
  const error = mean((i) => (p[i] - y[i]) ** 2);
  return [
    ["RMSE", Math.sqrt(error)],
    ["MAE", mean((i) => Math.abs(p[i] - y[i]))],
    ["R²", 1 - error / mean((i) => (y[i] - level) ** 2)],
  ];
}

/** Groups of rows with similar keys, about the same number in each. */
export function equalGroups(rows, key, most) {
  const sorted = [...rows].sort((a, b) => key[a] - key[b]);
  const groups = [];
  for (let g = 0; g < most; g += 1) {
    const part = sorted.slice(Math.round((g * sorted.length) / most), Math.round(((g + 1) * sorted.length) / most));
    if (!part.length) continue;
    const last = groups[groups.length - 1];
    // Equal keys stay together.
    const first = last ? part.findIndex((i) => key[i] !== key[last[last.length - 1]]) : 0;
    if (first < 0) last.push(...part);
    else {
      if (first > 0) last.push(...part.slice(0, first));
      groups.push(part.slice(first));
    }
  }
  return groups;
}

/** Mean prediction and mean target of groups, with two standard errors of the target. */
export function calibrationOf(groups, p, y, weight) {
  return groups.map((rows) => {
    const [predicted, measured] = [meanOf(rows, p, weight), meanOf(rows, y, weight)];
    const total = rows.reduce((sum, i) => sum + weight[i], 0);
    const squares = rows.reduce((sum, i) => sum + weight[i] ** 2 * (y[i] - measured) ** 2, 0);
    return { rows: rows.length, predicted, measured, error: total ? (2 * Math.sqrt(squares)) / total : 0 };
  });
}

/** The ROC curve: shares of zeros and ones above each threshold, and the area below. */
export function rocOf(rows, p, y, weight) {
  const sorted = [...rows].sort((a, b) => p[b] - p[a]);
  const [ones, zeros] = [0, 1].map((kind) =>
    sorted.reduce((sum, i) => sum + (Boolean(y[i]) === !kind ? weight[i] : 0), 0),
  );
  const points = [[0, 0]];
  let [hits, alarms, area] = [0, 0, 0];
  for (let i = 0; i < sorted.length;) {
    const [from, before, level] = [hits, alarms, p[sorted[i]]];
    for (; i < sorted.length && p[sorted[i]] === level; i += 1) {
      if (y[sorted[i]]) hits += weight[sorted[i]];
      else alarms += weight[sorted[i]];
    }
    area += ((alarms - before) * (hits + from)) / 2;
    points.push([alarms / (zeros || 1), hits / (ones || 1)]);
  }
  return { points, area: ones && zeros ? area / (ones * zeros) : NaN };
}

/** The share of the target that the rows with the highest predictions hold. */
export function liftOf(rows, p, y, weight) {
  const sorted = [...rows].sort((a, b) => p[b] - p[a]);
  const all = sorted.reduce((sum, i) => sum + weight[i] * y[i], 0);
  const total = sorted.reduce((sum, i) => sum + weight[i], 0);
  const points = [[0, 0]];
  let [held, seen] = [0, 0];
  sorted.forEach((i, at) => {
    held += weight[i] * y[i];
    seen += weight[i];
    if (at === sorted.length - 1 || p[sorted[at + 1]] !== p[i]) points.push([seen / total, held / all]);
  });
  return points;
}

/** At most `most` of some points, the first and the last among them. */
export function thinned(points, most = 400) {
  if (points.length <= most) return points;
  return d3.range(most).map((i) => points[Math.round((i * (points.length - 1)) / (most - 1))]);
}
