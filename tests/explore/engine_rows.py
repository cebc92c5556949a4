"""Rows of tables as the page takes them."""

import math

import numpy as np


def page_value(value):
    """Return a value as JSON has it: None for missing ones."""
    if isinstance(value, list | tuple | np.ndarray):
        return [page_value(element) for element in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and math.isnan(value) else value


def page_rows(payload, table):
    """Return the rows of a table of columns as objects for the page."""
    lists = {
        name: list(getattr(values, "to_pylist", lambda values=values: values)()) for name, values in _columns(table)
    }
    columns = [(column["name"], column["column"]) for column in payload.data["columns"]]
    n = len(next(iter(lists.values())))
    return [{name: page_value(lists[column][i]) for name, column in columns} for i in range(n)]


def _columns(table):
    return table.items() if isinstance(table, dict) else zip(table.column_names, table.columns, strict=True)


def assert_equal(got, expected, tolerance=1e-5):
    """Compare numbers of the page and of Python, relative to those that are larger than one."""
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape
    error = np.abs(got - expected) / np.maximum(1.0, np.abs(expected))
    assert error.max(initial=0.0) <= tolerance, f"off by {error.max():.2g} in row {error.ravel().argmax()}"
