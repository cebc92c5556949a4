// From scores to predictions: center + scale · f(score), as in splinefm.train.losses.

/**
 * Predictions of n rows.
 * @param {{link: string, center: number, scale: number}} loss of the payload
 * @param {Float64Array} scores of n rows, `outputs` numbers for each
 * @param {number} outputs
 * @returns {Float64Array} of the same length
 */
export function predictions(loss, scores, outputs = 1) {
  if (loss.link === "softmax") return softmax(scores, outputs);
  const { center, scale } = loss;
  const result = new Float64Array(scores.length);
  for (let i = 0; i < result.length; ++i) result[i] = center + scale * fromScore(loss.link, scores[i]);
  return result;
}

/** The standardized prediction of a score. */
function fromScore(link, score) {
  if (link === "logistic") {
    // The argument of exp is never positive, so it cannot overflow.
    const small = Math.exp(-Math.abs(score));
    return (score >= 0 ? 1 : small) / (1 + small);
  }
  return link === "log" ? Math.exp(Math.min(score, 700)) : score;
}

/** exp(s_c) / Σ exp(s), for each row. */
function softmax(scores, outputs) {
  const result = new Float64Array(scores.length);
  for (let at = 0; at < scores.length; at += outputs) {
    let most = -Infinity;
    for (let c = 0; c < outputs; ++c) most = Math.max(most, scores[at + c]);
    let total = 0;
    for (let c = 0; c < outputs; ++c) total += result[at + c] = Math.exp(scores[at + c] - most);
    for (let c = 0; c < outputs; ++c) result[at + c] /= total;
  }
  return result;
}

/** The score whose prediction is wanted; infinite or NaN if there is none. Not for softmax, which has several. */
export function scoreOf(loss, prediction) {
  const mean = (prediction - loss.center) / loss.scale;
  if (loss.link === "logistic") return Math.log(mean / (1 - mean));
  return loss.link === "log" ? Math.log(mean) : mean;
}
