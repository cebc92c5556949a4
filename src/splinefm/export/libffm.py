"""Export to libffm: its model file, a map of its features, and rows in its text format.

libffm scores a row of (field, feature, value) triples as the sum over all pairs of them (Juan et al., 2016)

    Σ_{i<j} value_i value_j w[feature_i, field_j]' w[feature_j, field_i],

which has neither linear weights nor a bias. These travel in two more fields, each with one feature that is in every
row with the value 1: the first meets the linear weights, and the second meets the first with the bias. With fields
f < e, the matrix M_fe of a model goes to the side of f: w[feature of f, e] = M_fe' v and w[feature of e, f] = v.

Numbers travel as the functions of their basis, with the weights as values. libffm pairs these with each other, too, so
what the vectors of a field have for the field itself is zero, except where the model has such pairs (identity
reduction).
"""

from __future__ import annotations

import json
import math
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from splinefm._arrays import Array, Float32Array
from splinefm._checks import check_choice, check_one_score
from splinefm._files import check_destination, replacing
from splinefm._wording import as_bins, for_reader
from splinefm.encode.bases import BASES, Bins
from splinefm.encode.encoder import CHUNK
from splinefm.encode.fields.cross import Cross
from splinefm.encode.slots import Slots, expand_windows
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_table
from splinefm.encode.transforms.transform import TRANSFORMS
from splinefm.export.tables import describe_hash
from splinefm.model.family.contract import through
from splinefm.store.container import stream_digest
from splinefm.train.fitted import Fitted
from splinefm.train.targets import as_targets

Format = Literal["text", "binary"]

_ROWS = 4096  # features that are written at a time
_ALIGNED = 4  # floats that a build with SSE, the usual one, reads at a time
_MAX_FEATURES = (1 << 31) - 1


def export_libffm(fitted: Fitted, path: str | os.PathLike[str], *, format: Format = "text", raw: bool = False) -> None:
    """Write the model as a libffm model file, and what its features stand for as JSON next to it (path + ".json").

    FM, FwFM, LowRankFwFM, FmFM and FFM become models of libffm with the same scores, linear weights and bias
    included, without instance-wise normalization. `export_libffm_rows` writes rows for it. The JSON file is replaced
    first and has the model file's checksum as "sha256", to check that the two belong together.

    Parameters
    ----------
    fitted : Fitted
        The model.
    path : path
        The file to write. Existing files are replaced atomically.
    format : {"text", "binary"}
        The text file of libffm up to 1.14 and its forks, or the binary file of libffm since 1.21 (as built with SSE,
        on x86).
    raw : bool
        Allow losses other than the logistic one. The libffm program converts every score to a probability; systems that
        only read its files need not. The JSON file names the link.

    Raises
    ------
    ValueError
        For what libffm cannot express: products of three and more fields, and `reduction="identity"` where the
        weight between two vectors of one field is negative (FwFM) or a matrix (FmFM).

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import splinefm as sf
    >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sf.export_libffm(fitted, f"{folder}/model.ffm")
    ...     Path(f"{folder}/model.ffm").read_text().splitlines()[:4]
    ['n 6', 'm 3', 'k 2', 'normalization 0']
    """
    _check(fitted, raw)
    check_choice("format", format, ("text", "binary"))
    target = check_destination(Path(path), "model.ffm")
    description = check_destination(_description_path(target))
    with replacing(target) as file:
        (_write_text if format == "text" else _write_binary)(file, fitted)
        described = {**_feature_map(fitted, format), "sha256": stream_digest(file, 0, file.tell())}
        # Two files cannot be replaced in one step. Both are on disk before the first is replaced, and a crash in
        # between leaves a description with another checksum than the model.
        with replacing(description) as text:
            text.write(json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def export_libffm_rows(
    fitted: Fitted, table: object, path: str | os.PathLike[str], *, target: str | None = None
) -> None:
    """Write the rows of a table as libffm reads them, `label field:feature:value ..`, for the exported model.

    Parameters
    ----------
    fitted : Fitted
        The model.
    table : table, path or dataset
        Anything that `Fitted.scores` takes.
    path : path
        The file to write; an existing file is replaced atomically.
    target : str, optional
        The column of labels; without it all labels are 0, which does not matter for predictions.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import splinefm as sf
    >>> table = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sf.export_libffm_rows(fitted, {"c": ["b", None], "click": [1, 0]}, f"{folder}/rows.txt", target="click")
    ...     print(Path(f"{folder}/rows.txt").read_text())
    1 0:3:1 1:4:1 2:5:1
    0 0:0:1 1:4:1 2:5:1
    <BLANKLINE>
    """
    _check(fitted, raw=True)
    schema = fitted.encoder.schema
    destination = check_destination(Path(path), "rows.txt")
    source = open_table(table, types=schema.column_types())
    schema.check_columns(source.names, target)
    if target is not None and target not in source.names:
        raise ValueError(missing_column_message(target, source.names))
    names = [*schema.columns, *([target] if target is not None else [])]
    with replacing(destination) as file:
        for chunk in source.chunks(names, CHUNK):
            labels = ["0"] * chunk.num_rows if target is None else _labels(fitted, chunk.column(target), target)
            slots = fitted.encoder.encode(chunk.select(list(schema.columns)))
            file.writelines(line.encode() for line in _lines(labels, slots))


# The vectors


def _size(fitted: Fitted) -> tuple[int, int, int]:
    """Features, fields and length of the vectors of the libffm model."""
    layout = fitted.encoder.layout
    n_fields = len(layout.fields)
    return layout.n_features + 2, n_fields + 2, fitted.model.part_size(n_fields)


def _vectors(fitted: Fitted) -> Iterator[Array]:
    """w of all features in order, block by block: shape (features, fields, k)."""
    _, m, k = _size(fitted)
    ptr = fitted.encoder.layout.feature_ptr.tolist()
    for f in range(m - 2):
        for first in range(ptr[f], ptr[f + 1], _ROWS):
            yield _checked(_block(fitted, f, slice(first, min(first + _ROWS, ptr[f + 1])), (m, k)))
    constants = np.zeros((2, m, k), np.float32)
    constants[0, : m - 2, 0] = 1.0
    constants[0, m - 1, 0] = fitted.params["bias"][0]
    constants[1, m - 2, 0] = 1.0
    yield _checked(constants)


def _block(fitted: Fitted, f: int, rows: slice, shape: tuple[int, int]) -> Array:
    m, k = shape
    factors = fitted.params["factors"][rows]
    own = _own_weight(fitted, f)
    vectors = np.zeros((len(factors), m, k), np.float32)
    vectors[:, m - 2, 0] = fitted.params["linear"][rows]
    with np.errstate(all="ignore"):  # numbers that are not finite are reported later
        for e in range(m - 2):
            part = factors[:, fitted.model.columns(e)]
            if e > f:  # M_fe' v; the vectors of field e meet it as they are
                part = through(part, fitted.model.between(fitted.params, f, e))
            vectors[:, e] = own * part if e == f else part
    return vectors


def _own_weight(fitted: Fitted, f: int) -> Float32Array:
    """What the vectors of a field are multiplied with where they meet each other: 0 if they do not."""
    item = fitted.encoder.fields[f]
    if max(item.layout.units) == 0:
        return np.zeros((), np.float32)
    way_out = f'fit with reduction="sum", or use {_onnx()}'
    if item.is_numerical:
        way_out = f"bins have no such pairs: export the result of {as_bins(item.name)}"
    problem = f'field {item.name!r} has reduction="identity", and libffm has no counterpart of the'
    between = fitted.model.between(fitted.params, f, f)
    if between.ndim == 2:
        raise ValueError(f"{problem} matrix between two of its vectors; {way_out}")
    weight = between.min()
    if weight < 0:
        raise ValueError(f"{problem} negative weight ({weight:g}) between two of its vectors; {way_out}")
    return np.sqrt(between).astype(np.float32)


def _checked(vectors: Array) -> Array:
    if not np.isfinite(vectors).all():
        raise ValueError("the model's parameters contain NaN or infinity; refit it")
    # Some readers of text take numbers this small for errors.
    vectors[np.abs(vectors) < np.finfo(np.float32).tiny] = 0.0
    return vectors


# Files


def _write_text(file: BinaryIO, fitted: Fitted) -> None:
    n, m, k = _size(fitted)
    file.write(f"n {n}\nm {m}\nk {k}\nnormalization 0\n".encode())
    form = "".join(f"w%d,{f} " + "%.9g " * k + "\n" for f in range(m))
    at = 0
    for vectors in _vectors(fitted):
        numbered = np.empty((len(vectors), m, 1 + k))
        numbered[:, :, 0] = np.arange(at, at + len(vectors))[:, None]
        numbered[:, :, 1:] = vectors
        file.writelines((form % tuple(row)).encode() for row in numbered.reshape(len(vectors), -1).tolist())
        at += len(vectors)


def _write_binary(file: BinaryIO, fitted: Fitted) -> None:
    n, m, k = _size(fitted)
    file.write(struct.pack("<iii?", n, m, k, False))
    groups = -(-k // _ALIGNED)
    for vectors in _vectors(fitted):
        # Four weights, then four sums of squared gradients, which begin with 1.
        padded = np.zeros((len(vectors), m, groups * _ALIGNED), "<f4")
        padded[:, :, :k] = vectors
        both = np.ones((len(vectors), m, groups, 2, _ALIGNED), "<f4")
        both[:, :, :, 0] = padded.reshape(len(vectors), m, groups, _ALIGNED)
        file.write(both.tobytes())


def _labels(fitted: Fitted, column: Any, name: str) -> list[str]:
    y = as_targets(column, name, fitted.classes)
    if np.isnan(y).any():
        raise ValueError(f"the target {name!r} has missing values; drop those rows, or leave target out")
    if fitted.loss.name != "logistic":
        return [f"{value:.9g}" for value in y.tolist()]
    if not np.isin(y, (0.0, 1.0)).all():
        other = y[~np.isin(y, (0.0, 1.0))][0]
        raise ValueError(f"libffm knows the labels 0 and 1 only, the target {name!r} has {other:g}; leave target out")
    return ["1" if value else "0" for value in y.tolist()]


def _lines(labels: list[str], slots: Slots) -> Iterator[str]:
    layout = slots.layout
    width = np.diff(layout.weight_ptr)
    features = expand_windows(slots.start, width)
    fields = np.repeat(layout.unit_field[layout.window_unit], width).tolist()
    m, n = len(layout.fields), layout.n_features
    constant = f"{m}:{n}:1 {m + 1}:{n + 1}:1\n"
    for label, row, weights in zip(labels, features.tolist(), slots.weight.tolist(), strict=True):
        active = zip(fields, row, weights, strict=True)
        parts = [f"{field}:{feature}:{weight:.9g}" for field, feature, weight in active if weight]
        yield " ".join([label, *parts, constant])


# The map


def _feature_map(fitted: Fitted, format: Format) -> dict[str, Any]:
    n, m, k = _size(fitted)
    layout, crosses, loss = fitted.encoder.layout, fitted.encoder.crosses, fitted.loss
    classes = None if loss.classes is None else [str(label) for label in loss.classes]
    return {
        "written_by": f"splinefm {sys.modules['splinefm'].__version__}",
        "model": repr(fitted.model),
        "libffm": {"format": format, "n": n, "m": m, "k": k, "normalization": False},
        "prediction": {
            "loss": loss.name,
            **loss.parameters,
            "formula": loss.link_formula(),
            "center": float(loss.center),
            "scale": float(loss.scale),
            "classes": classes,
            **({} if loss.of_class is None else {"of_class": str(loss.of_class)}),
        },
        "fields": [
            {
                "field": f,
                "name": item.name,
                **({} if f in crosses else {"column": item.columns[0]}),
                "first_feature": int(layout.feature_ptr[f]),
                **(_describe_cross(crosses[f]) if f in crosses else _describe(item)),
            }
            for f, item in enumerate(fitted.encoder.fields)
        ],
        "in_every_row": f"{m - 2}:{n - 2}:1 {m - 1}:{n - 1}:1",
    }


def _describe(item: Any) -> dict[str, Any]:
    """What the features of a field stand for, in order."""
    if item.is_numerical:
        special = [rule if isinstance(rule, str) else f"== {rule!r}" for rule in item.special]
        tokens = special + ["missing"] * (item.missing == "token")
        part = {"part": item.part} if item.part is not None else {}
        number: dict[str, Any] = {"kind": "numerical", **part, "tokens": tokens, "missing": item.missing}
        if item.outside != "clip":
            number |= {"outside": item.outside, "limits": list(item.value_limits)}
        if type(item.basis) is not Bins:
            parts = {"basis": _settings(item.basis), "transform": _settings(item.transform)}
            return {**number, "functions": sum(item.basis.sizes), **parts}
        edges = item.bin_edges().tolist()
        # JSON has no infinities; bins beyond them hold no number.
        return {**number, "edges": [edge if math.isfinite(edge) else str(edge) for edge in edges]}
    tokens = [token.name for token in item.tokens()]
    described: dict[str, Any] = {
        "kind": "categorical",
        "tokens": tokens,
        "missing": item.missing,
        "unseen": item.unseen,
    }
    if item.holds_lists:
        lists = {"reduction": item.reduction, "max_length": item.max_length, "separator": item.separator}
        described |= {**lists, "kind": "multi-valued"}
    return {**described, "categories": item.vocabulary.names.to_pylist()}


def _describe_cross(item: Cross) -> dict[str, Any]:
    """What the features of a cross stand for: `block` features for each combination of categories or bucket.

    A combination has a feature of each categorical part, counted from its first token. Inside a block, `sizes` has the
    functions or bins of each numerical part, for every resolution; the functions of the last part are adjacent.
    """
    parts = [{"name": part.name, "column": part.column, **_describe(part)} for part in item.fields]
    cross = {"kind": "cross", "parts": parts, "block": item.block, "sizes": [list(sizes) for sizes in item.level_sizes]}
    if item.cells is not None:
        cross["combinations"] = item.cells.features.tolist()
    return {**cross, **describe_hash(item)}


def _settings(part: Any) -> object:
    """A transform or a basis as JSON; of a custom one, the name."""
    return {"kind": type(part).__name__, **asdict(part)} if isinstance(part, TRANSFORMS + BASES) else repr(part)


# Checks


def _check(fitted: Fitted, raw: bool) -> None:
    check_one_score(fitted)
    if fitted.offset is not None:
        raise ValueError(
            f"libffm has no offsets, and the model has the {fitted.offset}; use {_onnx()}, or export "
            "fitted.without_offset() and add it to the scores"
        )
    model = fitted.model
    if model.order > 2:
        raise ValueError(
            f"libffm has products of two fields only, {model!r} has products of up to {model.order}; use {_onnx()}"
        )
    for f in range(len(fitted.encoder.fields)):
        _own_weight(fitted, f)
    n = _size(fitted)[0]
    if n > _MAX_FEATURES:
        raise ValueError(f"libffm takes at most {_MAX_FEATURES:,} features, the model has {n:,}; raise min_count")
    if fitted.loss.name != "logistic" and not raw:
        raise ValueError(
            f"libffm predicts 1 / (1 + exp(-score)), which is not a prediction of a model with the {fitted.loss.name} "
            f"loss; use {_onnx()}, or {for_reader('raw=True', '--raw')} for a system that reads the file and applies "
            "another link"
        )


def _onnx() -> str:
    return for_reader("sf.export_onnx", "--to onnx")


def _description_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
