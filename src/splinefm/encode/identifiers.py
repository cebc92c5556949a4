"""Columns of identifiers, told by their names: integers that are names rather than quantities."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
# Names such as user_id, movieId, ID and zip_code: their integers are names, if they recur.
_IDENTIFIER = re.compile(r"(^|[^a-zA-Z])(id|ID|Id|code|zip|zipcode)s?$|[a-z](Id|ID|Code)$")
# What a column of names is called: its last word, which a word such as "number" may follow. Plurals are counts.
_OWNERS = re.compile(
    "account|advertiser|article|artist|author|bidder|buyer|campaign|card|client|contract|creative|customer|device|"
    "driver|employee|film|guest|household|item|listing|member|merchant|movie|passenger|patient|person|player|policy|"
    "product|property|publisher|restaurant|seller|session|shop|sku|song|station|store|student|subscriber|supplier|"
    "team|title|track|user|vehicle|vendor|visitor"
)
_NUMBERS = re.compile("no|nr|num|number")
_NAMES = re.compile("id|key|uid|uuid|guid|no|nr|hash|asin|isbn|ean|gtin|upc")
_COUNTS = re.compile("n|num|number|count|total|sum|avg|mean|min|max|per|rate|share|price|amount|cost|age|size")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Integers that may be names: nearly all numbers of their range occur, or they are large. They recur, too.
DENSE, LARGE_CODE, RECURRING = 0.5, 10_000, 1.5
# With fewer distinct values, a spline has about as many functions as there are values.
MANY = 128


def are_called_identifiers(name: str) -> bool:
    """Return whether a column of integers is called as identifiers and codes are."""
    return _IDENTIFIER.search(name) is not None


def name_words(name: str, value: FloatArray, count: npt.NDArray[np.int64]) -> str:
    """Return a question about integers that were read as numbers, if they may be names, such as those of users."""
    is_asked = _may_be_names(name, value, count)
    return f"; if these are names rather than a quantity, use sf.Categorical({name!r})" if is_asked else ""


def _may_be_names(name: str, value: FloatArray, count: npt.NDArray[np.int64]) -> bool:
    """Whether integers are rather names than a quantity, by what their column is called and by their values."""
    if not _is_called_a_name(name) or len(value) <= MANY or value[0] < 0.0:
        return False
    is_dense = len(value) >= DENSE * (value[-1] - value[0] + 1.0)
    is_large = float(np.median(value)) >= LARGE_CODE
    return bool((is_dense or is_large) and count.sum() >= RECURRING * len(value))


def _is_called_a_name(name: str) -> bool:
    """Whether a column is called as one of names is.

    Examples
    --------
    >>> names = ("user", "n_users", "itemNo", "year", "price_per_item", "store_key")
    >>> [name for name in names if _is_called_a_name(name)]
    ['user', 'itemNo', 'store_key']
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    *before, last = words
    if before and _OWNERS.fullmatch(before[-1]) and _NUMBERS.fullmatch(last):
        before.pop()
    elif not (_OWNERS.fullmatch(last) or _NAMES.fullmatch(last) or are_called_identifiers(name)):
        return False
    return not any(map(_COUNTS.fullmatch, before))
