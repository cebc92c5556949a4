"""Words for people."""

import math

import pytest

from splinefm._wording import for_reader, in_bytes, number, on_command_line, setting, visible
from splinefm.encode.tables.names import missing_column_message, nearest_names


def test_control_characters_are_written_out():
    assert visible("\x1b]0;title\x07\x9b31m\x7f\u202e\u2028\r\n\t") == (
        r"\x1b]0;title\x07\x9b31m\x7f\u202e\u2028\r\n\t"
    )
    assert visible("a\nb\x1b", lines=True) == "a\nb\\x1b"
    plain = "größe, 東京, 👩‍💻, a\u00a0b"
    assert visible(plain) == plain


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (10**12, "1.0 TB"), (12.5e18, "12.5 EB"), (1e24, "1,000,000.0 EB"), (10**400, in_bytes(10**300))],
)
def test_sizes(size, text):
    assert in_bytes(size) == text


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (26612.3, ".4g", "26610"),
        (-22080.0, "+.3g", "-22100"),
        (22080.0, "+.3g", "+22100"),
        (9_999_999.0, ".5g", "10000000"),
        (1e7, ".5g", "1e+07"),
        (0.00012, ".4g", "0.00012"),
        (0.000012, ".4g", "1.2e-05"),
        (math.inf, ".4g", "inf"),
        (0.123, "+.1%", "+12.3%"),
    ],
)
def test_ordinary_amounts_have_no_exponent(value, style, text):
    assert number(value, style) == text


def test_advice_follows_the_reader():
    assert (for_reader("a", "b"), setting("batch_size")) == ("a", "batch_size")
    with on_command_line():
        assert (for_reader("a", "b"), setting("batch_size")) == ("b", "--batch-size")
    assert for_reader("a", "b") == "a"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Capital Gain", ["capital-gain", "capital-loss"]),
        ("gain", ["capital-gain"]),
        ("AGE", ["age"]),
        ("workclass_of_person", ["workclass"]),
        ("hours", ["hours-per-week"]),
        ("zzz", []),
    ],
)
def test_the_nearest_names(name, found):
    names = ["age", "workclass", "capital-gain", "capital-loss", "hours-per-week", "sex"]
    nearest = nearest_names(name, names)
    assert nearest[: len(found)] == found if found else not nearest


def test_only_names_that_are_alike_are_nearest():
    message = missing_column_message("sizes", ["age", "sex", "size", "zone"])
    assert "nearest: 'size'." in message and message.endswith("Columns: 'age', 'sex', 'size', 'zone'")
    assert "nearest" not in missing_column_message("nope", ["id", "age", "country", "price"])
    assert missing_column_message("zzz", ["age"]) == "no column 'zzz' in the table. Columns: 'age'"
