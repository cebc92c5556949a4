"""`splinefm info`: describe a model file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinefm._wording import in_bytes, number, number_of
from splinefm.cli import options as opt
from splinefm.cli.output import (
    loss_text,
    penalty_text,
    print_facts,
    print_json,
    print_remarks,
    print_search,
    print_table,
    study_line,
)

if TYPE_CHECKING:
    from splinefm.inspect.certificates import Certificate

LAST_EPOCHS, SHOWN_SETTINGS = 5, 5
SAMPLE = ", but only some of them were learned from: the fit was interrupted"


def info(
    model: opt.ModelFile,
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Also say, for every numerical field and those of ordered categories, whether the score rises or "
            "falls along it whatever the other columns are, or where it does not. Reads all parameters.",
        ),
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Describe a model file."""
    from splinefm.store.description import describe_file

    description = describe_file(model)
    if not certify:
        return print_json(description) if as_json else print_info(description)
    from splinefm.store.model_file import load

    found = load(model).certify()
    if as_json:
        return print_json({**description, "certificates": found.to_list()})
    print_info(description)
    print()
    rows = [[each.field, _kept(each), str(each).removeprefix(f"{each.field}: ")] for each in found.values()]
    rows += [[name, "", why] for name, why in found.skipped.items()]
    return print_table(["field", "shape", "in every segment"], rows)


def _kept(certificate: Certificate) -> str:
    """Whether a field has the shape that it asks for."""
    if certificate.shape is None:
        return ""
    return {True: "holds", False: "does not hold", None: "not decided"}[certificate.holds]


def print_info(about: dict[str, Any]) -> None:
    """Print what a model file contains."""
    print_facts(
        [
            ("file", f"{about['file']}, {in_bytes(about['bytes'])}"),
            *([("parts", _parts(about["parts"]))] if about["parts"] else []),
            ("format", f"{about['format']}, written by splinefm {about['version']}"),
            ("model", f"{about['model_text']}, {about['parameters']:,} parameters"),
            ("predicts", f"{about['prediction']} ({loss_text(about)})"),
            *([("offset", offset_text(about["offset"]))] if about["offset"] is not None else []),
            ("fitted to", f"{about['rows']:,} rows{SAMPLE if about['sample'] else ''}"),
            *([("interactions", _interactions(about["interactions"]))] if about["interactions"] is not None else []),
            ("training", _training(about)),
            *([("study", study_line(about["study"]))] if about["study"] is not None else []),
        ]
    )
    print_remarks(about["remarks"])
    print()
    rows = [
        [field["name"], field["kind"], f"{field['rows']:,}", _content(field), field["note"]]
        for field in about["fields"]
    ]
    print_table(["field", "kind", ">features", "content", "note"], rows)
    if about["history"]:
        print()
        _print_history(about["history"][-LAST_EPOCHS:])
    print_search(about["search"], SHOWN_SETTINGS)


def offset_text(offset: dict[str, str]) -> str:
    """What the column of an offset does.

    Examples
    --------
    >>> offset_text({"column": "years", "kind": "exposure"})
    "the logarithm of 'years', an exposure, is added to the score"
    """
    if offset["kind"] == "exposure":
        return f"the logarithm of {offset['column']!r}, an exposure, is added to the score"
    return f"{offset['column']!r} is added to the score"


def _parts(parts: list[dict[str, Any]]) -> str:
    sizes = [sum(stop - first for first, stop in part["ranges"]) for part in parts]
    each = f"{min(sizes):,}" if min(sizes) == max(sizes) else f"{min(sizes):,} to {max(sizes):,}"
    return f"{len(parts)}, with {each} features each"


def _interactions(allowed: str | list[list[str]]) -> str:
    return allowed if isinstance(allowed, str) else "only within " + "; ".join(map(", ".join, allowed))


def _training(about: dict[str, Any]) -> str:
    training, validation = about["training"], about["validation"]
    penalties = ", ".join(f"{name} {penalty_text(training[name])}" for name in ("l2", "smoothness"))
    if validation["metric"] is None:
        return f"{validation['epochs']} epochs, {penalties}"
    measured = f"{validation['metric']} {number(validation['value'])}"
    return f"epoch {validation['best_epoch']} of {validation['epochs']} with {measured}, {penalties}"


def _content(field: dict[str, Any]) -> str:
    return f"{_features(field)}{''.join(f', {name} {field[name]}' for name in ('shape', 'slope') if name in field)}"


def _features(field: dict[str, Any]) -> str:
    if field["kind"] == "Numerical":
        special = f", {number_of(len(field['special']), 'special value')}" if field["special"] else ""
        return f"{field['transform']}, {field['basis']} of {field['functions']} functions{special}"
    if field["kind"] == "Cross":
        from splinefm.store.description import cross_text

        return cross_text(field)
    return f"{number_of(field['vocabulary'], 'value')}, unseen: {field['unseen']}"


def _print_history(history: list[dict[str, Any]]) -> None:
    rows = [
        [
            str(epoch["epoch"]),
            number(epoch["train_loss"]),
            number(epoch["validation_loss"]),
            number(epoch["rows_per_second"], ",.0f"),
            number(epoch["seconds"], ".1f"),
        ]
        for epoch in history
    ]
    print_table([">epoch", ">training loss", ">validation loss", ">rows/s", ">seconds"], rows, "last epochs")
