"""The mutants of `mutants.py`: small changes of the package that some test must notice."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change of one file.

    Attributes
    ----------
    file : str
        The file inside the package.
    old, new : str
        What to replace, which must occur exactly once, and by what.
    tests : str
        Arguments of pytest, separated by spaces: a few tests that should fail.
    """

    file: str
    old: str
    new: str
    tests: str

    @property
    def part(self) -> str:
        """The subpackage."""
        return self.file.partition("/")[0]


_AB = "tests/serve/test_arms_and_figures.py"
_TRAINING = "tests/train/test_training.py"
_METRICS = "tests/test_metrics.py"
_LIBFFM = "tests/export/test_libffm.py"
_DRIFT = "tests/encode/test_drift.py"
_EXPLAIN = "tests/inspect/test_explain.py"
_INDEX = "tests/rank/test_index.py"

MUTANTS = [
    # Bases, transforms, categories and drift.
    Mutant("encode/bases.py", "** (2 * order - 1)", "** (2 * order)", _TRAINING),
    Mutant(
        "encode/bases.py",
        "functions = (start[:, None] + np.arange(self.degree + 1)) % self.segments",
        "functions = np.minimum(start[:, None] + np.arange(self.degree + 1), self.segments - 1)",
        "tests/encode/test_bases.py",
    ),
    Mutant(
        "encode/bases.py",
        'np.searchsorted(self._borders, u, side="right")',
        'np.searchsorted(self._borders, u, side="left")',
        "tests/encode/test_bases.py",
    ),
    Mutant(
        "encode/bases.py", "np.where(beyond, 2.0, transform(inner))", "transform(inner)", "tests/encode/test_bases.py"
    ),
    Mutant(
        "encode/transforms/scaling.py",
        "share[heaviest] > 1 / knots",
        "share[heaviest] > 2 / knots",
        "tests/encode/transforms",
    ),
    Mutant(
        "encode/transforms/scaling.py",
        "2.0 * np.arcsinh(np.abs(z))",
        "np.arcsinh(np.abs(z))",
        "tests/encode/transforms",
    ),
    Mutant(
        "encode/drift.py",
        "known[known <= item.min_count]",
        "known[known < item.min_count]",
        _DRIFT,
    ),
    Mutant(
        "encode/drift.py",
        "return (len(outside), len(x), _as_text",
        "return (len(outside), len(x) - n_missing, _as_text",
        "tests/serve/test_lifecycle.py -k drift",
    ),
    # Formulas and engines.
    Mutant(
        "model/optimizers.py",
        "[group.l2 if group.l2_third is None else group.l2_third for group in flat]",
        "[group.l2 for group in flat]",
        "tests/model/test_engine.py -k own_l2",
    ),
    Mutant(
        "model/torch/optimizers.py",
        "np.repeat(penalty.l2_third[:, None], third, 1)",
        "np.repeat(penalty.l2[:, None], third, 1)",
        "tests/model/test_torch_engine.py -k own_l2",
    ),
    Mutant("model/family/field_weighted.py", "n ** (-1.0 / 3.0)", "n ** (-1.0 / 2.0)", "tests/model/test_averages.py"),
    Mutant(
        "model/family/field_weighted.py",
        "np.fill_diagonal(R, 0.0)",
        "np.fill_diagonal(R, 1.0)",
        "tests/model/test_family.py",
    ),
    Mutant(
        "model/family/parameters.py",
        "scale * np.cbrt(pace) / np.sqrt(max(1, third))",
        "scale * np.sqrt(pace) / np.sqrt(max(1, third))",
        "tests/model/test_averages.py",
    ),
    # Losses, metrics, the loop and its penalties.
    Mutant(
        "encode/fields/cross.py",
        "block._replace(smoothness=1.0, periodic",
        "block._replace(smoothness=2.0, periodic",
        _TRAINING,
    ),
    Mutant("train/penalties.py", "math.sqrt(parts) * self", "parts * self", _TRAINING),
    Mutant("train/loop.py", "mean <= TIE * error", "mean <= 0.0", _TRAINING),
    Mutant(
        "train/loop.py",
        "np.average(losses, weights=weight)",
        "np.average(losses)",
        "tests/train/test_training.py tests/fit/test_skewed_targets.py",
    ),
    Mutant("train/loop.py", "math.exp(-2.0 / steps_per_epoch)", "math.exp(-1.0 / steps_per_epoch)", _TRAINING),
    Mutant("metrics.py", "np.cumsum(negative) - negative / 2.0", "np.cumsum(negative)", _METRICS),
    Mutant("metrics.py", "np.unique(target[w > 0.0])", "np.unique(target)", _METRICS),
    Mutant(
        "metrics.py",
        "(1.0 - quantile) * over, -quantile * over",
        "quantile * over, (quantile - 1.0) * over",
        _METRICS,
    ),
    Mutant("train/losses.py", "delta=EFFICIENT * scale)", "delta=EFFICIENT)", "tests/train/test_losses.py"),
    Mutant(
        "train/rows.py",
        "numbers if self.copies is None else self.copies[numbers]",
        "numbers",
        "tests/train",
    ),
    # Views and explanations.
    Mutant("inspect/curves.py", "left * scale, right)", "left, right)", "tests/inspect"),
    Mutant("inspect/curves.py", "by_u * _transform_slope(transform, inside)", "by_u", "tests/inspect"),
    Mutant("inspect/crossed.py", "np.argmax(sign * scores)", "np.argmax(scores)", "tests/inspect"),
    Mutant("inspect/terms.py", "math.comb(n - 1, coalition", "math.comb(n, coalition", "tests/inspect/test_crosses.py"),
    Mutant("inspect/importance.py", "square - mean**2", "square", _EXPLAIN),
    Mutant(
        "inspect/importance.py",
        "np.abs(player_shares(known, rows, threads)).mean",
        "player_shares(known, rows, threads).mean",
        _EXPLAIN,
    ),
    # Items to rank.
    Mutant(
        "rank/catalog.py",
        "repeated = first_repeated(keys)",
        "repeated = -1",
        "tests/rank/test_changes.py tests/rank/test_index.py",
    ),
    Mutant(
        "rank/catalog.py",
        "            self.ids.erase(old)\n            self.store.release(old)\n",
        "            self.ids.erase(old)\n",
        "tests/rank/test_changes.py",
    ),
    Mutant("rank/error.py", "offset = abs(split.bias) + linear", "offset = linear", _INDEX),
    Mutant("rank/file.py", 'if description["index"] != digest(fitted):', "if False:", "tests/rank/test_changes.py"),
    # Exports.
    Mutant("export/libffm.py", "{weight:.9g}", "{weight:.6g}", _LIBFFM),
    Mutant("export/libffm.py", '[f"{value:.9g}"', '[f"{value:.6g}"', _LIBFFM),
    Mutant("export/libffm.py", "np.sqrt(between).astype", "np.asarray(between).astype", _LIBFFM),
    Mutant(
        "export/scorer.py",
        'plan.length, plan.item.reduction == "mean"',
        "plan.length, False",
        "tests/export/test_scorer_file.py",
    ),
    Mutant(
        "export/discretize.py",
        "breaks, rows * (n_ordinary / rows.sum())",
        "breaks, rows",
        "tests/export/test_discretize.py",
    ),
    # The server.
    Mutant(
        "serve/feedback.py",
        "head.at >= found[key][0]",
        "head.at < found[key][0]",
        _AB,
    ),
    Mutant("serve/ab.py", "* n / (n - 1))", ")", _AB),
    Mutant("serve/ab.py", 'line["id"] if keys is None else key_name(keys[i])', "str(i)", _AB),
    Mutant(
        "serve/drift.py",
        "(tally.count, tally.total)",
        "(tally.count, tally.total - model.watch.missing[f].count)",
        "tests/serve/test_lifecycle.py -k drift",
    ),
    Mutant(
        "serve/models.py",
        "    fitted = load(model)\n    if index",
        "    fitted = load(model, mmap=True)\n    if index",
        f"{_AB} -k Checksums",
    ),
    Mutant("serve/models.py", "fitted, mmap=False)", "fitted)", f"{_AB} -k Checksums"),
    Mutant(
        "serve/publishing.py",
        "(before.sha256, before.index_file_sha256) == (sha256, index_sha256)",
        "before.sha256 == sha256",
        f"{_AB} -k Checksums",
    ),
    Mutant("serve/split.py", "bisect_right(self._ends, place)", "min(1, bisect_right(self._ends, place))", _AB),
    Mutant("serve/admission.py", "if now > request.deadline:", "if False:", _AB),
    # Ranks of a distributed run; skipped where TorchRec is not installed.
    Mutant(
        "distribute/batches.py",
        "fed.batch.total[:] = weight",
        "fed.batch.total[:] = n_rows",
        "tests/distribute/test_processes.py -k weights",
    ),
    Mutant(
        "distribute/training.py",
        "float(weight.sum())])\n",
        "float(len(weight))])\n",
        "tests/distribute/test_processes.py -k weights",
    ),
    Mutant(
        "distribute/training.py",
        "float((losses * weight).sum()), float(weight.sum())]",
        "float((losses * weight).sum()), float(n_rows)]",
        "tests/distribute/test_processes.py -k weights",
    ),
    # The command line.
    Mutant(
        "cli/predict.py",
        "{**dict.fromkeys(ids, pa.large_string()), **fitted.column_types()}",
        "fitted.column_types()",
        "tests/cli/test_predict.py",
    ),
    Mutant(
        "cli/predict.py",
        "fitted.loss.predict(score(batch).astype(float))",
        "score(batch).astype(float)",
        "tests/cli/test_predict.py",
    ),
    Mutant("cli/failures.py", "return USER_ERROR", "return 0", "tests/cli/test_mistakes.py"),
    Mutant("_wording.py", "and not math.isfinite(value)", "and math.isnan(value)", "tests/cli"),
]
