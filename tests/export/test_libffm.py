"""Models and rows for libffm: the files alone, scored by the published formula, give the scores of the model."""

import json
import struct
from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_matrix

import splinefm as sf
from splinefm.export import libffm as module
from splinefm.model.family.formula import formula_scores
from support import all_models, averages, random_params

MODELS = [*all_models(5)[:7], averages()[0]]
N = 200
RNG = np.random.default_rng(0)
TABLE = {
    "amount": RNG.exponential(30.0, N),
    "hour": RNG.random(N) * 24,
    "country": RNG.choice(["US", "FR", "İL"], N),
    "shop": RNG.integers(0, 20, N),
    "tags": [list(RNG.choice(list("pqrst"), RNG.integers(0, 5))) for _ in range(N)],
}
HOSTILE = {
    "amount": [None, 0.0, 150.0, 149.9, -1e300, 1e300, 5e-324, 12.5],
    "hour": [0.0, 24.0, -1.0, 25.0, None, 12.0, 1e-9, 6.0],
    "country": ["US", None, "", "us", "İL", "FR", "a:b c", "US"],
    "shop": [0, 1, None, 99, -1, 3, 4, 10**12],
    "tags": [[], None, ["p"], list("pqrst"), ["p", "p"], ["new"], ["", "p"], list("ppppq")],
}


def schema(reduction, lists=None):
    return sf.Schema(
        [
            sf.Numerical("amount", special=[0.0, ">= 150"], basis=sf.MultiResolution((4, 16)), reduction=reduction),
            sf.Numerical("hour", sf.MinMax(0, 24), sf.BSpline(6, periodic=True), reduction=reduction),
            sf.Categorical("country", unseen="neutral"),
            sf.Categorical("shop", min_count=11, unseen="hash", buckets=3),
            sf.MultiValued("tags", reduction=lists or reduction, max_length=3),
        ]
    )


def make(fields, model, table=TABLE, **loss):
    encoder = sf.fit_encoder(fields if isinstance(fields, sf.Schema) else sf.Schema(fields), table, threads=1)
    params = random_params(model, encoder.layout, 1, scale=1.0, spread=0.5)
    if "field_weights" in params:  # of either sign, but not between two vectors of one field
        f = np.arange(len(encoder.layout.fields))
        params["field_weights"][..., f, f] = np.abs(params["field_weights"][..., f, f])
    return sf.Fitted(encoder, model, params, sf.Loss(**loss))


def expected(fitted, table):
    """The scores by the formula in NumPy, for which no kernel has to be compiled."""
    return formula_scores(fitted.model, fitted.params, fitted.encoder.encode(table, threads=1))


@cache
def example():
    return make(schema("sum"), sf.FFM(k=2))


# A reader of the files that knows nothing of splinefm, and the formula of libffm


def read_model(path):
    lines = path.read_text().splitlines()
    sizes = dict(line.split() for line in lines[:4])
    assert list(sizes) == ["n", "m", "k", "normalization"] and sizes["normalization"] == "0"
    n, m, k = (int(sizes[name]) for name in "nmk")
    assert len(lines) == 4 + n * m
    w = np.empty((n, m, k))
    for place, line in enumerate(lines[4:]):
        name, *numbers = line.split()
        assert name == f"w{place // m},{place % m}"
        w[place // m, place % m] = [float(number) for number in numbers]
    return w


def read_rows(path):
    for line in path.read_text().splitlines():
        label, *nodes = line.split(" ")
        triples = [node.split(":") for node in nodes]
        yield label, [(int(field), int(feature), float(value)) for field, feature, value in triples]


def libffm_score(w, nodes, same_field=True):
    total = 0.0
    for i, (f1, j1, v1) in enumerate(nodes):
        for f2, j2, v2 in nodes[i + 1 :]:
            if same_field or f1 != f2:
                total += v1 * v2 * float(w[j1, f2] @ w[j2, f1])
    return total


def scores_from_files(fitted, table, folder, **options):
    sf.export_libffm(fitted, folder / "model.ffm", raw=True)
    sf.export_libffm_rows(fitted, table, folder / "rows.txt")
    w = read_model(folder / "model.ffm")
    return np.array([libffm_score(w, nodes, **options) for _, nodes in read_rows(folder / "rows.txt")])


@pytest.mark.parametrize(
    ("model", "reduction"),
    # An FmFM has no counterpart with pairs within a field, see below.
    [
        *((model, "sum") for model in MODELS),
        *((model, "identity") for model in MODELS if not isinstance(model, sf.FmFM)),
    ],
    ids=repr,
)
def test_the_formula_gives_the_scores_of_the_model(model, reduction, tmp_path):
    fitted = make(schema(reduction), model)
    np.testing.assert_allclose(scores_from_files(fitted, HOSTILE, tmp_path), fitted.scores(HOSTILE), atol=1e-5)
    first = {name: column[:40] for name, column in TABLE.items()}
    np.testing.assert_allclose(scores_from_files(fitted, first, tmp_path), fitted.scores(first), atol=1e-5)


def test_weights_between_vectors_of_one_field_are_those_of_the_model(tmp_path):
    fitted = make(schema("identity"), sf.FwFM(k=2))
    np.testing.assert_allclose(scores_from_files(fitted, HOSTILE, tmp_path), fitted.scores(HOSTILE), atol=1e-5)


def test_means_of_lists(tmp_path):
    fitted = make(schema("sum", "mean"), sf.FwFM(k=2))
    np.testing.assert_allclose(scores_from_files(fitted, HOSTILE, tmp_path), expected(fitted, HOSTILE), atol=1e-5)


def test_sums_do_not_need_pairs_within_a_field(tmp_path):
    # Some programs leave them out, and some do not.
    scores = scores_from_files(example(), HOSTILE, tmp_path, same_field=False)
    np.testing.assert_allclose(scores, expected(example(), HOSTILE), atol=1e-5)


def test_simulated_bins_are_one_feature_each(tmp_path):
    binned = sf.discretize(make(schema("identity"), sf.FFM(k=2)), {"amount": 50, "hour": 24})
    np.testing.assert_allclose(scores_from_files(binned, HOSTILE, tmp_path), expected(binned, HOSTILE), atol=1e-5)
    for _, nodes in read_rows(tmp_path / "rows.txt"):
        assert [value for field, _, value in nodes if field < 2] == [1.0, 1.0]


def test_a_trained_model(tmp_path):
    table = {**TABLE, "bought": TABLE["amount"] > 20}
    training = sf.Training(epochs=2, threads=1)
    fitted = sf.fit_model(table, "bought", schema=schema("sum"), model=sf.FM(k=2), training=training)
    np.testing.assert_allclose(scores_from_files(fitted, HOSTILE, tmp_path), expected(fitted, HOSTILE), atol=1e-5)


# The binary file, and the program that reads it


def read_binary(path):
    content = path.read_bytes()
    n, m, k, normalization = struct.unpack_from("<iii?", content)
    assert not normalization
    aligned = -(-k // 4) * 4
    weights = np.frombuffer(content[13:], "<f4").reshape(n, m, aligned // 4, 2, 4)
    assert (weights[:, :, :, 1] == 1.0).all()
    return weights[:, :, :, 0].reshape(n, m, aligned)[:, :, :k], weights


@pytest.mark.parametrize("model", [sf.FFM(k=1), sf.FFM(k=4), sf.FM(k=5), sf.FM(k=9)], ids=repr)
def test_the_binary_file_has_the_same_vectors(model, tmp_path):
    fitted = make(schema("sum"), model)
    sf.export_libffm(fitted, tmp_path / "text")
    sf.export_libffm(fitted, tmp_path / "binary", format="binary")
    vectors, padded = read_binary(tmp_path / "binary")
    assert np.array_equal(vectors, read_model(tmp_path / "text").astype(np.float32))
    assert np.count_nonzero(padded[:, :, :, 0]) == np.count_nonzero(vectors)


def packed(array):
    """Arrays of pylibffm under NumPy 2 have strides of 0, though the memory behind them is right."""
    return np.lib.stride_tricks.as_strided(array, array.shape, (array.itemsize,)).copy()


@pytest.mark.parametrize("reduction", ["sum", "identity"])
@pytest.mark.parametrize("model", [sf.FM(k=4), sf.FwFM(k=5), sf.FFM(k=3)], ids=repr)
def test_libffm_itself_predicts_the_same(model, reduction, tmp_path):
    pylibffm = pytest.importorskip("pylibffm", reason="libffm is not installed: pip install pylibffm")
    fitted = make(schema(reduction), model)
    sf.export_libffm(fitted, tmp_path / "model.ffm", format="binary")
    sf.export_libffm_rows(fitted, TABLE, tmp_path / "rows.txt")
    rows = [nodes for _, nodes in read_rows(tmp_path / "rows.txt")]
    theirs = pylibffm.load(str(tmp_path / "model.ffm"))
    fields = np.zeros(theirs.n, np.int32)
    for f, feature, _ in (node for nodes in rows for node in nodes):
        fields[feature] = f
    ends = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    features = np.array([node[1] for nodes in rows for node in nodes], np.int32)
    values = np.array([node[2] for nodes in rows for node in nodes], np.float32)
    theirs.W = packed(theirs.W)
    predicted = packed(theirs.predict(csr_matrix((values, features, ends), (len(rows), theirs.n)), fields))
    np.testing.assert_allclose(predicted, fitted.loss.predict(expected(fitted, TABLE)), atol=2e-6)


# The map


def encode_by_map(fields, row):
    """Nodes of a row from the map alone, for fields of bins and of categories."""
    for field in fields:
        value, first, tokens = row[field["name"]], field["first_feature"], field["tokens"]
        if value is None:
            place = tokens.index("missing")
        elif field["kind"] == "numerical":
            special = [i for i, rule in enumerate(tokens) if rule != "missing" and eval(f"{value!r} {rule}")]
            edges = [float(edge) for edge in field["edges"]]
            place = special[0] if special else len(tokens) + int(np.searchsorted(edges, value, side="right"))
        elif str(value) in field["categories"]:
            place = len(tokens) + field["categories"].index(str(value))
        else:
            place = tokens.index("rare")
        yield field["field"], first + place, 1.0


def test_the_map_tells_what_every_feature_stands_for(tmp_path):
    fields = [
        sf.Numerical("amount", sf.Log(), sf.Bins(edges=(1.0, 2.0, 4.0, 900.0, 1000.0)), special=[0.0, ">= 150"]),
        sf.Numerical("hour", basis=sf.Bins(24, "quantile")),
        sf.Categorical("country"),
        sf.Categorical("shop", min_count=11),
    ]
    fitted = make(fields, sf.FwFM(k=2), classes=(False, True))
    sf.export_libffm(fitted, tmp_path / "model.ffm")
    described = json.loads((tmp_path / "model.ffm.json").read_text())
    n, m, k = read_model(tmp_path / "model.ffm").shape
    assert described["libffm"] == {"format": "text", "n": n, "m": m, "k": k, "normalization": False}
    assert described["prediction"]["classes"] == ["False", "True"]
    table = {"amount": [0.0, 1.0, 2.0, 3.9, 150.0, None], "hour": [0.5, 7.0, 8.0, 23.0, None, 1.0],
             "country": ["US", "FR", "İL", None, "new", "US"], "shop": [0, 5, 19, 77, None, 3]}  # fmt: skip
    sf.export_libffm_rows(fitted, table, tmp_path / "rows.txt")
    constant = [tuple(map(int, node.split(":"))) for node in described["in_every_row"].split()]
    for i, (_, nodes) in enumerate(read_rows(tmp_path / "rows.txt")):
        row = {name: column[i] for name, column in table.items()}
        assert nodes == [*encode_by_map(described["fields"], row), *constant]


def test_the_map_describes_splines_and_lists(tmp_path):
    sf.export_libffm(example(), tmp_path / "model.ffm")
    amount, hour, country, shop, tags = json.loads((tmp_path / "model.ffm.json").read_text())["fields"]
    assert amount["tokens"] == ["== 0.0", ">= 150", "missing"]
    assert (amount["functions"], hour["functions"]) == (7 + 19, 6)
    assert hour["transform"] == {"kind": "MinMax", "low": 0, "high": 24}
    assert hour["basis"]["kind"] == "BSpline" and hour["basis"]["periodic"] is True
    assert country["unseen"] == "neutral" and country["tokens"] == ["missing"]
    assert shop["tokens"] == ["missing", "bucket 0", "bucket 1", "bucket 2"]
    assert (tags["kind"], tags["reduction"], tags["max_length"]) == ("multi-valued", "sum", 3)


def test_code_of_your_own_is_named(tmp_path):
    field = sf.Numerical("x", sf.CustomTransform(lambda x: x / 9, lambda u: u * 9), sf.CustomBasis((np.sin, np.cos)))
    fitted = make([field, sf.Categorical("c")], sf.FM(k=2), {"x": np.arange(10.0), "c": list("ab" * 5)})
    table = {"x": [0.0, 4.5], "c": ["a", None]}
    np.testing.assert_allclose(scores_from_files(fitted, table, tmp_path), expected(fitted, table), atol=1e-5)
    described = json.loads((tmp_path / "model.ffm.json").read_text())["fields"][0]
    assert "CustomTransform" in described["transform"] and "CustomBasis" in described["basis"]


# Rows


def test_labels(tmp_path):
    fitted = make([sf.Categorical("c")], sf.FM(k=2), {"c": ["a", "b"]}, classes=("no", "yes"))
    table = {"c": ["a", "b", None], "y": ["yes", "no", "yes"]}
    sf.export_libffm_rows(fitted, table, tmp_path / "rows.txt", target="y")
    assert [label for label, _ in read_rows(tmp_path / "rows.txt")] == ["1", "0", "1"]
    with pytest.raises(ValueError, match="'maybe'"):
        sf.export_libffm_rows(fitted, {"c": ["a"], "y": ["maybe"]}, tmp_path / "rows.txt", target="y")
    with pytest.raises(ValueError, match="the target 'y' has missing values"):
        sf.export_libffm_rows(fitted, {"c": ["a", "b"], "y": ["yes", None]}, tmp_path / "rows.txt", target="y")
    with pytest.raises(ValueError, match="'z'"):
        sf.export_libffm_rows(fitted, table, tmp_path / "rows.txt", target="z")
    with pytest.raises(ValueError, match="the target 'c' is a field"):
        sf.export_libffm_rows(fitted, table, tmp_path / "rows.txt", target="c")
    assert len(list(read_rows(tmp_path / "rows.txt"))) == 3  # the file of before


def test_labels_that_are_numbers(tmp_path):
    table = {"c": ["a", "b"], "y": [0.25, 1.0]}
    fitted = make([sf.Categorical("c")], sf.FM(k=2), {"c": ["a", "b"]})
    with pytest.raises(ValueError, match=r"labels 0 and 1 only, the target 'y' has 0.25"):
        sf.export_libffm_rows(fitted, table, tmp_path / "rows.txt", target="y")
    squared = make([sf.Categorical("c")], sf.FM(k=2), {"c": ["a", "b"]}, name="squared")
    sf.export_libffm_rows(squared, table, tmp_path / "rows.txt", target="y")
    assert [label for label, _ in read_rows(tmp_path / "rows.txt")] == ["0.25", "1"]


def test_numbers_are_written_with_all_their_digits(tmp_path):
    """A float32 takes nine digits; six are within the tolerance of scores."""
    fitted = make(schema("sum"), sf.FM(k=2), name="squared")
    table = {**TABLE, "y": RNG.normal(size=N).astype(np.float32)}
    sf.export_libffm_rows(fitted, table, tmp_path / "rows.txt", target="y")
    weights = fitted.encoder.encode(TABLE, threads=1).weight
    assert len(np.unique(weights)) > N
    for label, nodes, y, expected in zip(
        *zip(*read_rows(tmp_path / "rows.txt"), strict=True), table["y"], weights, strict=True
    ):
        assert np.float32(label) == y
        values = np.array([value for _, _, value in nodes[:-2]], np.float32)
        np.testing.assert_array_equal(values, expected[expected != 0.0])


def test_no_rows_and_several_chunks(tmp_path, monkeypatch):
    fitted = make([sf.Categorical("c")], sf.FM(k=2), {"c": ["a", "b"]})
    sf.export_libffm_rows(fitted, {"c": []}, tmp_path / "rows.txt")
    assert (tmp_path / "rows.txt").read_text() == ""
    sf.export_libffm_rows(fitted, {"c": list("abcde")}, tmp_path / "whole.txt")
    monkeypatch.setattr(module, "CHUNK", 2)
    sf.export_libffm_rows(fitted, {"c": list("abcde")}, tmp_path / "rows.txt")
    assert (tmp_path / "rows.txt").read_text() == (tmp_path / "whole.txt").read_text()


def test_blocks_of_table_rows_make_no_difference(tmp_path, monkeypatch):
    sf.export_libffm(example(), tmp_path / "whole")
    monkeypatch.setattr(module, "_ROWS", 3)
    sf.export_libffm(example(), tmp_path / "blocks")
    assert (tmp_path / "whole").read_text() == (tmp_path / "blocks").read_text()


# What cannot be exported


def test_what_libffm_has_no_counterpart_of(tmp_path):
    path = tmp_path / "model.ffm"
    with pytest.raises(ValueError, match=r"products of up to 3; use sf.export_onnx"):
        sf.export_libffm(make(schema("sum"), sf.HigherOrderFM(k=2, order=3)), path)
    with pytest.raises(ValueError, match=r"two fields only, FwFM\(k=2, third=1\) has products of up to 3; use sf.exp"):
        sf.export_libffm(make(schema("sum"), sf.FwFM(k=2, third=1)), path)
    with pytest.raises(ValueError, match=r"'amount' has reduction=\"identity\".*matrix.*sf.discretize"):
        sf.export_libffm(make(schema("identity"), sf.FmFM(k=2)), path)
    negative = make(schema("sum", "identity"), sf.FwFM(k=2))
    negative.params["field_weights"][4, 4] = -0.5
    with pytest.raises(ValueError, match=r"'tags'.*negative weight \(-0.5\).*reduction=\"sum\""):
        sf.export_libffm(negative, path)
    assert not list(tmp_path.iterdir())


def test_other_losses_only_as_raw_scores(tmp_path):
    fitted = make(schema("sum"), sf.FM(k=2), name="squared", center=3.0, scale=2.0)
    with pytest.raises(ValueError, match="not a prediction of a model with the squared loss"):
        sf.export_libffm(fitted, tmp_path / "model.ffm")
    np.testing.assert_allclose(scores_from_files(fitted, HOSTILE, tmp_path), expected(fitted, HOSTILE), atol=1e-5)
    prediction = json.loads((tmp_path / "model.ffm.json").read_text())["prediction"]
    assert prediction["formula"] == "center + scale * score" and prediction["center"] == 3.0


def test_bad_arguments(tmp_path):
    with pytest.raises(TypeError, match=r"fitted must be a sf.Fitted, got str"):
        sf.export_libffm("model.sfm", tmp_path / "model.ffm")
    with pytest.raises(TypeError, match=r"fitted must be a sf.Fitted, got dict"):
        sf.export_libffm_rows({}, TABLE, tmp_path / "rows.txt")
    with pytest.raises(ValueError, match="format must be one of 'text', 'binary', got 'json'"):
        sf.export_libffm(example(), tmp_path / "model.ffm", format="json")
    with pytest.raises(IsADirectoryError, match="is a folder; add a file name"):
        sf.export_libffm(example(), tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        sf.export_libffm(example(), tmp_path / "no" / "model.ffm")
    with pytest.raises(ValueError, match="'hour'"):
        sf.export_libffm_rows(example(), {"amount": [1.0]}, tmp_path / "rows.txt")


def test_a_failed_export_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.ffm"
    path.write_text("old")
    broken = make([sf.Categorical("c")], sf.FM(k=2), {"c": ["a", "b"]})
    broken.params["factors"][-1, 0] = np.inf
    with pytest.raises(ValueError, match="contain NaN or infinity; refit it"):
        sf.export_libffm(broken, path)
    assert path.read_text() == "old" and [entry.name for entry in tmp_path.iterdir()] == ["model.ffm"]


def test_numbers_too_small_for_readers_of_text_are_zero(tmp_path):
    fitted = make([sf.Categorical("c"), sf.Categorical("d")], sf.FM(k=2), {"c": ["a", "b"], "d": ["a", "b"]})
    fitted.params["factors"][:] = 1e-44
    sf.export_libffm(fitted, tmp_path / "model.ffm")
    assert "e-4" not in (tmp_path / "model.ffm").read_text()


@pytest.mark.parametrize("model", [sf.FM(k=2), sf.FFM(k=1)], ids=repr)
def test_a_single_field(model, tmp_path):
    fitted = make([sf.Categorical("c")], model, {"c": ["a", "b"]})
    table = {"c": ["a", "b", None, "z"]}
    np.testing.assert_allclose(scores_from_files(fitted, table, tmp_path), expected(fitted, table), atol=1e-6)
