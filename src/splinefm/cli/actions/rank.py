"""Find the best items of a catalog for a context."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.sources import STANDARD
from splinefm.learn.files.modelfile import load
from splinefm.learn.progress import make_progress
from splinefm.rank.index import ItemIndex

Context = dict[str, Any]


class RankRequest(NamedTuple):
    """What the user asked for; `context` is a file, "-", or JSON itself."""

    model: Path
    items: str
    context: str
    k: int = 20
    ids: str | None = None
    excluded: Sequence[str] = ()
    threads: int | None = None
    sep: str | None = None


def rank_file(request: RankRequest, verbose: bool = False) -> list[list[dict[str, Any]]]:
    """The best items for each context: id, score and prediction."""
    contexts = read_contexts(request.context)
    fitted = load(request.model)
    table = open_table(request.items, types=fitted.encoder.schema.column_types(), sep=request.sep)
    with make_progress(verbose) as progress:
        progress.say("building the index")
        ids: Any = request.ids
        if ids is None:  # rows of the catalog, counted from 0
            ids = np.arange(table.count_rows())
        elif ids not in table.names:
            raise ValueError(f"--ids: {missing_column_message(ids, table.names)}")
        index = ItemIndex(fitted, table, ids, threads=request.threads)
    known = [_as_id(text, index) for text in request.excluded]
    found = []
    for number, context in enumerate(contexts):
        _check(context, index, number if len(contexts) > 1 else None)
        best, scores = index.top_k(context, request.k, excluded=known or None)
        predictions = fitted.loss.predict(scores.astype(np.float64))
        each = zip(best.tolist(), scores.tolist(), predictions.tolist(), strict=True)
        found.append([{"id": item, "score": score, "prediction": value} for item, score, value in each])
    return found


def _as_id(text: str, index: ItemIndex) -> Any:
    """An id of the command line in the type that the catalog has."""
    if np.issubdtype(index.ids.dtype, np.integer):
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"--exclude {text!r}: the ids of the items are integers") from None
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
