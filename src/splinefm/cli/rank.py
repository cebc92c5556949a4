"""`splinefm rank` and `splinefm index`: find the best items of a catalog for a context, and keep the catalog ready."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from splinefm._wording import in_bytes, number
from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json, print_table

if TYPE_CHECKING:
    from splinefm._arrays import Float32Array
    from splinefm.rank.index import ItemIndex
    from splinefm.rank.store import Dtype as IndexDtype
    from splinefm.train.fitted import Fitted

Items = Annotated[
    str,
    typer.Argument(
        metavar="ITEMS", help=f"Catalog: a {opt.FILES}; or an index (.sfi) of 'splinefm index'.", show_default=False
    ),
]
Catalog = Annotated[str, typer.Argument(metavar="ITEMS", help=f"Catalog: a {opt.FILES}.", show_default=False)]
Context = Annotated[
    str,
    typer.Option(
        metavar="JSON|FILE",
        help="Values of the other fields: a JSON object or a list of objects, a file with JSON, or - for standard "
        "input.",
        show_default=False,
    ),
]
TopK = Annotated[int, typer.Option("--k", metavar="N", min=1, help="Number of items.")]
Excluded = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="ID", help="Item to exclude. Repeat for several."),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="ID", help="Item to search; all others are left out. Repeat for several."),
]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="NAME", help="Search this group only. Repeat for several."),
]
Out = Annotated[Path, opt.out_option("Index file to write, such as items.sfi.")]
Dtype = Annotated[
    Literal["float32", "float16", "int8"], typer.Option(help="Storage type: fewer bytes are faster and less exact.")
]


@dataclass(frozen=True, kw_only=True)
class CatalogOptions:
    """The options that `rank` and `index` share."""

    ids: str | None = opt.option("Column of item ids. By default rows are numbered from 0.", metavar="COLUMN")
    groups: str | None = opt.option("Column of groups, such as a shelf, to search some of them only.", metavar="COLUMN")
    class_name: str | None = opt.option(
        "Class whose score ranks the items, if the model has more than two.", "--class", metavar="LABEL"
    )
    sep: opt.Sep = None
    threads: opt.Threads = None


@opt.with_option_groups
def rank(
    model: opt.ModelFile,
    items: Items,
    context: Context,
    k: TopK = 20,
    exclude: Excluded = None,
    allow: Allowed = None,
    group: Group = None,
    *,
    options: CatalogOptions,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Find the best items of a catalog for a context, best first.

    Example: splinefm rank model.sfm ads.parquet --ids ad_id --context '{"country": "US"}' --k 20
    """
    from splinefm.store.description import one_class
    from splinefm.store.model_file import load

    contexts = read_contexts(context)
    fitted = one_class(load(model), options.class_name, "rank")
    catalog = _open_index(fitted, items, options, quiet)
    excluded = [_as_id(text, catalog, "--exclude") for text in exclude or []]
    allowed = [_as_id(text, catalog, "--allow") for text in allow or []]
    found = []
    for i, values in enumerate(contexts):
        _check_columns(values, catalog, "the context" if len(contexts) == 1 else f"context {i}")
        best, scores = catalog.top_k(values, k, allowed=allowed or None, excluded=excluded or None, group=group or None)
        found.append(_describe(fitted, best.tolist(), scores))
    return print_json({"contexts": found}) if as_json else print_ranking(found)


@opt.with_option_groups
def index(
    model: opt.ModelFile,
    items: Catalog,
    out: Out,
    dtype: Dtype = "float32",
    *,
    options: CatalogOptions,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Write the index of a catalog to a file, for 'splinefm rank' and 'splinefm serve --index'.

    An index belongs to the model that it was built with: write it again after an update.

    Example: splinefm index model.sfm ads.parquet --ids ad_id --out ads.sfi
    """
    from splinefm._files import check_writable
    from splinefm.encode.tables.open import refuse_overwriting
    from splinefm.store.description import one_class
    from splinefm.store.model_file import load

    refuse_overwriting(out, model, items)
    check_writable(out)
    fitted = one_class(load(model), options.class_name, "index")
    catalog = _open_index(fitted, items, options, quiet, dtype)
    catalog.save(out)
    about = {
        "file": str(out),
        "bytes": out.stat().st_size,
        "items": len(catalog),
        "groups": len(catalog.groups) if options.groups is not None else None,
        "form": catalog.form,
        "dtype": catalog.dtype,
        "item_fields": list(catalog.item_fields),
        "context_columns": list(catalog.context_columns),
    }
    return print_json(about) if as_json else print_index(about)


def _describe(fitted: Fitted, ids: list[Any], scores: Float32Array) -> list[dict[str, Any]]:
    """Ids, scores and predictions; the score of one class has no prediction."""
    items = [{"id": item, "score": score} for item, score in zip(ids, scores.tolist(), strict=True)]
    if fitted.loss.of_class is None:
        for item, value in zip(items, fitted.loss.predict(scores.astype(float)).tolist(), strict=True):
            item["prediction"] = value
    return items


def _open_index(
    fitted: Fitted, items: str, options: CatalogOptions, quiet: bool, dtype: IndexDtype = "float32"
) -> ItemIndex:
    """The index of a catalog, built from a table or read from a file."""
    import numpy as np

    from splinefm.encode.tables.names import missing_column_message
    from splinefm.encode.tables.open import open_table
    from splinefm.rank.index import ItemIndex
    from splinefm.train.progress import make_progress

    ids, groups = options.ids, options.groups
    if items.endswith(".sfi"):
        if ids is not None or groups is not None:
            raise ValueError(f"{items!r} is an index, which has ids and groups; leave out --ids and --groups")
        return ItemIndex.load(items, fitted)
    table = open_table(items, types=fitted.encoder.schema.column_types(), sep=options.sep)
    for option, name in (("--ids", ids), ("--groups", groups)):
        if name is not None and name not in table.names:
            raise ValueError(f"{option}: {missing_column_message(name, table.names)}")
    with make_progress(not quiet) as progress:
        progress.say("building the index")
        # Without a column, items are the rows of the catalog, counted from 0.
        names: Any = np.arange(table.count_rows()) if ids is None else ids
        return ItemIndex(fitted, table, names, groups=groups, dtype=dtype, threads=options.threads)


def _as_id(text: str, index: ItemIndex, option: str) -> Any:
    """An id of the command line in the type that the catalog has."""
    if index.ids.dtype.kind not in "iu":
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{option} {text!r}: the ids of the items are integers") from None


def _check_columns(context: dict[str, Any], index: ItemIndex, which: str) -> None:
    from splinefm.encode.tables.names import quoted

    for name in index.context_columns:
        if name not in context:
            needed = quoted(index.context_columns)
            raise ValueError(f"{which} has no {name!r}; it needs {needed}, where null is a missing value")


def read_contexts(text: str) -> list[dict[str, Any]]:
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
    elif text == "-":
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


def print_index(about: dict[str, Any]) -> None:
    """Print what an index holds."""
    groups = "" if about["groups"] is None else f" in {about['groups']:,} groups"
    print_facts(
        [
            ("items", f"{about['items']:,}{groups}, as {about['form']} of {about['dtype']}"),
            ("fields", ", ".join(about["item_fields"])),
            ("context", ", ".join(about["context_columns"]) or "none: all contexts have the same ranking"),
            ("file", f"{about['file']}, {in_bytes(about['bytes'])}"),
        ]
    )


def print_ranking(found: list[list[dict[str, Any]]]) -> None:
    """Print a table for each context."""
    for context, best in enumerate(found):
        has_predictions = any("prediction" in item for item in best)
        rows = [
            [str(i), str(item["id"]), f"{item['score']:.4f}"]
            + ([number(item["prediction"], ".4g")] if has_predictions else [])
            for i, item in enumerate(best, start=1)
        ]
        title = f"context {context}" if len(found) > 1 else None
        print_table([">rank", "id", ">score", *([">prediction"] if has_predictions else [])], rows, title=title)
