"""Find the best items of a catalog for a context, and write the index of a catalog."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import Float32Array
from splinefm._files import check_writable
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import STANDARD, open_table, refuse_overwriting
from splinefm.rank.index import ItemIndex
from splinefm.rank.store import Dtype
from splinefm.store.description import one_class
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted
from splinefm.train.progress import make_progress

Context = dict[str, Any]
INDEX_FILE = ".sfi"


class ItemSource(NamedTuple):
    """A catalog: a table with names of columns, or an index file (.sfi), which has them already.

    `class_name` is one of more than two classes, whose score ranks the items.
    """

    path: str
    ids: str | None = None
    groups: str | None = None
    sep: str | None = None
    threads: int | None = None
    class_name: str | None = None


class RankRequest(NamedTuple):
    """What the user asked for; `context` is a file, "-", or JSON itself."""

    model: Path
    items: ItemSource
    context: str
    k: int = 20
    excluded: Sequence[str] = ()
    allowed: Sequence[str] = ()
    group: Sequence[str] = ()


def rank_file(request: RankRequest, verbose: bool = False) -> list[list[dict[str, Any]]]:
    """The best items for each context: id, score and prediction; the score of one class has no prediction."""
    contexts = read_contexts(request.context)
    fitted = one_class(load(request.model), request.items.class_name, "rank")
    index = open_index(fitted, request.items, verbose)
    excluded = [_as_id(text, index, "--exclude") for text in request.excluded]
    allowed = [_as_id(text, index, "--allow") for text in request.allowed]
    found = []
    for number, context in enumerate(contexts):
        _check(context, index, number if len(contexts) > 1 else None)
        best, scores = index.top_k(
            context, request.k, allowed=allowed or None, excluded=excluded or None, group=list(request.group) or None
        )
        found.append(_describe(fitted, best.tolist(), scores))
    return found


def _describe(fitted: Fitted, ids: list[Any], scores: Float32Array) -> list[dict[str, Any]]:
    items = [{"id": item, "score": score} for item, score in zip(ids, scores.tolist(), strict=True)]
    if fitted.loss.of_class is None:
        for item, value in zip(items, fitted.loss.predict(scores.astype(np.float64)).tolist(), strict=True):
            item["prediction"] = value
    return items


def write_index(
    model: Path, items: ItemSource, out: Path, dtype: Dtype = "float32", verbose: bool = False
) -> dict[str, Any]:
    """Write the index of a catalog, and describe it."""
    refuse_overwriting(out, model, items.path)
    check_writable(out)
    index = open_index(one_class(load(model), items.class_name, "index"), items, verbose, dtype)
    index.save(out)
    return {
        "file": str(out),
        "bytes": out.stat().st_size,
        "items": len(index),
        "groups": len(index.groups) if items.groups is not None else None,
        "form": index.form,
        "dtype": index.dtype,
        "item_fields": list(index.item_fields),
        "context_columns": list(index.context_columns),
    }


def open_index(fitted: Fitted, items: ItemSource, verbose: bool = False, dtype: Dtype = "float32") -> ItemIndex:
    """The index of a catalog, built from a table or read from a file."""
    if items.path.endswith(INDEX_FILE):
        if items.ids is not None or items.groups is not None:
            raise ValueError(f"{items.path!r} is an index, which has ids and groups; leave out --ids and --groups")
        return ItemIndex.load(items.path, fitted)
    table = open_table(items.path, types=fitted.encoder.schema.column_types(), sep=items.sep)
    for option, name in (("--ids", items.ids), ("--groups", items.groups)):
        if name is not None and name not in table.names:
            raise ValueError(f"{option}: {missing_column_message(name, table.names)}")
    with make_progress(verbose) as progress:
        progress.say("building the index")
        # Without a column, items are the rows of the catalog, counted from 0.
        ids: Any = np.arange(table.count_rows()) if items.ids is None else items.ids
        return ItemIndex(fitted, table, ids, groups=items.groups, dtype=dtype, threads=items.threads)


def _as_id(text: str, index: ItemIndex, option: str) -> Any:
    """An id of the command line in the type that the catalog has."""
    if np.issubdtype(index.ids.dtype, np.integer):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{option} {text!r}: the ids of the items are integers") from None
    return text


def _check(context: Context, index: ItemIndex, number: int | None) -> None:
    which = "the context" if number is None else f"context {number}"
    for name in index.context_columns:
        if name not in context:
            needed = quoted(index.context_columns)
            raise ValueError(f"{which} has no {name!r}; it needs {needed}, where null is a missing value")


def read_contexts(text: str) -> list[Context]:
    """Contexts from JSON: an object, or a list of objects.

    Parameters
    ----------
    text : str
        The JSON, a file with it, or "-" for standard input.

    Examples
    --------
    >>> read_contexts('{"country": "US"}')
    [{'country': 'US'}]
    """
    inline = text.lstrip()[:1] in ("{", "[")
    if inline:
        source, origin = text, "--context"
    elif text == STANDARD:
        source, origin = sys.stdin.read(), "standard input"
    elif not Path(text).exists():
        raise ValueError(f'--context {text!r} is neither a file nor JSON such as \'{{"country": "US"}}\'')
    else:
        source, origin = Path(text).read_text("utf-8"), repr(text)
    try:
        value = json.loads(source)
    except (ValueError, RecursionError) as error:  # the latter if nested too deeply
        raise ValueError(f"{origin} is not JSON: {error}") from None
    contexts = value if isinstance(value, list) else [value]
    if not contexts or not all(isinstance(context, dict) for context in contexts):
        raise ValueError(f'{origin} must be an object such as {{"country": "US"}}, or a list of such objects')
    return contexts
