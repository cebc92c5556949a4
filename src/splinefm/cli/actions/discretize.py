"""Write a model file with bins instead of curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from splinefm._files import check_writable
from splinefm.cli.destinations import save_model
from splinefm.encode.tables.open import open_table, refuse_overwriting
from splinefm.export.discretize import DiscretizationReport, discretization_error, discretize
from splinefm.store.description import one_class
from splinefm.store.model_file import load
from splinefm.train.progress import make_progress


class DiscretizeRequest(NamedTuple):
    """What the user asked for; `bins` are of the form FIELD=N, or N for all numerical fields."""

    model: Path
    out: Path
    bins: Sequence[str] = ()
    fields: Sequence[str] = ()
    spacing: Literal["u", "uniform", "geometric", "quantile"] = "u"
    max_error: float | None = None
    data: str | None = None
    sep: str | None = None
    class_name: str | None = None


def discretize_file(request: DiscretizeRequest, verbose: bool = False) -> DiscretizationReport:
    """Write the model with bins, and report how much its scores can change, and did on the data."""
    refuse_overwriting(request.out, request.model, request.data or request.model)
    check_writable(request.out)
    fitted = one_class(load(request.model), request.class_name, "discretize")
    types = fitted.encoder.schema.column_types()
    data = None if request.data is None else open_table(request.data, types=types, sep=request.sep)
    with make_progress(verbose) as progress:
        progress.say("choosing bins")
        binned = discretize(fitted, _fields(request), spacing=request.spacing, max_error=request.max_error, data=data)
        progress.say("measuring how much scores change")
        report = discretization_error(fitted, binned, data)
    save_model(binned, request.out)
    return report


def _fields(request: DiscretizeRequest) -> Any:
    """The second argument of `discretize`."""
    if request.max_error is not None:
        return list(request.fields) or None
    counts = dict(map(_count, request.bins))
    if None in counts and len(counts) > 1:
        raise ValueError("--bins: give either one number for all fields or FIELD=N for each")
    return counts.get(None, counts)


def _count(text: str) -> tuple[str | None, int]:
    """The field, or None for all, and its number of bins."""
    name, equals, number = text.rpartition("=")
    try:
        return (name if equals else None), int(number)
    except ValueError:
        raise ValueError(f"--bins must be a number or of the form FIELD=N, such as price=200; got {text!r}") from None
