"""One row, one score: a row has the same score, to the bit, alone, in a list of rows, and in a table of any size."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from support import CROSSES, averages, cross_schema, cross_table, examples, one_of_each, random_classes, random_fitted

BASES = (
    *(sf.BSpline(7, degree) for degree in (0, 1, 2, 3, 5)),
    sf.BSpline(5, degree=2, periodic=True),
    sf.BSpline(degree=3, knots=(0.0, 0.1, 0.11, 0.9, 1.0)),
    sf.MultiResolution((8, 32)),
    sf.Bins(9, "quantile"),
    sf.Polynomial(4, "legendre"),
    sf.Fourier(3),
)
TRANSFORMS = (sf.MinMax(), sf.Quantile(), sf.Log(), sf.ArcsinhSquare(), sf.BestFitCDF(family="gamma"))
NUMBERS = st.one_of(st.none(), st.floats(-1.0, 12.0), st.sampled_from([0.0, 3.0, 1e300, -1e300, 5e-324, np.nan]))
WORDS = st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "c", "new", ""]), max_size=6))
COLUMNS = {"x": NUMBERS, "z": NUMBERS, "c": st.sampled_from(["u", "v", None, "new"]), "tags": WORDS, "more": WORDS}


def made(transform, basis, model, reduction):
    schema = sf.Schema(
        [
            sf.Numerical("x", transform, basis, special=[3.0, "< -0.5"], reduction=reduction),
            sf.Categorical("c", unseen="neutral"),
            sf.Numerical("z", transform, sf.BSpline(3)),
            sf.MultiValued("tags", reduction="mean"),
            sf.MultiValued("more", reduction=reduction, unseen="neutral", max_length=3),
            sf.Cross(sf.Numerical("x", sf.MinMax(), sf.BSpline(3)), sf.Categorical("c"), min_count=1),
        ]
    )
    rng = np.random.default_rng(0)
    table = {
        "x": rng.gamma(2.0, 1.5, 200) + 0.01,
        "z": rng.gamma(2.0, 1.5, 200) + 0.01,
        "c": rng.choice(["u", "v"], 200).tolist(),
        "tags": [rng.choice(list("abc"), rng.integers(0, 4)).tolist() for _ in range(200)],
    }
    return random_fitted(model, schema, {**table, "more": table["tags"]})


def check(fitted, rows):
    types = {"tags": pa.list_(pa.string()), "more": pa.list_(pa.string()), "c": pa.string()}
    table = {name: pa.array([row[name] for row in rows], types.get(name, pa.float64())) for name in rows[0]}
    scores, scorer = fitted.scores(table, watch=False, threads=1), fitted.scorer()
    np.testing.assert_array_equal(scorer.many(rows), scores)
    np.testing.assert_array_equal([scorer(row) for row in rows], scores)
    one = {name: column[-1:] for name, column in table.items()}
    np.testing.assert_array_equal(fitted.scores(one, watch=False), scores[-1:])
    many = {name: pa.concat_arrays([column] * 700) for name, column in table.items()}
    np.testing.assert_array_equal(
        fitted.scores(many, watch=False, threads=2), np.tile(scores, (700, *[1] * (scores.ndim - 1)))
    )


@examples(120)
@given(
    transform=st.sampled_from(TRANSFORMS),
    basis=st.sampled_from(BASES),
    model=st.sampled_from([*one_of_each(6), *averages(), sf.FM(k=16), sf.FwFM(k=10), sf.FFM(k=8), sf.FmFM(k=8)]),
    reduction=st.sampled_from(["sum", "identity"]),
    rows=st.lists(st.fixed_dictionaries(COLUMNS), min_size=1, max_size=12),
)
def test_any_field_and_model(transform, basis, model, reduction, rows):
    check(made(transform, basis, model, reduction), rows)


@examples(40)
@given(st.lists(st.sampled_from(sorted(CROSSES)), unique=True, max_size=3), st.integers(0, 6), st.integers(0, 9))
def test_any_crosses(kinds, model, seed):
    models = one_of_each(len(cross_schema(*kinds).fields))
    fitted = random_fitted(models[model], cross_schema(*kinds), cross_table(200), seed=seed, scale=0.4)
    table = cross_table(60, seed, strange=True)
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    np.testing.assert_array_equal(fitted.scorer().many(rows), fitted.scores(table, watch=False))


def test_several_classes():
    table = cross_table(100)
    fitted = random_classes(sf.FwFM(k=4), cross_schema("category × number"), table)
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    np.testing.assert_array_equal(fitted.scorer().many(rows), fitted.scores(table))


@pytest.mark.parametrize("scale", [1e-20, 1e-40])
def test_numbers_that_are_almost_zero(scale):
    """Kernels flush denormal numbers to zero, in threads and alone."""
    schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(4)), sf.Categorical("c")])
    table = {"x": np.linspace(0.0, 1.0, 600), "c": ["a", "b"] * 300}
    fitted = random_fitted(sf.FM(k=4), schema, table)
    for values in fitted.params.values():
        values *= np.float32(scale)
    table["x"] = np.append(np.linspace(0.0, 1.0, 598) * 1e-14, [1.0 - 1e-14, np.nextafter(1.0, 0.0)])
    rows = [{"x": float(x), "c": c} for x, c in zip(*table.values(), strict=True)]
    np.testing.assert_array_equal(fitted.scorer().many(rows), fitted.scores(table, threads=2, watch=False))


def test_a_weight_below_the_normal_numbers_is_no_term():
    """The last function of a spline is -1e-42 at the end of this transform."""
    row = {"x": None, "z": None, "c": "u", "tags": None, "more": None}
    check(made(sf.Log(), sf.BSpline(7, 3), sf.FwFM(k=4), "identity"), [row, {**row, "x": 1e300}])
