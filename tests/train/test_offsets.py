"""Offsets and exposures: a known part of the score, in training, updates and predictions."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.slots import concatenate_slots
from splinefm.model.cpu import CpuEngine
from splinefm.model.family.formula import formula_scores
from splinefm.model.optimizers import Optimizer
from splinefm.train.losses import FORMULAS, Loss
from splinefm.train.offsets import Offset, as_offset
from splinefm.train.rows import Chunk, row_keys
from splinefm.train.target_summary import TargetSummary
from support import examples, fit_encoder, mixed_schema, mixed_table, one_of_each, random_fitted, random_params

QUICK = sf.Training(epochs=12, threads=1, effort="fast")
NUMBERS = [name for name in FORMULAS if name != "softmax"]
LOG = ["poisson", "gamma", "tweedie"]


def targets(loss, score, rng):
    """Targets that a loss takes, whose means follow a standardized score."""
    if loss == "logistic":
        return (rng.random(len(score)) < 1.0 / (1.0 + np.exp(-score))).astype(float)
    if loss == "poisson":
        return rng.poisson(np.exp(score)).astype(float)
    if loss in ("gamma", "tweedie"):
        return np.exp(score) * rng.gamma(3.0, 1.0 / 3.0, len(score))
    return score + 0.3 * rng.normal(size=len(score))


def make_table(loss, n=1500, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    x, c, offset = rng.random(n), rng.choice(list("abc"), n), spread * rng.normal(size=n)
    table = {"x": x, "c": c, "o": offset, "y": targets(loss, 2.0 * x - 1.0 + (c == "a") + offset, rng)}
    return table, 2.0 * x - 1.0 + (c == "a")


def fit(table, loss, **options):
    return sf.fit_model(table, "y", loss=loss, training=QUICK, **options)


class TestScores:
    @pytest.mark.parametrize("model", one_of_each(6), ids=str)
    def test_every_engine_adds_it_to_the_formula(self, model):
        table = mixed_table(60)
        fitted = random_fitted(model, mixed_schema(), table)
        rng = np.random.default_rng(0)
        slots = replace(fitted.encoder.encode(table), offset=rng.normal(size=60).astype(np.float32))
        expected = formula_scores(model, fitted.params, replace(slots, offset=None)) + slots.offset
        np.testing.assert_allclose(formula_scores(model, fitted.params, slots), expected, rtol=1e-6, atol=1e-6)
        engine = CpuEngine(model, slots.layout, fitted.params, threads=1)
        found = [
            engine.scores(slots),
            engine.scores_of(fitted.params, slots),
            replace(fitted, offset=Offset("o")).scores(slots),
        ]
        for scores in found:
            assert scores.dtype == np.float32
            np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4)

    def test_parts_of_slots_keep_it(self):
        slots = fit_encoder(mixed_schema(), mixed_table(30)).encode(mixed_table(30))
        with_offset = replace(slots, offset=np.arange(30, dtype=np.float32))
        parts = [with_offset[:10], with_offset[np.arange(10, 30)]]
        assert concatenate_slots(parts).offset.tolist() == list(range(30))
        assert with_offset.compact()[1].offset is with_offset.grown(slots.layout).offset is with_offset.offset
        with pytest.raises(ValueError, match="some of these rows have an offset and others have none"):
            concatenate_slots([with_offset[:10], slots[10:]])

    @pytest.mark.parametrize("engine", ["cpu", "torch"])
    @pytest.mark.parametrize("loss", NUMBERS)
    @pytest.mark.parametrize("model", [sf.FwFM(k=4, third=2), sf.FFM(k=2)], ids=str)
    def test_steps_follow_the_slope_of_the_loss_with_it(self, model, loss, engine):
        # Plain gradient descent with an optimizer of one step: the change of the bias is -rate times the mean slope.
        if engine == "torch":
            pytest.importorskip("torch")
            from splinefm.model.torch.engine import TorchEngine as Engine
        else:
            Engine = CpuEngine
        rng = np.random.default_rng(3)
        encoder = fit_encoder(mixed_schema(), mixed_table(40))
        slots = encoder.encode(mixed_table(40))
        params = random_params(model, encoder.layout, 2, scale=0.2, spread=0.1)
        offset = rng.normal(size=40).astype(np.float32)
        formula = Loss(loss).formula
        y, weight = targets(loss, offset.astype(float), rng), rng.random(40)
        slots = replace(slots, offset=offset)
        options = {"loss_parameter": formula.parameter, "threads": 1, "batch_size": 40}
        options |= {"device": "cpu"} if engine == "torch" else {}
        eps = 1e6  # so large that the step of AdaGrad is the gradient over eps
        optimizer = Optimizer("adagrad", eps, eps=eps)
        run = Engine(model, encoder.layout, params, loss, optimizer, **options)
        found = run.step(slots, y, weight)
        exact = {name: values.astype(np.float64) for name, values in params.items()}

        def mean_loss(bias):
            scores = formula_scores(model, {**exact, "bias": bias}, slots)
            return float(np.average(formula.value(y, scores), weights=weight))

        assert found == pytest.approx(mean_loss(exact["bias"]), rel=1e-5, abs=1e-6)
        h = 1e-5
        slope = (mean_loss(exact["bias"] + h) - mean_loss(exact["bias"] - h)) / (2.0 * h)
        assert params["bias"][0] - run.params()["bias"][0] == pytest.approx(slope, rel=2e-3, abs=2e-4)

    def test_a_constant_has_it_too(self):
        slots = fit_encoder(mixed_schema(), mixed_table(4)).encode(mixed_table(4))
        rows = Chunk(replace(slots, offset=np.arange(4, dtype=np.float32)), np.zeros(4), np.ones(4))
        assert rows.constant_scores(0.5).tolist() == [0.5, 1.5, 2.5, 3.5]

    def test_rows_that_differ_in_it_are_no_copies(self):
        slots = fit_encoder(mixed_schema(), mixed_table(1)).encode(mixed_table(1))
        both = concatenate_slots([slots, slots])
        assert len(set(row_keys(both).tolist())) == 1
        assert len(set(row_keys(replace(both, offset=np.array([0.0, 1.0], np.float32))).tolist())) == 2

    def test_an_engine_refuses_an_offset_of_another_length(self):
        encoder = fit_encoder(mixed_schema(), mixed_table(10))
        params = random_params(sf.FM(k=2), encoder.layout)
        engine = CpuEngine(sf.FM(k=2), encoder.layout, params, threads=1)
        slots = replace(encoder.encode(mixed_table(10)), offset=np.zeros(9, np.float32))
        with pytest.raises(ValueError, match="offset must have a number for every row"):
            engine.step(slots, np.zeros(10), np.ones(10))


class TestConstants:
    @examples(40)
    @given(st.sampled_from(NUMBERS), st.integers(0, 1000))
    def test_the_best_constant_has_the_smallest_loss(self, loss, seed):
        rng = np.random.default_rng(seed)
        n, offset = 200, rng.normal(size=200)
        y, weight = targets(loss, offset + rng.normal(), rng), rng.random(n) + 0.1
        summary = TargetSummary(Loss(loss), has_offset=True)
        for rows in (slice(0, 70), slice(70, n)):
            summary.add(y[rows], weight[rows], offset[rows])
        fitted, start = summary.fit_loss()
        t, added = fitted.standardize(y), offset / fitted.score_unit

        def mean_loss(score):
            return float(np.average(fitted.value(t, score + added), weights=weight))

        best = mean_loss(start)
        assert all(best <= mean_loss(start + by) + 1e-9 for by in (-0.5, -0.02, 0.02, 0.5))

    def test_without_an_event_the_constant_is_finite(self):
        for loss in ("poisson", "tweedie", "logistic"):
            summary = TargetSummary(Loss(loss), has_offset=True)
            summary.add(np.zeros(5), np.ones(5), np.arange(5.0))
            assert np.isfinite(summary.fit_loss()[1])

    @pytest.mark.parametrize("unit", [1.0, 1e9])
    def test_a_poisson_constant_is_events_over_exposure_in_any_unit(self, unit):
        rng = np.random.default_rng(0)
        exposure = unit * rng.uniform(0.1, 2.0, 400)
        y = rng.poisson(0.2 * exposure / unit).astype(float)
        summary = TargetSummary(Loss("poisson"), has_offset=True)
        summary.add(y, np.ones(400), np.log(exposure))
        assert np.exp(summary.fit_loss()[1]) == pytest.approx(y.sum() / exposure.sum(), rel=1e-12)


class TestFits:
    @pytest.mark.parametrize("loss", NUMBERS)
    def test_the_rest_of_the_score_is_learned(self, loss):
        table, rest = make_table(loss)
        fitted = fit(table, loss, offset="o")
        assert fitted.offset == Offset("o") and fitted.columns == ["x", "c", "o"]
        assert fitted.encoder.schema.names == ("x", "c")
        learned = fitted.without_offset().scores({"x": table["x"], "c": table["c"]})
        np.testing.assert_allclose(fitted.scores(table), learned + table["o"] / fitted.loss.score_unit, atol=1e-5)
        assert np.corrcoef(learned, rest)[0, 1] > 0.9
        if fitted.loss.link == "identity":
            expected = fitted.without_offset().predict(table) + table["o"]
            np.testing.assert_allclose(fitted.predict(table), expected, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("loss", LOG)
    def test_an_exposure_is_an_offset_of_its_logarithm(self, loss):
        table, _ = make_table(loss)
        exposed = {**{k: v for k, v in table.items() if k != "o"}, "e": np.exp(table["o"])}
        one, other = fit(table, loss, offset="o"), fit(exposed, loss, exposure="e")
        assert other.offset == Offset("e", "exposure")
        np.testing.assert_allclose(one.scores(table), other.scores(exposed), atol=1e-4)
        rates = other.without_offset().predict(exposed)
        np.testing.assert_allclose(other.predict(exposed), rates * exposed["e"], rtol=1e-5)
        np.testing.assert_allclose(
            other.predict({**exposed, "e": 2 * exposed["e"]}), 2 * rates * exposed["e"], rtol=1e-5
        )

    def test_a_fit_with_exposure_is_a_weighted_fit_of_rates(self):
        # Rates y / e with weights e have the same slopes as counts y with exposure e.
        table, _ = make_table("poisson", 3000)
        e, y = np.exp(table["o"]), table["y"]
        rows = {"x": table["x"], "c": table["c"]}
        # One batch an epoch, and a constant model: only then are the sums of all steps equal.
        training = replace(QUICK, refit_on_all=False, batch_size=4096, epochs=30)
        schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
        options = {"loss": "poisson", "schema": schema, "training": training, "validation": 0}
        exposed = sf.fit_model({**rows, "e": e, "y": y}, "y", exposure="e", **options)
        weighted = sf.fit_model({**rows, "w": e, "y": y / e}, "y", sample_weight="w", **options)
        np.testing.assert_allclose(exposed.without_offset().predict(rows), weighted.predict(rows), rtol=0.03)

    def test_a_constant_fit_gives_events_over_exposure(self):
        rng = np.random.default_rng(1)
        e = rng.uniform(0.1, 3.0, 2000)
        table = {"c": ["same"] * 2000, "e": e, "y": rng.poisson(0.3 * e).astype(float)}
        fitted = fit(table, "poisson", exposure="e", schema=sf.Schema([sf.Categorical("c")]))
        rate = fitted.without_offset().predict({"c": ["same"]})[0]
        assert rate == pytest.approx(table["y"].sum() / e.sum(), rel=1e-4)

    def test_predictions_add_up_to_the_targets(self):
        for loss in LOG:
            table, _ = make_table(loss)
            assert fit(table, loss, offset="o").predict(table).sum() == pytest.approx(table["y"].sum(), rel=1e-4)

    def test_the_search_and_its_folds_use_it(self):
        # The offset decides nearly everything: without it, a fold's loss would be far from that of the noise.
        table, _ = make_table("squared", 2000, spread=20.0)
        training = sf.Training(epochs=8, threads=1, time_limit=6.0, seed=1)
        fitted = sf.fit_model(table, "y", loss="squared", offset="o", training=training)
        assert fitted.search and fitted.loss.metric(fitted.search[0].loss) < 0.5
        assert fitted.evidence.share > 0.5
        assert np.sqrt(np.mean((fitted.predict(table) - table["y"]) ** 2)) < 0.4

    def test_streamed_rows_have_it_too(self, tmp_path, monkeypatch):
        table, _ = make_table("poisson", 3000)
        pq.write_table(pa.table(table), tmp_path / "rows.parquet", row_group_size=500)
        monkeypatch.setattr("splinefm.train.chunks.MEMORY_BYTES", 0)
        fitted = fit(str(tmp_path / "rows.parquet"), "poisson", offset="o")
        learned, rest = fitted.without_offset().scores(table), make_table("poisson", 3000)[1]
        assert np.corrcoef(learned, rest)[0, 1] > 0.9

    def test_without_an_offset_nothing_changes(self):
        table, _ = make_table("poisson")
        plain = {k: v for k, v in table.items() if k != "o"}
        fitted = fit(plain, "poisson")
        assert fitted.offset is None and fitted.without_offset() is fitted
        same = fit({**plain, "o": np.zeros(1500)}, "poisson", offset="o")
        np.testing.assert_allclose(same.scores({**plain, "o": np.zeros(1500)}), fitted.scores(plain), atol=1e-4)

    def test_an_update_keeps_it(self, tmp_path):
        table, rest = make_table("poisson", 1500)
        fitted = fit(table, "poisson", offset="o")
        more, _ = make_table("poisson", 2000, seed=5, spread=3.0)
        learner = sf.Learner(fitted, QUICK)
        learner.update(more, "y", guard=sf.Guard(max_calibration_error=0.2))
        again = learner.fitted()
        assert again.offset == fitted.offset and learner.verdict.accepted
        assert np.corrcoef(again.without_offset().scores(table), rest)[0, 1] > 0.9
        with pytest.raises(ValueError, match=r"no column 'o' in the table"):
            learner.update({k: v for k, v in more.items() if k != "o"}, "y")
        with pytest.raises(ValueError, match=r"the offset 'o' must be a finite number, got nan in row 3"):
            learner.update({**more, "o": np.where(np.arange(2000) == 3, np.nan, more["o"])}, "y")

    def test_a_file_keeps_it(self, tmp_path):
        table, _ = make_table("gamma")
        exposed = {**{k: v for k, v in table.items() if k != "o"}, "e": np.exp(table["o"])}
        fitted = fit(exposed, "gamma", exposure="e")
        fitted.save(tmp_path / "model.sfm")
        again = sf.load(tmp_path / "model.sfm")
        assert again.offset == fitted.offset and "exposure 'e'" in repr(again)
        np.testing.assert_array_equal(again.scores(exposed), fitted.scores(exposed))
        sharded = sf.ShardedModel.write(fitted, tmp_path / "parts")
        np.testing.assert_array_equal(sharded.scores(exposed), fitted.scores(exposed))
        with pytest.raises(ValueError, match="no column 'e' in the table"):
            sharded.scores(table)


class TestErrors:
    def test_values_that_are_none(self):
        table, _ = make_table("poisson", 100)
        good = {**{k: v for k, v in table.items() if k != "o"}, "e": np.exp(table["o"])}
        for bad, rule in ((0.0, "above 0, got 0"), (-1.0, "above 0, got -1"), (np.inf, "a finite number, got inf")):
            broken = {**good, "e": np.where(np.arange(100) == 42, bad, good["e"])}
            with pytest.raises(ValueError, match=rf"the exposure 'e' must be {rule} in row 42 \(counted from 0\)"):
                fit(broken, "poisson", exposure="e")
        fitted = fit(good, "poisson", exposure="e")
        with pytest.raises(ValueError, match="the exposure 'e' must be above 0, got -1 in row 42"):
            fitted.predict({**good, "e": np.where(np.arange(100) == 42, -1.0, good["e"])})
        with pytest.raises(ValueError, match="the exposure 'e' must be a finite number, got nan in row 0"):
            fitted.predict({**good, "e": [None] * 100})
        with pytest.raises(ValueError, match=r"the exposure 'e': .*text"):
            fitted.predict({**good, "e": ["one"] * 100})
        with pytest.raises(ValueError, match="the exposure 'e' the logarithm must lie within 100 of 0"):
            fitted.predict({**good, "e": np.full(100, 1e50)})

    def test_an_offset_far_beyond_the_target(self):
        table, _ = make_table("squared", 100)
        fitted = fit(table, "squared", offset="o")
        with pytest.raises(ValueError, match=r"the offset 'o' must lie within 10000 times the scale of the loss"):
            fitted.predict({**table, "o": np.full(100, 1e9)})

    def test_the_column_is_missing(self):
        table, _ = make_table("poisson", 100)
        with pytest.raises(ValueError, match="no column 'oo' in the table"):
            fit(table, "poisson", offset="oo")
        fitted = fit(table, "poisson", offset="o")
        way_out = r"no column 'o' in the table.*fitted with the offset 'o': add it, or use fitted.without_offset\(\)"
        with pytest.raises(ValueError, match=way_out):
            fitted.predict({"x": [0.5], "c": ["a"]})

    def test_slots_without_it_are_refused(self):
        table, _ = make_table("poisson", 100)
        fitted = fit(table, "poisson", offset="o")
        slots = fitted.encoder.encode(table)
        with pytest.raises(ValueError, match="these slots have no offset, and the model has the offset 'o'"):
            fitted.scores(slots)
        with pytest.raises(ValueError, match="these slots have an offset, and the model has none"):
            fitted.without_offset().scores(replace(slots, offset=np.zeros(100, np.float32)))

    def test_losses_that_have_none(self):
        with pytest.raises(ValueError, match=r"exposure 'e' is for the losses poisson, gamma and tweedie.*got squared"):
            as_offset(None, "e", Loss("squared"))
        with pytest.raises(ValueError, match="changes no probability"):
            as_offset("o", None, Loss("softmax", classes=("a", "b", "c")))
        with pytest.raises(ValueError, match="offset and exposure are both given"):
            as_offset("o", "e", Loss("poisson"))
        with pytest.raises(TypeError, match="offset must be the name of a column"):
            as_offset([1.0], None, Loss("poisson"))

    def test_an_item_index_and_libffm_have_none(self, tmp_path):
        table, _ = make_table("logistic", 100)
        fitted = sf.fit_model(table, "y", offset="o", model=sf.FM(k=2), training=QUICK)
        with pytest.raises(ValueError, match=r"an item index has no offsets.*use fitted.without_offset\(\)"):
            sf.ItemIndex(fitted, {"c": ["a", "b"]}, ids=[1, 2])
        index = sf.ItemIndex(fitted.without_offset(), {"c": ["a", "b"]}, ids=[1, 2])
        index.save(tmp_path / "items.sfi")
        with pytest.raises(ValueError, match="an item index has no offsets"):
            sf.ItemIndex.load(tmp_path / "items.sfi", fitted)
        with pytest.raises(ValueError, match="libffm has no offsets"):
            fitted.export_libffm(tmp_path / "model.ffm")


class TestExplanations:
    def test_they_are_of_the_score_without_it(self):
        table, _ = make_table("poisson", 300)
        fitted = fit(table, "poisson", offset="o")
        rows = {"x": table["x"], "c": table["c"]}
        found = sf.shapley_values(fitted, rows, rows)
        np.testing.assert_allclose(
            found.base + found.values.sum(axis=1), fitted.without_offset().scores(rows), atol=1e-4
        )
        curve = fitted.segment({"c": "a"}, along="x")
        assert curve(0.5) == pytest.approx(fitted.without_offset().scores({"x": [0.5], "c": ["a"]})[0], abs=1e-5)
