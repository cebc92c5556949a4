"""Exported ONNX graphs: onnxruntime gives the scores of the model, from raw columns."""

import json
import sys
from functools import cache

import numpy as np
import onnx
import onnxruntime as ort
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.transforms.bestfit import FAMILIES
from splinefm.export.onnx import bases as onnx_bases
from splinefm.export.onnx import graph as onnx_graph
from splinefm.export.onnx.bases import graph_windows
from splinefm.export.onnx.graph import Graph
from splinefm.export.onnx.transforms import count_up_to, pieces_of, to_unit
from splinefm.model.family.formula import formula_scores
from support import all_models, averages, examples, random_classes, random_fitted

MODELS = [*all_models(6), *averages()]
N = 300
RNG = np.random.default_rng(0)
TABLE = {
    "amount": RNG.exponential(30.0, N),
    "hour": RNG.random(N) * 24,
    "time": 1.6e9 + np.round(RNG.random(N) * 1e8),
    "country": RNG.choice(["US", "FR", "İL"], N),
    "shop": RNG.integers(0, 20, N),
    "tags": [list(RNG.choice(list("pqrst"), RNG.integers(0, 5))) for _ in range(N)],
}
# Missing, special, unseen and out of range; lists that are too long or have elements twice.
HOSTILE = {
    "amount": [None, 0.0, -0.0, 150.0, 149.9, -1e300, 1e300, float("nan"), 5e-324, -3.0, 12.5, 1.0],
    "hour": [0.0, 24.0, -1.0, 25.0, None, 12.0, 4.0, 8.0, 1e-9, 23.999999, 6.0, 7.0],
    "time": [1.6e9, 1.7e9, 0.0, 3e9, 1.65e9, 1.65e9 + 1, 1.65e9 + 0.001, None, -1e18, 1.6e9 + 1, 1e6, 1e300],
    "country": ["US", None, "U S", "us", "İL", "FR", "new", "missing", "rare", "<missing>", "US", "FR"],
    "shop": [0, 1, 2, None, 99, -1, 3, 4, 5, 6, 7, 10**12],
    "tags": [
        [],
        None,
        ["p"],
        ["q", "p"],
        list("pqrst"),
        ["p", "p"],
        ["new"],
        ["", "p"],
        [None],
        list("ppppq"),
        ["t"],
        [],
    ],
}


def schema(reduction):
    return sf.Schema(
        [
            sf.Numerical("amount", special=[0.0, ">= 150"], basis=sf.MultiResolution((4, 16)), reduction=reduction),
            sf.Numerical("hour", sf.MinMax(0, 24), sf.BSpline(6, periodic=True), reduction=reduction),
            sf.Numerical("time", basis=sf.BSpline(knots=(0.0, 0.1, 0.5, 1.0)), reduction=reduction),
            sf.Categorical("country"),
            sf.Categorical("shop", min_count=15),
            sf.MultiValued("tags", reduction=reduction, max_length=3),
        ]
    )


def make(fields, model, table=TABLE, loss="logistic", **of_loss):
    """A model with random parameters: nothing has to be trained for an export."""
    schema = fields if isinstance(fields, sf.Schema) else sf.Schema(fields)
    return random_fitted(model, schema, table, loss=sf.Loss(loss, **of_loss), scale=1.0)


def open_session(source):
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def export(fitted, folder, **options):
    sf.export_onnx(fitted, folder / "model.onnx", **options)
    return open_session(folder / "model.onnx")


def expected(fitted, table):
    """The scores by the formula in NumPy, for which no kernel has to be compiled."""
    return formula_scores(fitted.model, fitted.params, fitted.encoder.encode(table, threads=1))


def check(fitted, session, table, exact=expected, **options):
    """Both outputs, against the package's."""
    scores = exact(fitted, table)
    score, prediction = session.run(["score", "prediction"], sf.onnx_inputs(fitted, table, **options))
    np.testing.assert_allclose(score, scores, atol=1e-5, rtol=0)
    np.testing.assert_allclose(prediction, fitted.loss.predict(scores.astype(np.float64)), atol=1e-5, rtol=0)
    assert score.dtype == np.float32 and prediction.dtype == np.float64
    return score


@cache
def example():
    return make(schema("sum"), sf.FM(k=4))


@pytest.mark.parametrize("reduction", ["sum", "identity"])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_scores_and_predictions_are_those_of_the_model(model, reduction, tmp_path):
    fitted = make(schema(reduction), model)
    session = export(fitted, tmp_path)
    assert np.ptp(check(fitted, session, HOSTILE, sf.Fitted.scores)) > 1
    check(fitted, session, TABLE, sf.Fitted.scores)


@pytest.mark.parametrize(
    ("loss", "of_loss"),
    [
        *(("squared", {"center": 1e6, "scale": 250.0}), ("poisson", {}), ("logistic", {}), ("gamma", {"scale": 70.0})),
        *(("tweedie", {"scale": 0.2, "power": 1.2}), ("quantile", {"center": 700.0, "scale": 3.0, "quantile": 0.9})),
        ("huber", {"center": -700.0, "scale": 3.0, "delta": 2.0}),
    ],
)
def test_every_link(loss, of_loss, tmp_path):
    fitted = make(schema("sum"), sf.FM(k=2), loss=loss, **of_loss)
    fitted.params["linear"][:] *= 0.3
    score, prediction = export(fitted, tmp_path).run(None, sf.onnx_inputs(fitted, TABLE))
    np.testing.assert_allclose(score, expected(fitted, TABLE), atol=1e-5)
    np.testing.assert_allclose(prediction, fitted.loss.predict(expected(fitted, TABLE)), rtol=1e-5)
    np.testing.assert_allclose(prediction, fitted.loss.predict(score.astype(np.float64)), rtol=1e-12)


@pytest.mark.parametrize("reduction", ["sum", "identity"])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_scores_and_probabilities_of_several_classes(model, reduction, tmp_path):
    fitted = random_classes(model, schema(reduction), TABLE, ("a", "b", "c", "d"))
    session = export(fitted, tmp_path)
    assert [output.shape for output in session.get_outputs()] == [["N", 4], ["N", 4]]
    for table in (TABLE, HOSTILE):
        assert check(fitted, session, table).shape == (len(table["hour"]), 4)
    notes = session.get_modelmeta().custom_metadata_map
    assert json.loads(notes["splinefm.classes"]) == ["a", "b", "c", "d"] and "sum of exp" in notes["splinefm.link"]
    one = fitted.for_class("c")
    session = export(one, tmp_path)
    check(one, session, HOSTILE)
    notes = session.get_modelmeta().custom_metadata_map
    assert notes["splinefm.of_class"] == "c" and notes["splinefm.link"] == "0.0 + 1.0 * score"


def test_a_trained_model(tmp_path):
    table = {**TABLE, "bought": TABLE["amount"] > 20}
    training = sf.Training(epochs=2, threads=1)
    fitted = sf.fit_model(table, "bought", schema=schema("sum"), model=sf.FM(k=2), training=training)
    check(fitted, export(fitted, tmp_path), HOSTILE)


# Transforms

TRANSFORMS = [
    sf.MinMax(low=1.6e9, high=1.6e9 + 100),
    sf.MinMax(low=0, high=5e-324),
    sf.Quantile().fit(RNG.standard_cauchy(20_000)),
    sf.Quantile().fit(np.array([3.0])),
    sf.Quantile().fit(np.array([-1e300, 0.0, 1e-300, 1e300])),
    sf.Log().fit(np.array([1e-3, 1e6])),
    sf.Log().fit(np.array([-5.0, 1e6])),
    sf.Log(shift=0.0, low=1e15, high=1e15 + 2),
    sf.ArcsinhSquare().fit(np.array([-3.0, 1e6])),
    sf.ArcsinhSquare().fit(np.array([0.0, 1e-9])),
    sf.ArcsinhSquare().fit(np.array([-1e-8, 1e250])),
]
SHAPES = {
    "weibull": [(0.3,), (30.0,)],
    "gamma": [(1e-3,), (0.5,), (2.0,), (1e6,)],
    "lognormal": [(0.1,), (4.0,)],
    "log-logistic": [(0.5,), (50.0,)],
    "lomax": [(0.5,), (1e8,)],
    "beta": [(0.01, 0.5), (2.0, 3.0), (50.0, 0.1), (1e4, 1e4)],
    "kumaraswamy": [(0.5, 2.0), (20.0, 100.0)],
}
for family in FAMILIES:
    for shapes in SHAPES.get(family, [()]):
        place = (0.0, 1.0) if family in ("beta", "kumaraswamy") else (3, 20)  # integers are numbers, too
        TRANSFORMS.append(sf.BestFitCDF(family=family, params=(*place, *shapes)))


def run_function(build, x):
    """What a part of a graph makes of numbers."""
    g = Graph(17, {"x", "out"})
    g.output("out", g.cast(build(g, g.input("x", np.float64, ("N",))), np.float64), np.float64)
    return open_session(g.model("test", {}).SerializeToString()).run(None, {"x": np.asarray(x, np.float64)})[0]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda t: f"{type(t).__name__}-{getattr(t, 'family', '')}")
def test_a_transform_gives_the_same_u(transform):
    rng = np.random.default_rng(2)
    u = np.concatenate([rng.random(500), 10.0 ** -rng.uniform(0, 9, 50), 1 - 10.0 ** -rng.uniform(0, 9, 50)])
    far = 10.0 ** rng.uniform(-300, 300, 50)
    x = np.concatenate([transform.inverse(u), far, -far, [0.0, 1.0, -1.0, 1e300, -1e300, np.inf, -np.inf]])
    item = sf.Numerical("x", transform=transform)
    np.testing.assert_allclose(run_function(lambda g, x: to_unit(g, item, x), x), transform(x), atol=2e-11, rtol=0)


def test_what_has_no_operator_is_made_of_few_polynomials():
    from scipy.special import ndtr

    pieces = pieces_of(ndtr, -9.0, 9.0)
    assert len(pieces.borders) < 100
    z = np.linspace(-12, 12, 10_001)
    np.testing.assert_allclose(run_function(pieces, z), ndtr(z), atol=1e-11, rtol=0)
    with pytest.raises(ValueError, match="cannot be written"):
        pieces_of(lambda t: np.random.default_rng(0).random(len(t)), 0.0, 1.0)


def test_digits_of_timestamps_are_not_cut_off(tmp_path):
    seconds = 1_700_000_000 + np.arange(101.0)
    fitted = make([sf.Numerical("t", transform=sf.MinMax(), basis=sf.BSpline(50))], sf.FM(k=2), {"t": seconds})
    score = check(fitted, export(fitted, tmp_path), {"t": seconds + 0.25})
    assert len(np.unique(score[:-1])) == 100  # floats are 128 apart here


# Bases

BASES = [
    *(sf.BSpline(segments=7, degree=degree) for degree in range(6)),
    sf.BSpline(segments=1, degree=3),
    *(sf.BSpline(segments=5, degree=degree, periodic=True) for degree in (0, 1, 3)),
    sf.BSpline(segments=2, degree=5, periodic=True),
    *(sf.BSpline(knots=(0.0, 0.01, 0.3, 0.9, 1.0), degree=degree) for degree in (0, 1, 2, 5)),
    sf.BSpline(knots=(0.0, 0.2, 0.3, 1.0), degree=3, periodic=True),
    sf.MultiResolution((2, 8, 64)),
    sf.MultiResolution((2, 5), degree=0),
    sf.Bins(20),
    sf.Bins(1),
    sf.Bins(8, spacing="quantile"),
    sf.Bins(edges=(0.0, 5.0, 10.0, 1000.0)),
    *(sf.Polynomial(degree, family) for family in ("bernstein", "chebyshev", "legendre") for degree in (0, 1, 2, 9)),
    sf.Fourier(1),
    sf.Fourier(5),
    sf.Powers(),
    sf.Powers((0.1, 7.5)),
]


@pytest.mark.parametrize("reduction", ["sum", "identity"])
def test_every_basis(reduction, tmp_path):
    fields = [
        sf.Numerical(f"x{i}", sf.MinMax(0.0, 100.0), basis, reduction=reduction, special=[50.0])
        for i, basis in enumerate(BASES)
    ]
    x = np.concatenate([RNG.random(200) * 100, np.linspace(0, 100, 71), [-5.0, 105.0, 50.0, np.nan]])
    fitted = make(fields, sf.FwFM(k=1), {f"x{i}": x for i in range(len(BASES))})
    fitted.params["field_weights"][:] *= 0.01
    session = export(fitted, tmp_path)
    inputs = sf.onnx_inputs(fitted, {f"x{i}": x for i in range(len(BASES))})
    exact = expected(fitted, {f"x{i}": x for i in range(len(BASES))})
    # 40 fields at once, with scores of up to 100: the limit is a few units in the last place of a float.
    np.testing.assert_allclose(session.run(["score"], inputs)[0], exact, atol=1e-5, rtol=3e-6)


@examples(25)
@given(
    st.lists(st.floats(0.01, 0.99), min_size=0, max_size=9, unique=True),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)
def test_weights_of_any_spline_are_those_of_the_basis(inner, degree, periodic, uniform):
    knots = (0.0, *sorted(set(np.round(inner, 3).tolist())), 1.0)
    basis = sf.BSpline(len(knots), degree, None if uniform else knots, periodic)
    item = sf.Numerical("x", transform=sf.MinMax(0.0, 1.0), basis=basis)
    u = np.concatenate([np.linspace(0, 1, 50), knots])
    start, weight = basis(u)
    values = np.random.default_rng(0).normal(size=basis.sizes[0]).astype(np.float32)  # of the functions

    def spline(g, x):
        (window,) = graph_windows(g, item, x)
        places = g("Add", g("Unsqueeze", window.start, np.array([1])), np.arange(window.width)[None])
        weighted = g("Mul", g("Gather", values[window.functions], places), window.weight)
        return g("ReduceSum", weighted, np.array([1]), keepdims=0)

    rows = start if periodic else start + np.arange(degree + 1)
    np.testing.assert_allclose(run_function(spline, u), (values[rows] * weight).sum(axis=1), atol=1e-6)


@examples(40)
@given(st.lists(st.floats(allow_nan=False, allow_subnormal=False), max_size=70), st.data())
def test_the_binary_search_is_that_of_numpy(borders, data):
    borders = np.sort(np.array(borders, np.float64))
    x = np.array(data.draw(st.lists(st.sampled_from([*borders.tolist(), 0.0, 1.5, np.inf, -np.inf]), min_size=1)))
    found = run_function(lambda g, x: count_up_to(g, x, borders), x)
    np.testing.assert_array_equal(found, np.searchsorted(borders, x, side="right"))


STEPS = [
    sf.MinMax(low=1.6e9, high=1.6e9 + 100),
    sf.Quantile().fit(RNG.standard_cauchy(20_000)),
    sf.Log().fit(np.array([-5.0, 1e6])),
    sf.ArcsinhSquare().fit(np.array([-3.0, 1e6])),
    sf.BestFitCDF(family="exponential", params=(0, 50), scores=(("exponential", 0.0),)),
    sf.CustomTransform(lambda x: x / 24, lambda u: u * 24),
]


@pytest.mark.parametrize("transform", STEPS, ids=lambda transform: type(transform).__name__)
def test_a_value_on_a_border_falls_on_the_same_side(transform, tmp_path):
    x = transform.inverse(np.arange(1, 64) / 64)
    table = {"x": np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf)])}
    fitted = make([sf.Numerical("x", transform=transform, basis=sf.Bins(64))], sf.FM(k=1), table)
    session = export(fitted, tmp_path)
    assert len(np.unique(np.round(expected(fitted, table), 5))) > 50
    np.testing.assert_allclose(session.run(["score"], table)[0], expected(fitted, table), atol=1e-6)


def test_special_values_are_matched_exactly_and_the_first_wins(tmp_path):
    special = [1.5, "== 2", "> 100", ">= 90", "<= -90", "< -50", "negative", float("inf")]
    fitted = make([sf.Numerical("x", sf.MinMax(0, 99), special=special)], sf.FM(k=1), {"x": np.arange(99.0)})
    x = np.array(
        [1.5, np.nextafter(1.5, 2), 2, 90, 89.9, 100, 100.1, -90, -89, -50, -1, -0.0, 0, np.inf, -np.inf, np.nan]
    )
    score = check(fitted, export(fitted, tmp_path), {"x": x})
    assert score[0] != pytest.approx(score[1], abs=1e-3)
    assert len(np.unique(score[[0, 2, 3, 5, 6, 7, 8, 10, 15]])) == 8  # of >= 90, both are the same


def test_infinite_numbers_are_the_ends_of_the_range(tmp_path):
    fitted = make([sf.Numerical("x", sf.MinMax(0, 99))], sf.FM(k=1), {"x": np.arange(99.0)})
    ends = export(fitted, tmp_path).run(["score"], {"x": np.array([-np.inf, np.inf])})[0]
    np.testing.assert_allclose(ends, expected(fitted, {"x": [0.0, 99.0]}), atol=1e-6)


# Categories and lists


def test_unseen_and_missing_categories(tmp_path):
    table = {name: ["a", "b", "a", None] for name in ("rare", "neutral")}
    fields = [sf.Categorical("rare", min_count=2), sf.Categorical("neutral", unseen="neutral")]
    fitted = make(fields, sf.FFM(k=2), table)
    new = {"rare": ["a", "b", "c", None, "", "A"], "neutral": ["b", "c", "a", "", "c", None]}
    check(fitted, export(fitted, tmp_path), new)
    assert sf.onnx_inputs(fitted, new)["neutral"].tolist() == ["b", "c", "a", "<unseen>", "c", ""]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (sf.Categorical("c", unseen="error"), "z"),
        (sf.Categorical("c", missing="error"), ""),
        (sf.MultiValued("c", unseen="error", separator=" "), "z"),
        (sf.MultiValued("c", missing="error", separator=" "), "<missing>"),
        (sf.Numerical("c", missing="error"), np.nan),
        (sf.Numerical("c", missing="error", special=[1.0]), np.nan),
    ],
    ids=repr,
)
def test_what_is_an_error_here_is_one_there(field, value, tmp_path):
    text = not isinstance(field, sf.Numerical)
    table = {"c": ["a", "b"] if text else [1.0, 2.0]}
    fitted = make([field], sf.FM(k=2), table)
    session = export(fitted, tmp_path)
    check(fitted, session, table)
    row = np.array([value], object if text else np.float64)
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="out of data bounds"):
        session.run(None, {"c": row[:, None] if isinstance(field, sf.MultiValued) else row})


def test_where_the_empty_text_is_a_category_missing_is_spelled_out(tmp_path):
    table = {"c": ["", "a", "<missing>"] * 3}
    fitted = make([sf.Categorical("c")], sf.FM(k=2), table)
    session = export(fitted, tmp_path)
    check(fitted, session, {"c": ["", "a", None, "<missing>", "<<missing>>", "z"]})
    assert sf.onnx_inputs(fitted, {"c": [None]})["c"].tolist() == ["<<missing>>"]
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["splinefm.fields"])[0]["missing"] == "<<missing>>"


def test_whole_numbers_as_categories(tmp_path):
    table = {"i": [3, -7, 0, 2**62, 3], "c": list("abcab")}
    fitted = make([sf.Categorical("i"), sf.Categorical("c")], sf.FM(k=2), table)
    session = export(fitted, tmp_path, integers=["i"])
    check(fitted, session, {"i": [3, None, 99, -7, 2**62], "c": list("aabbz")}, integers=["i"])
    assert {value.name: value.type for value in session.get_inputs()} == {"i": "tensor(int64)", "c": "tensor(string)"}
    check(fitted, export(fitted, tmp_path), {"i": [3, None, 99, -7, 2**62], "c": list("aabbz")})
    with pytest.raises(ValueError, match="'c' has the category 'a', which is not an integer"):
        sf.export_onnx(fitted, tmp_path / "model.onnx", integers=["i", "c"])
    with pytest.raises(ValueError, match=r"categorical fields, which are \['i', 'c'\]; got 'x'"):
        sf.export_onnx(fitted, tmp_path / "model.onnx", integers=["x"])
    with pytest.raises(ValueError, match=r"write integers=\['i'\]"):
        sf.export_onnx(fitted, tmp_path / "model.onnx", integers="i")
    with pytest.raises(ValueError, match="something other than integers"):
        sf.onnx_inputs(fitted, {"i": ["x"], "c": ["a"]}, integers=["i"])


@pytest.mark.parametrize("name", ["007", "+1", "1.0", "", "9223372036854775808", "-9223372036854775808", "-0", "1e3"])
def test_names_that_are_not_those_of_whole_numbers(name, tmp_path):
    fitted = make([sf.Categorical("i", vocabulary=["1", name])], sf.FM(k=2), {"i": ["1", "1"]})
    with pytest.raises(ValueError, match="not an integer"):
        sf.export_onnx(fitted, tmp_path / "model.onnx", integers=["i"])


@pytest.mark.parametrize("unseen", ["rare", "neutral"])
@pytest.mark.parametrize("reduction", ["sum", "mean", "identity"])
def test_lists(reduction, unseen, tmp_path):
    lists = [
        ["p", "q"],
        ["q"],
        [],
        None,
        list("pqpq"),
        ["new", "p"],
        ["", "q", "p"],
        list("rrrrr"),
        ["r", "new", "p", "q"],
        ["<unseen>", "p"],
    ]
    table = {"tags": lists, "c": list("aabbaabbaa")}
    fitted = make([sf.MultiValued("tags", reduction=reduction, unseen=unseen, max_length=3), sf.Categorical("c")],
                  sf.FFM(k=2), table)  # fmt: skip
    new = {"tags": [*lists[:8], ["zz", "p", "q", "r"], ["<missing>", "p"]], "c": table["c"]}
    check(fitted, export(fitted, tmp_path), new)


def test_the_empty_text_is_no_element_even_if_a_vocabulary_has_it(tmp_path):
    field = sf.MultiValued("tags", vocabulary=["p", "", "q"], max_length=3)
    fitted = make([field], sf.FM(k=2), {"tags": [["p"], ["q"]]})
    check(fitted, export(fitted, tmp_path), {"tags": [["p", "", "q"], [""], [], None]})


def test_lists_may_be_padded_further_and_anywhere(tmp_path):
    fitted = make([sf.MultiValued("tags", reduction="mean", max_length=2)], sf.FM(k=2), {"tags": [["p", "q"], ["r"]]})
    session = export(fitted, tmp_path)
    wide = np.array([["", "p", "", "q", "", "r"], ["", "", "", "", "", "r"], [""] * 6], object)
    score = session.run(["score"], {"tags": wide})[0]
    np.testing.assert_allclose(score, expected(fitted, {"tags": [["p", "q", "r"], ["r"], []]}), atol=1e-6)


# Shapes, names, files


@pytest.mark.parametrize("n", [0, 1, 2, 257])
@pytest.mark.parametrize("model", [sf.FM(k=2), sf.FFM(k=2)], ids=repr)
def test_any_number_of_rows(n, model, tmp_path):
    fitted = make(schema("sum"), model)
    inputs = {name: column[:n] for name, column in sf.onnx_inputs(fitted, TABLE).items()}
    score = export(fitted, tmp_path).run(["score"], inputs)[0]
    np.testing.assert_allclose(score, expected(fitted, TABLE)[:n], atol=1e-5)


def test_inputs_of_tables_in_chunks_and_without_rows():
    empty = sf.onnx_inputs(example(), {name: [] for name in TABLE})
    assert {name: column.shape for name, column in empty.items()} == {**dict.fromkeys(TABLE, (0,)), "tags": (0, 1)}
    twice = pa.table(TABLE)
    inputs = sf.onnx_inputs(example(), pa.concat_tables([twice, twice]))
    assert all((column == np.tile(sf.onnx_inputs(example(), twice)[name], 2)).all() for name, column in inputs.items()
               if column.ndim == 1)  # fmt: skip


@pytest.mark.parametrize("model", [model for model in MODELS if model != MODELS[3]], ids=repr)
def test_a_single_field(model, tmp_path):
    fitted = make([sf.Categorical("c")], model, {"c": ["a", "b"]})
    check(fitted, export(fitted, tmp_path), {"c": ["a", "b", None, "z"]})


def test_columns_may_have_any_name(tmp_path):
    names = ["score", "prediction", "prediction_", "a b/ü"]
    table = {name: ["a", "b"] for name in names}
    fitted = make([sf.Categorical(name) for name in names], sf.FM(k=2), table)
    session = export(fitted, tmp_path)
    assert [value.name for value in session.get_inputs()] == names
    assert [value.name for value in session.get_outputs()] == ["score_", "prediction__"]
    score = session.run(["score_"], sf.onnx_inputs(fitted, table))[0]
    np.testing.assert_allclose(score, expected(fitted, table), atol=1e-5)


def test_columns_may_have_the_names_of_inner_values(tmp_path):
    def named(names):
        return make([sf.Categorical(name) for name in names], sf.FM(k=2), {name: ["a", "b"] for name in names})

    sf.export_onnx(named(["a", "b"]), tmp_path / "model.onnx")
    inner = [node.name for node in onnx.load(tmp_path / "model.onnx").graph.node if node.name.startswith("model/")]
    fitted = named(inner[:2])
    check(fitted, export(fitted, tmp_path), {name: ["b", "a", None] for name in inner[:2]})


def test_what_the_file_says_of_itself(tmp_path):
    fitted = make([sf.Numerical("x"), sf.Categorical("c")], sf.FwFM(k=2), {"x": [1.0, 2.0], "c": ["a", "b"]},
                  classes=("no", "yes"))  # fmt: skip
    sf.export_onnx(fitted, tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert (model.producer_name, model.producer_version) == ("splinefm", sf.__version__)
    assert json.loads(metadata["splinefm.fields"]) == [
        {"name": "x", "column": "x", "kind": "Numerical", "type": "double", "missing": "NaN"},
        {"name": "c", "column": "c", "kind": "Categorical", "type": "string", "missing": ""},
    ]
    assert metadata["splinefm.link"] == "1 / (1 + exp(-score))"
    assert json.loads(metadata["splinefm.classes"]) == ["no", "yes"]
    assert metadata["splinefm.model"] == "FwFM(k=2)"
    assert "FwFM(k=2) on 2 fields" in model.doc_string


@pytest.mark.parametrize("opset", [17, 18, 21])
def test_opsets(opset, tmp_path):
    fitted = example()
    check(fitted, export(fitted, tmp_path, opset=opset), HOSTILE)
    versions = {entry.domain: entry.version for entry in onnx.load(tmp_path / "model.onnx").opset_import}
    assert versions[""] == opset


@pytest.mark.parametrize("opset", [16, 10_000, 17.5, True, "17"])
def test_bad_opsets(opset, tmp_path):
    with pytest.raises(ValueError, match="opset must be an integer from 17 to"):
        sf.export_onnx(example(), tmp_path / "model.onnx", opset=opset)


@pytest.mark.parametrize(
    ("field", "what"),
    [
        (sf.Numerical("x", sf.CustomTransform(lambda x: x / 9, lambda u: u * 9)), "the transform CustomTransform"),
        (sf.Numerical("x", sf.MinMax(), sf.CustomBasis((np.sin, np.cos))), "the basis CustomBasis"),
    ],
)
def test_code_of_your_own_cannot_be_exported_but_its_bins_can(field, what, tmp_path):
    table = {"x": np.arange(10.0), "c": ["a", "b"] * 5}
    fitted = make([field, sf.Categorical("c")], sf.FFM(k=2), table)
    with pytest.raises(ValueError, match=rf"field 'x': ONNX cannot express {what}.*sf.discretize"):
        sf.export_onnx(fitted, tmp_path / "model.onnx")
    binned = sf.discretize(fitted, {"x": 200})
    check(binned, export(binned, tmp_path), {"x": np.linspace(-1, 10, 50), "c": ["a", "b"] * 25})


def test_a_subclass_is_code_of_your_own(tmp_path):
    class Doubled(sf.MinMax):
        def __call__(self, x):
            return np.clip(2 * super().__call__(x), 0, 1)

    fitted = make([sf.Numerical("x", Doubled())], sf.FM(k=2), {"x": np.arange(10.0)})
    with pytest.raises(ValueError, match="the transform Doubled"):
        sf.export_onnx(fitted, tmp_path / "model.onnx")


def test_a_new_basis_without_a_formula_in_the_export_says_so(tmp_path, monkeypatch):
    class Unknown:
        """No basis is one of these."""

    fitted = make([sf.Numerical("x", basis=sf.Fourier(1))], sf.FM(k=2), {"x": np.arange(10.0)})
    monkeypatch.setattr(onnx_bases, "Fourier", Unknown)  # the branch for sf.Fourier is gone
    with pytest.raises(ValueError, match=r"cannot express the basis Fourier.*sf.discretize"):
        sf.export_onnx(fitted, tmp_path / "model.onnx")


@pytest.mark.parametrize("field", [sf.Categorical, sf.MultiValued])
def test_hashed_categories_cannot_be_exported(field, tmp_path):
    column = ["a", "b"] if field is sf.Categorical else [["a"], ["b"]]
    fitted = make([field("c", unseen="hash", buckets=3)], sf.FM(k=2), {"c": column})
    with pytest.raises(ValueError, match=r"field 'c': ONNX has no operator for the hash.*unseen=\"rare\""):
        sf.export_onnx(fitted, tmp_path / "model.onnx")


def test_bad_arguments(tmp_path):
    with pytest.raises(TypeError, match=r"fitted must be a sf.Fitted, got dict; an estimator has one in fitted_"):
        sf.export_onnx({}, tmp_path / "model.onnx")
    with pytest.raises(IsADirectoryError, match=r"is a folder; add a file name, such as '.*model.onnx'"):
        sf.export_onnx(example(), tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        sf.export_onnx(example(), tmp_path / "no" / "model.onnx")
    with pytest.raises(ValueError, match="'amount'"):
        sf.onnx_inputs(example(), {"hour": [1.0]})


def test_a_failed_export_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.write_text("old")
    monkeypatch.setattr(onnx_graph, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1,000 bytes, more than an ONNX file can hold; raise min_count"):
        sf.export_onnx(example(), path)
    monkeypatch.undo()
    monkeypatch.setattr(onnx.checker, "check_model", lambda *args, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sf.export_onnx(example(), path)
    assert path.read_text() == "old" and [entry.name for entry in tmp_path.iterdir()] == ["model.onnx"]


def test_without_onnx_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    monkeypatch.delitem(sys.modules, "splinefm.export.onnx.graph")
    monkeypatch.delattr(sys.modules["splinefm.export.onnx"], "graph")
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'splinefm\[onnx\]'"):
        sf.export_onnx(example(), tmp_path / "model.onnx")


def test_the_same_model_gives_the_same_file(tmp_path):
    for name in ("a", "b"):
        sf.export_onnx(example(), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("scale", [1e-20, 1e-26, 1e-80, 1e-160, 1e-300])
@pytest.mark.parametrize(
    "transform", [sf.ArcsinhSquare(), sf.Log(), sf.BestFitCDF(), sf.MinMax()], ids=lambda t: type(t).__name__
)
def test_tiny_numbers_of_both_signs_score_alike(transform, scale, tmp_path):
    """ONNX Runtime drops the subtraction of a double that is 0 as a float of 32 bits."""
    x = np.random.default_rng(0).normal(size=200) * scale
    schema = sf.Schema([sf.Numerical("x", transform=transform)])
    training = sf.Training(epochs=3, threads=1, crosses=None)
    table = {"x": x, "y": np.sign(x)}
    fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    sf.export_onnx(fitted, tmp_path / "m.onnx")
    session = ort.InferenceSession(tmp_path / "m.onnx")
    score = session.run(["score"], sf.onnx_inputs(fitted, {"x": x}))[0]
    np.testing.assert_allclose(score, fitted.scores({"x": x}), atol=1e-5)


def test_a_tiny_shift_of_a_logarithm_is_refused(tmp_path):
    schema = sf.Schema([sf.Numerical("x", transform=sf.Log(shift=1e-80))])
    table = {"x": np.arange(1.0, 41.0), "y": np.tile([0.0, 1.0], 20)}
    training = sf.Training(epochs=1, threads=1, crosses=None)
    fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    with pytest.raises(ValueError, match=r"field 'x': ONNX cannot express the transform Log.*shift=1e-80"):
        sf.export_onnx(fitted, tmp_path / "m.onnx")


@pytest.mark.parametrize("texts", [["2024-01-01", "2024-01-01 00:00:00", "2024-01-02"], ["true", "True", "false"]])
@pytest.mark.parametrize("text_first", [True, False])
def test_a_column_with_two_spellings_is_refused(texts, text_first, tmp_path):
    other = "dates" if "-" in texts[0] else "booleans"
    fields = [sf.Categorical("a", column="c", values="text"), sf.Categorical("b", column="c", values=other)]
    schema = sf.Schema(fields if text_first else fields[::-1])
    table = {"c": texts * 40, "y": [0.0, 1.0, 0.5] * 40}
    training = sf.Training(epochs=1, threads=1, crosses=None)
    fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    with pytest.raises(ValueError, match=r"column 'c' is read by fields whose categories are spelled differently"):
        sf.export_onnx(fitted, tmp_path / "m.onnx")
