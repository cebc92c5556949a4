"""The page of `splinefm explain`: the facts of an explanation, and what its plots need beside them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._files import check_destination, check_writable, replacing
from splinefm._wording import number_of
from splinefm.encode.fields.contract import TokenKind
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Single
from splinefm.encode.tables.open import refuse_overwriting
from splinefm.explore.arrays import Buffers, describe_values
from splinefm.explore.fields import describe_numerical, describe_shapes
from splinefm.explore.page import d3_script, render_report
from splinefm.explore.payload import Payload
from splinefm.inspect.axes import RawAxis, has_steps, split_tokens
from splinefm.inspect.certificates import marks
from splinefm.inspect.curves import Curve, Surface
from splinefm.inspect.explanation import Effect, Explanation, explain_table
from splinefm.inspect.rows import spaced_rows
from splinefm.inspect.survey import Survey
from splinefm.inspect.values import (
    both_scales,
    extremum_text,
    numerical_values,
    shown_numbers,
    side_grid,
    source_field,
    surface_values,
)
from splinefm.store.description import cross_text, predicted_thing
from splinefm.train.progress import make_progress

PAGE = "index.html"
MAX_ROWS, MAX_FIELDS, MAX_MATRIX_FIELDS = 2000, 500, 12
"""Most rows whose values the page has, listed fields, and fields of the matrix of pairs."""
_CELLS, _CATEGORIES = 48, 20  # along a side of a surface
_DIGITS = 6


def explain_file(
    model: Path,
    data: str,
    out: Path | None = None,
    *,
    target: str | None = None,
    weight: str | None = None,
    sample: int = 10_000,
    class_name: str | None = None,
    sep: str | None = None,
    threads: int | None = None,
    verbose: bool = False,
) -> dict[str, Any]:
    """Explain a model on a table: return the facts, and write the page if a folder is given."""
    begin = time.perf_counter()
    page = None if out is None else _check_folder(out, model, data)
    with make_progress(verbose) as progress:
        explanation = explain_table(
            model,
            data,
            target=target,
            weight=weight,
            sample=sample,
            class_name=class_name,
            sep=sep,
            threads=threads,
            progress=progress,
        )
        facts = explanation.to_dict()
        if page is not None:
            progress.begin("assembling the page")
            title = f"{explanation.fitted.model}: {predicted_thing(explanation.fitted)}"
            content = render_report(describe_report(explanation, facts), title).encode()
            page.parent.mkdir(parents=True, exist_ok=True)
            with replacing(check_destination(page)) as file:
                file.write(content)
            facts |= {"page": str(page), "page_bytes": len(content)}
    return {**facts, "seconds": round(time.perf_counter() - begin, 3)}


def _check_folder(out: Path, model: Path, data: str) -> Path:
    """The page to write; raise before the work, not after it, if it cannot be written."""
    if out.suffix.lower() in (".html", ".htm"):
        raise ValueError(f"--out {str(out)!r} must be a folder; the page in it will be {PAGE}")
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"--out {str(out)!r} is a file; give a folder")
    if not out.exists() and not out.resolve().parent.is_dir():
        raise FileNotFoundError(f"--out {str(out)!r}: no folder {str(out.resolve().parent)!r}; create it first")
    page = out / PAGE
    check_writable(page if out.exists() else out)
    refuse_overwriting(page, model, data)
    d3_script()  # raises where the package is not installed
    return page


def describe_report(explanation: Explanation, facts: dict[str, Any]) -> Payload:
    """The facts with what the page needs beside them: finer curves and surfaces, axes, and values of some rows."""
    fitted, found, buffers = explanation.fitted, explanation.survey, Buffers()
    effects = explanation.effects
    data = facts | {
        "about": {
            "model": str(fitted.model),
            "predicts": predicted_thing(fitted),
            "loss": found.loss.formula.title,
            "loss_name": found.loss.name,
            "link": fitted.loss.link,
            "is_quantile": found.loss.quantile is not None,
            "quantile": found.loss.quantile,
            "is_share": fitted.loss.name == "logistic",
            "is_share_compared": found.loss.name == "logistic",
            "classes": None if fitted.loss.classes is None else [str(label) for label in fitted.loss.classes],
            "means": _means(found),
        },
        "measured": [metric._asdict() for metric in explanation.metrics],
        "fields": [one | {"encoding": _encoding_text(one)} for one in facts["fields"][:MAX_FIELDS]],
        "n_fields": len(facts["fields"]),
        "matrix": _pair_matrix(explanation),
        "curves": [_describe_curve(explanation, effect) for effect in effects.curves],
        "surfaces": [_describe_surface(explanation, effect) for effect in effects.surfaces],
        **_describe_columns(explanation, buffers),
    }
    return Payload.of(data, buffers)


def _means(found: Survey) -> dict[str, float] | None:
    """The mean target and the mean prediction; None without a target."""
    if found.y is None:
        return None
    p = found.loss.predict(found.scores_to_compare)
    return {"y": float(np.average(found.y, weights=found.weight)), "p": float(np.average(p, weights=found.weight))}


def _encoding_text(one: dict[str, Any]) -> str:
    if one["kind"] == "Numerical":
        return f"{one['transform']}, {one['basis']} of {one['functions']:,} functions"
    if one["kind"] == "Cross":
        return cross_text(one)
    return f"{number_of(one['vocabulary'], 'category', 'categories')}, unseen ones: {one['unseen']}"


def _pair_matrix(explanation: Explanation) -> dict[str, Any] | None:
    """The effects of pairs among the fields with the strongest ones."""
    found = explanation.effects.importance
    if found is None or len(found.fields) < 2:
        return None
    order = np.argsort(-found.pairs.sum(axis=1), kind="stable")[:MAX_MATRIX_FIELDS]
    return {"fields": [found.fields[f] for f in order], "effects": _rounded(found.pairs[np.ix_(order, order)].ravel())}


def _describe_curve(explanation: Explanation, effect: Effect) -> dict[str, Any]:
    """The facts of a curve, and where they are drawn: a curve at more values, categories with the most rows."""
    fitted, values, view = explanation.fitted, effect.values, effect.view
    item = source_field(fitted, effect.names[0])
    found: dict[str, Any] = {"name": effect.names[0], "tokens": _token_values(item, values), "x": values.get("x")}
    found["y"] = shown_numbers(values)
    if not isinstance(item, Numerical):
        natural = item.vocabulary is not None and item.vocabulary.has_natural_order
        known = {key: values[key] for key in ("categories", "training_counts")}
        return found | known | {"natural_order": natural, "n_categories": len(item.vocabulary or ())}
    if isinstance(view, Curve):
        if view.known_values is None:
            data = numerical_values(fitted, explanation.survey.sample, effect.names[0])
            finer = RawAxis.of([item], None if data is None else split_tokens(item, data)[0]).grid([item])
            y = shown_numbers(both_scales(view.loss, view(finer)))
            found |= {"x": _rounded(finer), "y": _rounded(y)}
        for which in ("maximum", "minimum"):
            if values[which] and values[which]["at"] is not None:
                text = extremum_text(fitted, values, which, 3)
                found[which] = {"at": values[which]["at"], "text": text, "y": shown_numbers(values[which])}
    return found


def _token_values(item: Single, values: dict[str, Any]) -> dict[str, float]:
    """The predictions at special and missing values; those that share features by a hash say little by name."""
    buckets = item.token_names(TokenKind.BUCKET)
    return {name: shown_numbers(one) for name, one in values["tokens"].items() if name not in buckets}


def _describe_surface(explanation: Explanation, effect: Effect) -> dict[str, Any]:
    """A surface on a grid that is even along its axes; the values by rows of y."""
    surface = effect.view
    assert isinstance(surface, Surface)
    sides = [_side(explanation, surface, side, name) for side, name in enumerate(effect.names)]
    drawn = surface_values(surface, sides[0][0], sides[1][0])
    z = np.array(shown_numbers(drawn), np.float64).T
    return {
        "names": effect.names,
        "x": sides[0][0],
        "y": sides[1][0],
        "z": _rounded(z.ravel()),
        "even": [sides[0][1], sides[1][1]],
        "stepped": any(surface.known_values(side) is not None for side in (0, 1))
        or any(has_steps(item) for item in surface.fields),
    }


def _side(explanation: Explanation, surface: Surface, side: int, name: str) -> tuple[list[Any], bool]:
    """Values along one side of a surface, and whether they are even in u = T(z), not in their unit."""
    fitted = explanation.fitted
    item, values = source_field(fitted, name), numerical_values(fitted, explanation.survey.sample, name)
    if isinstance(item, Numerical) and values is not None and surface.known_values(side) is None:
        axis = RawAxis.of([item], split_tokens(item, values)[0])
        if axis.scale.kind == "linear":
            return _rounded(axis.middles(item, _CELLS)), False
        return _rounded(side_grid(fitted, name, _CELLS, _CATEGORIES, values)), True
    return side_grid(fitted, name, _CELLS, _CATEGORIES, values), False


def _describe_columns(explanation: Explanation, buffers: Buffers) -> dict[str, Any]:
    """The numerical columns of the plots, and their values in some rows."""
    fitted, sample, sources = explanation.fitted, explanation.survey.sample, explanation.fitted.encoder.schema.sources
    effects = explanation.effects
    names = dict.fromkeys(name for effect in [*effects.curves, *effects.surfaces] for name in effect.names)
    fields = {name: item for name in names if isinstance(item := sources.fields[name], Numerical)}
    rows = sample.take(pa.array(spaced_rows(len(sample), MAX_ROWS)))
    shares, proven = fitted.encoder.starvation(), marks(fitted, list(fields))
    columns = []
    for i, (name, item) in enumerate(fields.items()):
        x = numerical_values(fitted, rows, name)
        assert x is not None
        described = describe_numerical(fitted, item, x, shares, buffers, i)
        about = {"name": name, "column": item.column, "mark": proven.get(name)}
        columns.append(about | described | {"shapes": describe_shapes(item)})
    values = describe_values(dict(fields), rows, buffers, "rows")
    return {"columns": columns, "rows": {"n": len(rows), "columns": values}}


def _rounded(values: Any) -> list[Any]:
    """Numbers with the digits that a plot shows."""
    return [float(f"{value:.{_DIGITS}g}") if value is not None else None for value in np.asarray(values).tolist()]
