"""`splinefm update`: files in, a model and its state out; bad hours leave the model as it was."""

import json

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf


@pytest.fixture
def new(make_table, write, tmp_path):
    """Three hours of new rows."""
    for number in range(3):
        write(make_table(200, seed=number + 1), tmp_path / f"{number}.parquet")
    return [f"{number}.parquet" for number in range(3)]


def test_hour_by_hour_equals_one_learner(run, model, new, fitted):
    learner = sf.Learner(fitted)
    for number, path in enumerate(new):
        learner.update(path, "click", guard=sf.Guard())
        about = json.loads(run("update", model, path, "--target", "click", "--json", "--quiet").stdout)
        assert about["accepted"] and about["rows"] == 200 and about["continued"] == (number > 0)
        assert about["verdict"]["after"]["loss"] == learner.verdict.after.loss
    assert np.array_equal(sf.load(model).params["factors"], learner.fitted().params["factors"])


def test_the_mean_of_several_fits_is_updated_as_one_model(run, make_table, new, tmp_path):
    training = sf.Training(epochs=2, threads=1, members=2, crosses=None, effort="fast")
    start = sf.fit_model(make_table(400).drop(["id"]), "click", model=sf.FwFM(k=4, third=2), training=training)
    start.save(tmp_path / "mean.sfm")
    learner = sf.Learner(start)
    for path in new[:2]:
        learner.update(path, "click", guard=sf.Guard())
        run("update", "mean.sfm", path, "--target", "click")
    found = sf.load(tmp_path / "mean.sfm")
    assert found.model == start.model == sf.FwFM(k=8, third=4, members=2)
    assert np.array_equal(found.params["field_weights"], learner.fitted().params["field_weights"])


def test_several_files_a_folder_and_a_pattern_are_the_same_rows(run, model, new, tmp_path):
    outs = []
    for number, data in enumerate((new, ["."], ["*.parquet"])):
        out = tmp_path / "out" / f"{number}.sfm"
        out.parent.mkdir(exist_ok=True)
        if data == ["."]:
            model.rename(tmp_path / "out" / "model.sfm")
            data, model = [str(tmp_path)], tmp_path / "out" / "model.sfm"
        text = run("update", model, *data, "--target", "click", "--out", out, "--threads", 1).stdout
        assert "600 rows" in text and str(out) in text and "begun" in text
        outs.append(sf.load(out).params["factors"])
    assert np.array_equal(outs[0], outs[1]) and np.array_equal(outs[0], outs[2])


def test_the_target_is_found_if_it_is_the_only_other_column(run, model, make_table, write, tmp_path):
    rows = make_table(200, seed=5)
    write(rows.select(["price", "city", "click"]), tmp_path / "new.csv")
    assert "target: 'click'" in run("update", model, "new.csv").stderr
    write(rows, tmp_path / "more.csv")
    assert "which column is the target?" in run("update", model, "more.csv", code=1).stderr


def test_an_update_of_no_rows_says_that_nothing_was_learned(run, model, tmp_path):
    (tmp_path / "header.csv").write_text("price,city,click\n")
    text = run("update", model, "header.csv", "--target", "click").stdout
    assert "no rows: nothing was learned" in text and "loss" not in text


@pytest.mark.parametrize(("n", "rows"), [(1, "1 row,"), (3, "3 rows,")])
def test_rows_that_are_too_few_to_judge_say_so(run, model, tmp_path, n, rows):
    (tmp_path / "few.csv").write_text("price,city,click\n" + "1,Rome,no\n" * n)
    text = run("update", model, "few.csv", "--target", "click").stdout
    assert rows in text and "calibration  not known: these rows are too few" in text and "inf" not in text


def test_a_bad_hour_is_refused_with_its_own_exit_code(run, model, make_table, write, tmp_path):
    rows, before = make_table(300, seed=6), model.read_bytes()
    bad = rows.set_column(4, "click", pa.array(["no"] * 299 + ["yes"]))
    write(bad, tmp_path / "bad.parquet")
    result = run("update", model, "bad.parquet", "--target", "click", "--json", code=4)
    about = json.loads(result.stdout)
    assert "learning from 300 rows" in result.stderr
    assert not about["accepted"] and about["rejected"] == str(tmp_path / "model.rejected.sfm")
    assert "the update is refused: predicted / measured - 1 of 300 new rows" in result.stderr
    assert "add --no-guard or a larger bound" in result.stderr
    assert model.read_bytes() == before and sf.load(about["rejected"]).params["factors"].size
    run("update", model, "bad.parquet", "--target", "click", "--max-calibration-error", 1000)
    assert model.read_bytes() != before
    run("update", model, "bad.parquet", "--target", "click", "--no-guard")


def test_a_file_can_judge(run, model, new):
    about = json.loads(run("update", model, new[0], "--target", "click", "--validation", new[1], "--json").stdout)
    assert about["verdict"]["before"]["rows"] == 200
    every = json.loads(run("update", model, new[1], "--target", "click", "--validation", "0", "--json").stdout)
    assert every["verdict"]["before"] == every["verdict"]["new"]


def test_weights_count(run, model, new, tmp_path):
    outs = [tmp_path / "plain.sfm", tmp_path / "weighted.sfm"]
    run("update", model, new[0], "--target", "click", "--out", outs[0])
    run("update", model, new[0], "--target", "click", "--out", outs[1], "--weight", "views")
    first, second = (sf.load(out).params["factors"] for out in outs)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["model.sfm"], 2, "Missing argument"),
        (["model.sfm", "-", "--target", "click"], 2, "reads its rows several times"),
        (["model.sfm", "0.parquet", "--validation", "1.5"], 2, "must be a share"),
        (["model.sfm", "0.parquet", "--max-loss-increase", "-1"], 2, "max-loss-increase"),
        (["model.sfm", "0.parquet", "--target", "clik"], 1, "no column 'clik'"),
        (["model.sfm", "9.parquet", "--target", "click"], 1, "9.parquet"),
        (["none.sfm", "0.parquet", "--target", "click"], 1, "no file 'none.sfm'"),
        (["0.parquet", "1.parquet", "--target", "click"], 1, "not a model file"),
        (["model.sfm", "0.parquet", "--target", "click", "--out", "no/m.sfm"], 1, "there is no folder"),
        (["model.sfm", "0.parquet", "--target", "click", "--out", "0.parquet"], 1, "would replace the input"),
        (["model.sfm", "0.parquet", "--target", "click", "--validation", "9.csv"], 1, "9.csv"),
        (["model.sfm", "0.parquet", "--target", "amount"], 1, "amount"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_told_and_change_nothing(run, model, new, arguments, code, message):
    before = model.read_bytes()
    assert message in " ".join(run("update", *arguments, code=code).output.split())
    assert model.read_bytes() == before


def test_a_sharded_model_is_updated_elsewhere(run, fitted, new, tmp_path):
    sf.ShardedModel.write(fitted, tmp_path / "sharded", parts=2)
    text = run("update", "sharded", new[0], "--target", "click", code=1).stderr
    assert "--target COLUMN --processes N" in text


class TestMaxChange:
    def test_an_update_within_the_bound_says_how_far_scores_move(self, run, model, new):
        about = json.loads(run("update", model, new[0], "--target", "click", "--max-change", "9", "--json").stdout)
        change = about["verdict"]["change"]
        assert abs(change["change"]) <= change["bound"] <= 9.0 and set(change["segment"]) == {"price", "city"}
        text = run("update", model, new[1], "--target", "click", "--max-change", "9").stdout
        assert "in any segment; found:" in text

    def test_one_beyond_it_is_refused(self, run, model, new):
        before = model.read_bytes()
        result = run("update", model, new[0], "--target", "click", "--max-change", "0", "--json", code=4)
        assert json.loads(result.stdout)["verdict"]["change"]["bound"] > 0.0
        assert "allowed: 0" in result.stderr and model.read_bytes() == before


class TestCompare:
    def test_bound_segment_and_rows(self, run, model, new, fitted):
        run("update", model, new[0], "--target", "click", "--out", "later.sfm")
        about = json.loads(run("compare", model, "later.sfm", new[1], "--json").stdout)
        assert abs(about["change"]) <= about["bound"] and about["rows"]["rows"] == 200
        assert abs(about["rows"]["change"]) <= about["bound"] + 1e-5
        assert about["bound"] == max(about["rise"]["bound"], about["fall"]["bound"])
        assert about["bound"] == sf.compare(fitted, sf.load("later.sfm")).bound
        text = run("compare", model, "later.sfm", new[1]).stdout
        assert "any segment" in text and "largest rise" in text and "200; mean |change|" in text
        assert "rows" not in json.loads(run("compare", model, "later.sfm", "--json").stdout)["segment"]

    def test_what_cannot_be_compared_is_a_message(self, run, model, table):
        other = sf.fit_model(table.select(["price", "click"]), "click", training=sf.Training(epochs=1, effort="fast"))
        other.save("other.sfm")
        assert "is in one of the models only" in run("compare", model, "other.sfm", code=1).stderr
