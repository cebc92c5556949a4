"""Bodies of JSON that compiled code reads: the values of the decoder, to the bit, or none at all."""

import json
import struct
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from live import make_service
from splinefm import _core
from splinefm.serve.bodies import from_json, json_columns
from splinefm.serve.endpoints.score import decode_rows, read_rows
from splinefm.serve.rows import BodyRows, FaultyRows, ListedRows
from support import examples, mixed_schema, mixed_table, random_fitted, take_rows

MOST = 50
NAMES = ("x", "long name of a column", "ü", "c")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.sampled_from(["", "a", "12345678", '"', "\\", "a\nb", "ab\u2028", 0, -1, 2**63, 10**18 - 1, 5e-324, 1e308]),
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=4))
ROWS = st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, VALUES)), min_size=1, max_size=9)
STYLES = st.fixed_dictionaries({"ensure_ascii": st.booleans(), "indent": st.sampled_from([None, 1, "\t"])})
COLUMNS = json_columns(NAMES)


def same(a, b):
    """Whether values are equal in all bits, and of one type."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b)
    return type(a) is type(b) and a == b


def check_same(body, found):
    rows = decode_rows(body, MOST)
    assert len(found) == len(rows)
    for name in NAMES:
        assert same(found.column(name), [row[name] for row in rows])


def as_columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


@examples(150)
@given(ROWS, STYLES, st.randoms(use_true_random=False), st.booleans())
def test_values_are_those_of_the_decoder(rows, style, random, by_columns):
    if not by_columns:
        rows = [dict(random.sample(sorted(row.items()), len(row))) for row in rows]
    body = json.dumps({"columns": as_columns(rows)} if by_columns else {"rows": rows}, **style).encode()
    found = COLUMNS.read(body, MOST)
    assert found is not None
    check_same(body, found)


TOKENS = [
    *'{}[]:,"\\',
    " ",
    "\n",
    "\x00",
    "-",
    "0",
    "1.5",
    "1e5",
    "e",
    "null",
    "true",
    "\\u00e4",
    "\\ud83d",
    "\\ude00",
    "é",
    "x",
]
TOKENS += ['{"rows":[', '{"columns":{', '"x":', '"c":', "]}", "}]}", "}}", "1e400", "1e-400", "-0", "-0.0", "01", "1."]


@examples(400)
@given(ROWS, st.lists(st.tuples(st.floats(0, 1), st.sampled_from(TOKENS), st.integers(0, 3)), min_size=1, max_size=3))
def test_what_is_taken_is_what_the_decoder_takes(rows, changes):
    body = json.dumps({"rows": rows[:2]}).encode()
    for place, token, dropped in changes:
        at = int(place * len(body))
        body = body[:at] + token.encode() + body[at + dropped :]
    found = COLUMNS.read(body, MOST)
    if found is not None:
        check_same(body, found)


@examples(100)
@given(st.binary(max_size=60), st.integers(0, 200))
def test_any_bytes(noise, place):
    body = b'{"rows": [{"x": 1, "long name of a column": "abcdefghij", "\xc3\xbc": [1, "a"], "c": null}]}'
    found = COLUMNS.read(body[:place] + noise + body[place + len(noise) :], MOST)
    if found is not None:
        check_same(body[:place] + noise + body[place + len(noise) :], found)


PLAIN = '{"x": 1, "c": "a"}'


@pytest.mark.parametrize(
    ("body", "taken"),
    [
        (f'{{"rows": [{PLAIN}]}}', True),
        (f' {{ "rows"\r: [ {PLAIN}\t,\n{{"c":null,"x":-0.5e-3}} ] }} \n', True),
        ('{"columns": {"x": [1, 2.5], "c": ["a", null]}}', True),
        ('{"rows": [{"x": "\\u00e4\\n", "c": [1, [2]]}]}', False),  # a list in a list
        ('{"rows": [{"x": {}, "c": "a"}]}', False),
        (f'{{"rows": [{PLAIN}], "columns": null}}', False),
        (f'{{"rows": [{PLAIN}]}} 1', False),
        (f'{{"rows": [{PLAIN},]}}', False),
        ('{"rows": []}', False),
        ('{"columns": {"x": [], "c": []}}', False),
        ('{"columns": {"x": [1, 2], "c": ["a"]}}', False),
        ('{"columns": {"x": [1], "c": ["a", "b"]}}', False),
        ('{"columns": {"x": [1], "x": [1]}}', False),
        ('{"rows": [{"x": 1, "x": 2, "c": "a"}]}', False),
        ('{"rows": [{"x": 1, "x": 2}]}', False),
        ('{"rows": [{"x": 1}]}', False),
        ('{"rows": [{"x": 1, "c": "a", "d": 1}]}', False),
        ('{"rows": [{"x": 1, "d": "a"}]}', False),
        ('{"rows": [{"x": 1e999, "c": "a"}]}', False),
        ('{"rows": [{"x": 01, "c": "a"}]}', False),
        ('{"rows": [{"x": 1., "c": "a"}]}', False),
        ('{"rows": [{"x": +1, "c": "a"}]}', False),
        ('{"rows": [{"x": NaN, "c": "a"}]}', False),
        ('{"rows": [{"x": nul, "c": "a"}]}', False),
        (f'{{"rows": [{{"x": {"1" * 5000}, "c": "a"}}]}}', False),
        ('{"rows": [{"x": 1, "c": "\\x41"}]}', False),
        ('{"rows": [{"x": 1, "\\u0063": "\\ud83d\\ude00 \\"\\\\\\/\\b\\f\\n\\r\\t\\u00E4"}]}', True),
        ('{"rows": [{"x": 1, "c": "\\ud83d"}]}', False),
        ('{"rows": [{"x": 1, "c": "\\ud83dabcdef"}]}', False),
        ('{"rows": [{"x": 1, "c": "\\ud83d\\ud83d"}]}', False),
        ('{"rows": [{"x": 1, "c": "\\ude00\\ud83d"}]}', False),
        ('{"rows": [{"x": 1, "c": "\\u12"}]}', False),
        ('{"rows": [{"x": 1, "c": "\\u12g4"}]}', False),
        ('{"rows": [{"x": 1, "c": "a\x01"}]}', False),
        ("", False),
        ("[]", False),
    ],
)
def test_what_is_taken(body, taken):
    columns = json_columns(("x", "c"))
    assert (columns.read(body.encode(), 10) is not None) == taken
    for end in range(len(body)):  # a cut body is not JSON
        assert columns.read(body[:end].encode(), 10) is None or not body[end:].strip(" \n1")
    assert columns.read(body.encode().replace(b'"a"', b'"\xff"'), 10) is None or '"a"' not in body


def test_rows_are_counted_before_they_are_read():
    columns = json_columns(("x",))
    body = json.dumps({"rows": [{"x": i} for i in range(4)]}).encode()
    assert columns.read(body, 3) is None and len(columns.read(body, 4)) == 4
    body = json.dumps({"columns": {"x": list(range(4))}}).encode()
    assert columns.read(body, 3) is None and len(columns.read(body, 4)) == 4
    assert json_columns(()).read(b'{"rows": [{}]}', 3) is None
    with pytest.raises(ValueError, match="different"):
        json_columns(("x", "x"))


@pytest.fixture(scope="module")
def mixed():
    return random_fitted(sf.FwFM(k=4), mixed_schema(), mixed_table(300))


def rows_of(fitted, n=40):
    """Rows as a client would send them."""
    table = take_rows(mixed_table(300, seed=3), np.arange(n), fitted.encoder.schema.columns)
    columns = {name: [plain(value) for value in values] for name, values in table.items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def plain(value):
    value = value.as_py() if hasattr(value, "as_py") else value
    value = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    return None if isinstance(value, float) and value != value else value


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_scores_are_those_of_dicts_and_of_tables(mixed, form, tmp_path):
    mixed.save(tmp_path / "m.sfm")
    serving = make_service(a=tmp_path / "m.sfm").serving
    rows = rows_of(mixed)
    body = json.dumps({form: rows if form == "rows" else as_columns(rows)}).encode()
    read = read_rows(body, 100, serving)
    assert isinstance(read, BodyRows)
    found = serving.score(read, "r")
    assert "dicts" not in vars(read)  # not made before they are asked for
    assert found.scores.tobytes() == serving.score(ListedRows(rows), "r").scores.tobytes()
    assert found.scores.tobytes() == mixed.scores(as_columns(rows), watch=False).astype(np.float32).tobytes()
    some = [7, 0, 7, 39]
    model = serving.loaded["a"]
    assert read.scores(model, some).tolist() == found.scores[some].tolist()
    assert read.dicts == rows


@pytest.mark.parametrize("value", ["soon", "inf", [1.0], 10**400])
def test_a_bad_row_is_named_as_before(mixed, value, tmp_path):
    mixed.save(tmp_path / "m.sfm")
    serving = make_service(a=tmp_path / "m.sfm").serving
    rows = rows_of(mixed)
    number = next(item.column for item in mixed.encoder.fields if isinstance(item, sf.Numerical))
    rows[31] = {**rows[31], number: value}
    read = read_rows(json.dumps({"rows": rows}).encode(), 100, serving)
    assert isinstance(read, BodyRows)
    errors = []
    for given_rows in (read, ListedRows(rows)):
        with pytest.raises(FaultyRows) as error:
            serving.score(given_rows, "r")
        errors.append(error.value.faults)
    assert errors[0] == errors[1] and (errors[0][0].row, errors[0][0].column) == (31, number)


def test_a_missing_value_that_a_field_does_not_take_is_named(tmp_path):
    schema = sf.Schema([sf.Numerical("x", missing="error"), sf.Categorical("c")])
    table = {"x": [0.0, 1.0, 2.0, 3.0] * 20, "c": ["a", "b"] * 40, "y": [0.0, 1.0] * 40}
    random_fitted(sf.FM(k=2), schema, table).save(tmp_path / "m.sfm")
    serving = make_service(a=tmp_path / "m.sfm").serving
    read = read_rows(b'{"rows": [{"x": 1, "c": "a"}, {"x": null, "c": "a"}]}', 10, serving)
    with pytest.raises(FaultyRows) as error:
        serving.score(read, "r")
    assert isinstance(read, BodyRows) and error.value.faults[0][:2] == (1, "x")


class TestBorder:
    def scorer(self, mixed):
        rows = rows_of(mixed, 3)
        read = partial(json_columns(tuple(rows[0])).read, json.dumps({"rows": rows}).encode())
        return mixed.scorer(), read(10)

    @pytest.mark.parametrize("at", [[3], [-1], [0, 2**40]])
    def test_rows_that_are_not_there(self, mixed, at):
        scorer, rows = self.scorer(mixed)
        with pytest.raises(IndexError, match="row index out of range"):
            scorer.many_json(rows, np.array(at))

    def test_wrong_arguments(self, mixed):
        scorer, rows = self.scorer(mixed)
        for at in (np.zeros(1, np.int32), np.zeros((1, 1), np.int64), np.zeros(1)):
            with pytest.raises(TypeError):
                scorer.many_json(rows, at)
        with pytest.raises(KeyError, match="none"):
            rows.column("none")
        with pytest.raises(KeyError):
            scorer.many_json(json_columns(("x",)).read(b'{"rows": [{"x": 1}]}', 1), np.arange(1))
        with pytest.raises(TypeError):
            _core.JsonColumns(["x"], from_json).read("text", 1)
        assert scorer.many_json(rows, np.arange(0)).shape == (0,)


@pytest.mark.parametrize(
    "body",
    [
        '{"rows": [{"x": 7, "x": 1.5, "c": "a"}]}',
        '{"rows": [{"x": 1.5, "c": "b", "c": "a"}]}',
        '{"rows": [], "rows": [{"x": 1.5, "c": "a"}]}',
        '{"columns": {"x": [7], "c": ["a"], "x": [1.5]}}',
    ],
)
def test_the_last_value_of_a_key_counts(body):
    columns = json_columns(("x", "c"))
    assert columns.read(body.encode(), 10) is None  # the decoder decides
    assert decode_rows(body.encode(), 10) == [{"x": 1.5, "c": "a"}]
