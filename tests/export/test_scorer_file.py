"""The scorer file in the C library: scores equal `Scorer`'s, to the bit; bad files and values are errors."""

import contextlib
import ctypes
import math
import struct
import threading
import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from c_library import (
    ERROR_ARGUMENT,
    ERROR_FILE,
    ERROR_VALUE,
    CallError,
    CError,
    CItems,
    CScorer,
    CValue,
    Values,
    check,
    library,
)
from support import CROSSES, averages, cross_schema, cross_table, examples, one_of_each, random_classes, random_fitted

NAN = math.nan
# Values of every kind that fields may meet; not those that only Python has.
NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.5, -3.0, 75.0, 7, True, None, NAN, 1e300, -1e300, 5e-324, 2**60]),
    st.floats(-20, 60),
    st.floats(allow_infinity=False),
)
NAMES = st.one_of(st.sampled_from(["u", "v", "w", "", "never seen", "naïve", None, "u\0v", "x" * 300]), st.text())
CODES = st.one_of(
    st.sampled_from(
        [0, 1, 3, 3.0, "3", " +3.00", "03", "1e0", ".5", "0.50", True, False, "TRUE ", 2.5, 1e20, -4, None]
    ),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_infinity=False),
    st.floats(1e-9, 1e17).map(str),
    st.from_regex(r"\A\s?[+-]?[0-9]{0,4}\.?[0-9]{0,3}(e[+-]?[0-9]{1,2})?\s?\Z"),
)
WORDS = st.one_of(
    st.none(),
    st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "c", "", "new"]), st.text(max_size=3)), max_size=9),
)
TEXTS = st.one_of(
    st.sampled_from(["a|b", " a | b |", "", None, "|", "new|a", ["a", " b "], "c|c|c|c|c|c", "\u2003a\u00a0|\u1680b"]),
    st.text(alphabet="ab| \u3000\x1f\x85é", max_size=12),
)
WHOLE = st.one_of(
    st.none(),
    st.lists(st.one_of(st.none(), st.integers(-1, 5)), max_size=5),
    st.lists(st.one_of(st.none(), st.sampled_from([1.0, 2.5, NAN, 1e-7])), max_size=5),
    st.lists(st.sampled_from(["1", "2.0", " 2", "x"]), max_size=5),
)
FLAGS = st.sampled_from([True, False, "True", " false", "1", 0, 1.0, "yes", None, "0.0", 2])
DAYS = st.sampled_from(["2024-01-01", "2024-01-02", "2024-01-01 12:30:00", "2030-05-05", "2024-02-30", "soon", None])
SECONDS = st.one_of(st.none(), st.integers(-(10**10), 10**10), st.floats(-1e10, 1e10), st.just(NAN))
VALUES = {
    **dict.fromkeys(("special", "levels", "apart", "knots", "polynomial", "hour", "bins"), NUMBERS),
    **{"name": NAMES, "code": CODES, "hashed": NAMES, "hashed code": CODES, "neutral": CODES, "flag": FLAGS},
    **{"day": DAYS, "tags": WORDS, "text": TEXTS, "whole": WHOLE, "seen_at": SECONDS},
}


def make_schema(reduction="sum"):
    averaged = "mean" if reduction == "sum" else reduction
    return sf.Schema(
        [
            sf.Numerical("special", sf.MinMax(), sf.BSpline(5), special=[0.0, "negative", ">= 50"]),
            sf.Categorical("name", min_count=2),
            sf.Numerical("levels", sf.Quantile(knots=20), sf.MultiResolution((2, 4)), reduction=reduction),
            sf.MultiValued("tags", reduction=averaged),
            sf.Numerical("apart", sf.BestFitCDF(family="normal"), sf.BSpline(4, degree=2), reduction="identity"),
            sf.Categorical("code"),
            sf.Numerical("knots", sf.Log(), sf.BSpline(knots=(0.0, 0.2, 0.7, 1.0)), reduction=reduction),
            sf.Numerical("polynomial", sf.ArcsinhSquare(), sf.Polynomial(4, "chebyshev"), reduction=reduction),
            sf.Categorical("hashed", unseen="hash", buckets=3),
            sf.Categorical("hashed code", unseen="hash", buckets=7, values="numbers"),
            sf.Numerical("hour", sf.MinMax(low=0, high=24), sf.BSpline(6, periodic=True), reduction=reduction),
            sf.Numerical("bins", sf.Quantile(), sf.Bins(6, "quantile"), reduction=reduction),
            sf.MultiValued("text", separator="|", reduction=averaged, unseen="neutral"),
            sf.Categorical("neutral", unseen="neutral"),
            sf.Categorical("flag", unseen="hash", buckets=2),
            sf.Categorical("day"),
            sf.MultiValued("whole", max_length=3, reduction=reduction, unseen="hash", buckets=4),
            sf.Timestamp("seen_at"),
        ]
    )


def make_table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    table = {name: rng.normal(3.0, 2.0, n).tolist() for name, values in VALUES.items() if values is NUMBERS}
    table["name"], table["hashed"] = rng.choice(["u", "v", "w"], (2, n)).tolist()
    table["code"] = rng.choice([0, 1, 3, 12], n).tolist()
    table["hashed code"] = rng.choice(["0.5", "3.0", "-1", "1e+20"], n).tolist()
    table["neutral"] = rng.choice(["0", "1", "3", "true", "2.5", "1e+20", "u", "9007199254740992"], n).tolist()
    table["flag"] = (rng.random(n) < 0.5).tolist()
    table["day"] = rng.choice(["2024-01-01", "2024-01-02", "2024-01-01 12:30:00"], n).tolist()
    table["tags"] = [rng.choice(list("abc"), rng.integers(0, 4)).tolist() for _ in range(n)]
    table["text"] = ["|".join(rng.choice(list("abc"), rng.integers(0, 4))) for _ in range(n)]
    table["whole"] = [rng.choice(4, rng.integers(0, 5)).tolist() for _ in range(n)]
    table["seen_at"] = pa.array(rng.integers(0, 2**31, n), pa.timestamp("s"))
    return table


MODELS = [*one_of_each(21), *averages()]


@pytest.fixture(scope="module", params=[*range(len(MODELS)), "softmax", "identity"])
def opened(request, tmp_path_factory):
    """A model of every kind with its scorers."""
    if request.param == "softmax":
        fitted = random_classes(sf.FwFM(k=8), make_schema(), make_table())
    elif request.param == "identity":
        fitted = random_fitted(sf.FFM(k=4), make_schema("identity"), make_table(), loss="gamma")
    else:
        fitted = random_fitted(MODELS[request.param], make_schema(), make_table())
    path = tmp_path_factory.mktemp("scorer") / "model.sfs"
    fitted.export_scorer(path)
    with CScorer(path) as scorer:
        yield fitted, fitted.scorer(), scorer


def same(actual, expected):
    """Whether all bits are equal; NaN of any sign are."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual.view(np.int64), expected.view(np.int64))


class TestScores:
    @examples(120)
    @given(rows=st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=4))
    def test_they_are_those_of_the_scorer_to_the_bit(self, opened, rows):
        _, scorer, c = opened
        same(c.score(rows), scorer.many(rows))
        same(c.score(rows, link=True), scorer.many(rows, link=True))

    @examples(40)
    @given(
        context=st.fixed_dictionaries(VALUES),
        names=st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=6, unique=True),
        data=st.data(),
    )
    def test_a_context_with_items_is_whole_rows(self, opened, context, names, data):
        _, scorer, c = opened
        item = st.fixed_dictionaries({name: VALUES[name] for name in names})
        items = data.draw(st.lists(item, min_size=1, max_size=4))
        expected = scorer.many([{**context, **item} for item in items])
        same(c.score_items({name: value for name, value in context.items() if name not in names}, items), expected)

    def test_no_rows(self, opened):
        assert len(opened[2].score([])) == 0

    def test_it_describes_itself(self, opened):
        fitted, _, c = opened
        lib, handle = c.lib, c.handle
        assert c.columns == list(dict.fromkeys(name for item in fitted.encoder.fields for name in item.columns))
        assert lib.sfm_n_fields(handle) == len(fitted.encoder.fields)
        assert c.field(0) == ("special", 0, ["special"], True, None)
        assert c.field(3) == ("tags", 2, ["tags"], True, None)
        assert c.field(18)[:3] == ("seen_at.hour", 0, ["seen_at"])
        assert [c.field(f)[4] for f in range(17, 21)] == ["trend", "hour", "weekday", "yearday"]
        assert lib.sfm_n_outputs(handle) == fitted.n_outputs
        assert lib.sfm_link(handle).decode() == fitted.loss.link
        assert lib.sfm_model(handle).decode() == fitted.model.kind
        assert lib.sfm_written_by(handle).decode() == sf.__version__
        labels = [] if fitted.classes is None else [str(label) for label in fitted.classes]
        found = [lib.sfm_class_name(handle, i).decode() for i in range(lib.sfm_n_classes(handle))]
        assert found == labels
        assert lib.sfm_find_column(handle, b"code") == c.columns.index("code")
        assert lib.sfm_find_column(handle, b"no such") == -1
        assert lib.sfm_column_name(handle, 999) is None
        assert lib.sfm_describe_field(handle, 999, None) == ERROR_ARGUMENT


@examples(40)
@given(st.lists(st.sampled_from(sorted(CROSSES)), unique=True, max_size=3), st.integers(0, 6), st.integers(0, 9))
def test_any_model_with_any_crosses(tmp_path_factory, kinds, model, seed):
    models = one_of_each(len(cross_schema(*kinds).fields))
    fitted = random_fitted(models[model], cross_schema(*kinds), cross_table(200), seed=seed, scale=0.4)
    path = tmp_path_factory.mktemp("scorer") / "crosses.sfs"
    sf.export_scorer(fitted, path)
    table = cross_table(30, seed, strange=True)
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    with CScorer(path) as c:
        same(c.score(rows), fitted.scorer().many(rows))
        contexts = [{name: row[name] for name in ("x", "kind", "hour")} for row in rows[:3]]
        items = [{name: row[name] for name in ("user", "z", "code")} for row in rows[3:]]
        for context in contexts:
            same(c.score_items(context, items), fitted.scorer().many([{**context, **item} for item in items]))


ITEM_COLUMNS = ["name", "levels", "tags", "apart", "bins", "whole"]


@pytest.fixture(scope="module", params=[*range(5), 6, 7, 8], ids=lambda model: MODELS[model].kind)
def catalog(request, tmp_path_factory):
    fitted = random_fitted(MODELS[request.param], make_schema("identity"), make_table(), scale=0.3)
    path = tmp_path_factory.mktemp("items") / "model.sfs"
    fitted.export_scorer(path)
    table = make_table(150, seed=3)
    items = [{name: table[name][i] for name in ITEM_COLUMNS} for i in range(150)]
    items[17]["tags"], items[100:130] = None, items[60:90]
    with CScorer(path) as c, CItems(c, items, ITEM_COLUMNS) as catalog:
        yield fitted.scorer(), c, items, catalog


class TestItems:
    @examples(24)
    @given(context=st.fixed_dictionaries({name: VALUES[name] for name in VALUES if name not in ITEM_COLUMNS}))
    def test_scores_are_those_of_whole_rows(self, catalog, context):
        scorer, c, items, made = catalog
        found = made.score(context)
        expected = scorer.many([{**context, **item} for item in items[:40]])
        np.testing.assert_allclose(found[:40], expected, rtol=1e-5, atol=1e-4)
        same(c.score_items(context, items[:5]), scorer.many([{**context, **item} for item in items[:5]]))
        for k in (1, 10, 140, 160):
            rows, scores = made.top_k(context, k)
            np.testing.assert_array_equal(rows, np.lexsort((np.arange(len(items)), -found))[:k])
            np.testing.assert_array_equal(scores, found[rows])

    @pytest.mark.parametrize("catalog", [1], indirect=True, ids=["fwfm"])
    def test_many_equal_items(self, catalog):
        context = {name: None for name in VALUES if name not in ITEM_COLUMNS}
        _, c, items, _ = catalog
        with CItems(c, items[:1] * 4500 + items[1:2], ITEM_COLUMNS) as made:
            assert made.n == 4501
            scores = made.score(context)
            rows, found = made.top_k(context, 20)
            np.testing.assert_array_equal(rows, np.lexsort((np.arange(4501), -scores))[:20])
            np.testing.assert_array_equal(found, scores[rows])
        with CItems(c, [], ITEM_COLUMNS) as made:
            assert made.n == 0
            assert len(made.top_k(context, 3)[0]) == len(made.score(context)) == 0

    @pytest.mark.parametrize("catalog", [1], indirect=True, ids=["fwfm"])
    def test_what_is_refused(self, catalog, plain_c, tmp_path):
        with pytest.raises(CallError, match="item 1: column 'name' takes one category, got a list") as caught:
            CItems(catalog[1], [catalog[2][0], {**catalog[2][0], "name": []}], ITEM_COLUMNS)
        assert caught.value.code == ERROR_VALUE
        with pytest.raises(CallError, match="the cross 'known × x' joins columns of items with columns of the context"):
            CItems(plain_c, [], ["x"])
        random_fitted(sf.HigherOrderFM(k=3), make_schema(), make_table()).export_scorer(tmp_path / "m.sfs")
        with CScorer(tmp_path / "m.sfs") as c, pytest.raises(CallError, match="products of more than two"):
            CItems(c, [], ["name"])
        random_classes(sf.FM(k=4), make_schema(), make_table()).export_scorer(tmp_path / "m.sfs")
        with CScorer(tmp_path / "m.sfs") as c, pytest.raises(CallError, match="several classes"):
            CItems(c, [], ["name"])


GOOD = {"x": 0.5, "sure": 1.0, "c": "a", "known": "b", "tags": ["a"], "day": "2024-01-01"}


@pytest.fixture(scope="module")
def plain():
    """A small model with fields that refuse things."""
    schema = sf.Schema(
        [
            sf.Numerical("x", sf.MinMax(), sf.BSpline(4)),
            sf.Numerical("sure", sf.MinMax(), sf.BSpline(4), missing="error"),
            sf.Categorical("c"),
            sf.Categorical("known", unseen="error", missing="error"),
            sf.MultiValued("tags"),
            sf.Categorical("day"),
            sf.Cross(sf.Categorical("known", unseen="error", missing="error"), sf.Numerical("x", sf.MinMax())),
        ]
    )
    table = {"x": [0.0, 1.0], "sure": [0.0, 2.0], "c": ["a", "b"], "known": ["a", "b"], "tags": [["a"], ["b", "a"]]}
    return random_fitted(sf.FM(k=4), schema, {**table, "day": ["2024-01-01", "2024-01-02"]})


@pytest.fixture(scope="module")
def plain_file(plain, tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "plain.sfs"
    plain.export_scorer(path)
    return path


@pytest.fixture(scope="module")
def plain_c(plain_file):
    with CScorer(plain_file) as scorer:
        yield scorer


class TestRefusedValues:
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("x", "much", "column 'x' takes numbers, got a text"),
            ("x", [1.0], "column 'x' takes numbers, got a list"),
            ("x", math.inf, "column 'x' does not take the number inf"),
            ("sure", None, "column 'sure' takes no missing values"),
            ("sure", NAN, "column 'sure' takes no missing values"),
            ("c", ["a"], "column 'c' takes one category, got a list"),
            ("known", "new", "column 'known' has the unseen category 'new'"),
            ("known", "é" * 99, "has the unseen category 'ééé"),
            ("known", None, "column 'known' takes no missing values"),
            ("tags", "a", "column 'tags' takes lists, got a text"),
            ("tags", 3, "column 'tags' takes lists, got an integer"),
            ("tags", ["a", 1], "column 'tags' has a list of different kinds"),
            ("tags", [["a"]], "column 'tags' has a list with a list"),
            ("day", "2024-01-01T00:00", "column 'day' has the date '2024-01-01T00:00'; write it like"),
            ("day", " 2024-01-01", "write it like"),
            ("day", "2024-01-01 10:00:00+02:00", "write it like"),
            ("day", "2024-01-01 10:00:00.500", "write it like"),
        ],
        ids=lambda given: str(given)[:30],
    )
    def test_the_message_names_column_and_value(self, plain_c, name, value, message):
        with pytest.raises(CallError, match=message) as caught:
            plain_c.score([{**GOOD, name: value}])
        assert caught.value.code == ERROR_VALUE
        with pytest.raises(CallError, match="row 1: " + message if message[:3] == "col" else "row 1: ") as caught:
            plain_c.score([GOOD, {**GOOD, name: value}, GOOD])
        assert np.isfinite(plain_c.score([GOOD])).all()  # it goes on

    def test_no_value_and_unknown_kinds(self, plain_c):
        row, out, error = (CValue * 6)(), (ctypes.c_double * 1)(), CError()
        code = plain_c.lib.sfm_score(plain_c.handle, None, row, 1, out, error)
        with pytest.raises(CallError, match="column 'c' has no value"):
            check(code, error)
        row[2].kind = 7
        code = plain_c.lib.sfm_score(plain_c.handle, None, row, 1, out, error)
        with pytest.raises(CallError, match="unknown kind 7"):
            check(code, error)
        row[2].kind, row[2].size = 5, 4
        code = plain_c.lib.sfm_score(plain_c.handle, None, row, 1, out, error)
        with pytest.raises(CallError, match="address is NULL"):
            check(code, error)

    def test_the_message_is_utf8_whatever_the_text_is(self, plain_c):
        given = Values([GOOD[name] for name in plain_c.columns])
        text, out, error = ctypes.create_string_buffer(b"\xff\xfe"), (ctypes.c_double * 1)(), CError()
        value = given.array[plain_c.columns.index("known")]
        value.size, value.of.text = 2, ctypes.addressof(text)
        code = plain_c.lib.sfm_score(plain_c.handle, None, given.array, 1, out, error)
        with pytest.raises(CallError, match="column 'known' has the unseen category that is not UTF-8"):
            check(code, error)

    def test_wrong_arguments(self, plain_c):
        lib, error = plain_c.lib, CError()
        assert lib.sfm_score(None, None, None, 0, None, error) == ERROR_ARGUMENT
        assert lib.sfm_score(plain_c.handle, None, None, 1, None, error) == ERROR_ARGUMENT
        assert lib.sfm_score(plain_c.handle, None, None, 1, None, None) == ERROR_ARGUMENT
        assert lib.sfm_open(None, None, error) == ERROR_ARGUMENT
        row, columns = (CValue * 6)(), (ctypes.c_int64 * 2)(0, 0)
        out = (ctypes.c_double * 1)()
        arguments = (plain_c.handle, None, row, columns, 2, row, 1, out, error)
        assert lib.sfm_score_items(*arguments) == ERROR_ARGUMENT
        assert b"twice" in error.message
        columns[1] = 6
        assert lib.sfm_score_items(*arguments) == ERROR_ARGUMENT


def test_threads_share_a_scorer(plain, plain_c):
    rows = [{**GOOD, "x": x / 7, "c": "ab"[x % 2]} for x in range(50)]
    expected, failures = plain.scorer().many(rows), []

    def work():
        workspace, error = ctypes.c_void_p(), CError()
        check(plain_c.lib.sfm_workspace_new(plain_c.handle, ctypes.byref(workspace), error), error)
        for i in range(40):
            if (plain_c.score(rows, workspace=workspace if i % 2 else None) != expected).any():
                failures.append(i)
        plain_c.lib.sfm_workspace_free(workspace)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class TestExport:
    def test_fields_that_run_in_python_are_refused(self, tmp_path):
        item = sf.Numerical("x", sf.CustomTransform(np.tanh, np.arctanh), sf.BSpline(4))
        fitted = random_fitted(sf.FM(k=4), sf.Schema([item]), {"x": [0.1, 0.7]})
        with pytest.raises(ValueError, match=r"cannot hold the fields 'x': .* runs in Python; use transforms"):
            fitted.export_scorer(tmp_path / "m.sfs")
        assert not list(tmp_path.iterdir())

    def test_it_is_written_in_one_step(self, plain, tmp_path, monkeypatch):
        path = tmp_path / "m.sfs"
        path.write_bytes(b"before")
        monkeypatch.setattr(zlib, "crc32", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            plain.export_scorer(path)
        assert path.read_bytes() == b"before"
        assert len(list(tmp_path.iterdir())) == 1
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            plain.export_scorer(tmp_path / "no" / "m.sfs")

    def test_the_same_model_gives_the_same_file(self, plain, plain_file, tmp_path):
        plain.export_scorer(tmp_path / "again.sfs")
        assert (tmp_path / "again.sfs").read_bytes() == plain_file.read_bytes()


def resealed(data):
    """The file with the checksums that its contents have now."""
    data = bytearray(data)
    (n,) = struct.unpack_from("<I", data, 12)
    for at in range(32, 32 + 24 * min(n, 6), 24):
        offset, size = struct.unpack_from("<QQ", data, at + 8)
        if offset + size <= len(data):
            struct.pack_into("<I", data, at + 4, zlib.crc32(data[offset : offset + size]))
    struct.pack_into("<I", data, 24, 0)
    struct.pack_into("<I", data, 24, zlib.crc32(data[: 32 + 24 * min(n, 6)]))
    return bytes(data)


class TestHostileFiles:
    def test_other_files(self, tmp_path, plain):
        plain.save(tmp_path / "m.sfm")
        (tmp_path / "empty").write_bytes(b"")
        for name, message in (
            ("m.sfm", "not a scorer file"),
            ("empty", "it is empty"),
            ("none", "No such file"),
            ("", "not a regular file"),
        ):
            with pytest.raises(CallError, match=message) as caught:
                CScorer(tmp_path / name)
            assert caught.value.code == ERROR_FILE

    def test_another_version(self, plain_file):
        data = bytearray(plain_file.read_bytes())
        struct.pack_into("<I", data, 8, 4)
        with pytest.raises(CallError, match="of version 4, this library reads versions 1 to 3"):
            CScorer(bytes(data))

    @examples(100)
    @given(st.data())
    def test_a_truncated_file(self, plain_file, data):
        whole = plain_file.read_bytes()
        with pytest.raises(CallError) as caught:
            CScorer(whole[: data.draw(st.integers(0, len(whole) - 1))])
        assert caught.value.code == ERROR_FILE

    @examples(200)
    @given(st.data())
    def test_a_flipped_bit_is_found(self, plain_file, data):
        whole = bytearray(plain_file.read_bytes())
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        whole[bit // 8] ^= 1 << bit % 8
        try:
            scorer = CScorer(bytes(whole))
        except CallError as error:
            assert error.code == ERROR_FILE
        else:  # in the zeros between sections, which are not read
            with scorer:
                same(scorer.score([GOOD]), CScorer(plain_file).score([GOOD]))

    @examples(300)
    @given(st.data())
    def test_crafted_contents_with_right_checksums_do_no_harm(self, plain_file, data):
        whole = bytearray(plain_file.read_bytes())
        words = st.one_of(
            st.sampled_from([0, 1, 2, -1, -2, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63)]),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, len(whole)),
        )
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(1, len(whole) // 8 - 1)) * 8
            struct.pack_into("<q", whole, at, data.draw(words))
        try:
            scorer = CScorer(resealed(whole))
        except CallError as error:
            assert error.code == ERROR_FILE
            return
        # Names of columns may have changed, too.
        with scorer, contextlib.suppress(CallError, KeyError):
            scorer.score([GOOD, {**GOOD, "c": "new", "x": 1e300}])

    @pytest.mark.parametrize(
        "name",
        [
            b"kn\xffwn",
            b"know\xc3",
            b"knx\xc3n",
            b"\xc0\xafown",  # another form of "/"
            b"\xe0\x80\xafwn",
            b"\xed\xa0\x80wn",  # half of a pair of surrogates
            b"\xf0\x8f\xbf\xbfn",
            b"\xf4\x90\x80\x80n",  # above U+10FFFF
            b"\xf5\x80\x80\x80n",
            b"\x80nown",
        ],
    )
    def test_names_that_are_not_utf8(self, plain_file, name):
        whole = plain_file.read_bytes()
        assert whole.count(b"known\0\0\0") >= 2  # a column, and fields
        with pytest.raises(CallError, match="a name is not UTF-8") as caught:
            CScorer(resealed(whole.replace(b"known\0\0\0", name + b"\0\0\0", 1)))
        assert caught.value.code == ERROR_FILE

    def test_categories_that_are_not_utf8(self, tmp_path):
        table = {"c": ["größer", "ab"]}
        random_fitted(sf.FM(k=4), sf.Schema([sf.Categorical("c")]), table).export_scorer(tmp_path / "m.sfs")
        whole, text = (tmp_path / "m.sfs").read_bytes(), "größerab".encode()
        if text not in whole:
            text = "abgrößer".encode()
        assert whole.count(text) == 1
        with CScorer(resealed(whole.replace(text, text.replace("öß".encode(), "éè".encode())))) as c:
            assert np.isfinite(c.score([{"c": "gréèer"}])).all()
        with pytest.raises(CallError, match="a name is not UTF-8"):
            CScorer(resealed(whole.replace(text, text.replace(b"er", b"\xff\xfe"))))
        # Good text, in which the second name begins in the middle of a character.
        with pytest.raises(CallError, match="a name is not UTF-8"):
            CScorer(resealed(whole.replace(text, "aäöüßé".encode()[:9] + b"x")))


def test_abi_and_instruction_set(plain_c):
    from splinefm import _core

    assert library().sfm_abi_version() == 1
    assert library().sfm_instruction_set().decode() == _core.isa
