"""The Open Inference Protocol (KServe V2) over HTTP, with its binary extension: a tensor for each column.

A model has the name of an arm, or `splinefm` for the arm that the key of each row decides. Numbers are tensors
of any number type; NaN is a missing value there, since the protocol has no null. Text is BYTES; of a multi-valued
column, each element is a JSON list.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from splinefm.serve.bodies import InferBody, Row, Tensor, from_json, to_json
from splinefm.serve.endpoints.score import LONG_ROWS, check_count
from splinefm.serve.messages import Answer, Later, Problem, Request, Response, json_response
from splinefm.serve.models import LoadedModel
from splinefm.serve.rows import Fault, FaultyRows, ListedRows
from splinefm.serve.service import ScoringService
from splinefm.serve.serving import Scored, Serving

SPLIT = "splinefm"
_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?(/ready|/infer)?")
_NUMBERS: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"INT{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
}
_OUTPUTS: dict[str, tuple[str, np.dtype[Any]]] = {
    "score": ("FP32", np.dtype("<f4")),
    "prediction": ("FP64", np.dtype("<f8")),
}
_HEADER_LENGTH = b"inference-header-content-length"


def error_response(error: Problem) -> Response:
    """Errors as the protocol has them."""
    status = 400 if error.status == 422 else error.status
    return Response(status, to_json({"error": error.detail}), headers=error.headers)


def server(service: ScoringService, request: Request) -> Response:
    """GET /v2."""
    version = sys.modules["splinefm"].__version__  # not imported: that is for users of the library
    return json_response({"name": "splinefm", "version": version, "extensions": ["binary_tensor_data"]})


def methods(path: str) -> set[str]:
    """The methods of a path under /v2/models/."""
    found = _PATH.fullmatch(path)
    return set() if found is None else {"POST"} if found[3] == "/infer" else {"GET"}


def answer(service: ScoringService, request: Request) -> Answer:
    """Metadata, readiness or inference of a model."""
    found = _PATH.fullmatch(request.path)
    assert found is not None  # `methods` knew it
    name, version, what = found.groups()
    serving = service.serving
    if name != SPLIT and name not in serving.split.weights:
        raise Problem(404, f"no model {name!r}; the models are {', '.join([*serving.split.weights, SPLIT])}")
    arm = name if name in serving.split.weights else None
    model = serving.loaded[arm or serving.split.names[0]]
    if version is not None and version != model.published.version:
        raise Problem(404, f"model {name!r} has version {model.published.version}, not {version!r}")
    if what == "/ready":
        return json_response({"name": name, "ready": True})
    if what == "/infer":
        return _infer(service, serving, request, name, arm)
    inputs = [
        {"name": column, "datatype": datatype_of(model, column), "shape": [-1]} for column in serving.names.needed
    ]
    shape = [-1] if serving.n_outputs == 1 else [-1, serving.n_outputs]
    outputs = [{"name": output, "datatype": kind, "shape": shape} for output, (kind, _) in _OUTPUTS.items()]
    return json_response(
        {
            "name": name,
            "versions": [model.published.version],
            "platform": "splinefm",
            "inputs": inputs,
            "outputs": outputs,
        }
    )


def datatype_of(model: LoadedModel, column: str) -> str:
    """The type of tensor that a column is best sent as."""
    item = _field_of(model, column)
    return "FP64" if item is not None and item.is_numerical and item.part is None else "BYTES"


def _field_of(model: LoadedModel, column: str) -> Any:
    readers = model.fitted.encoder.schema.column_readers
    return next((item for item in readers if item.column == column), None)


# Inference


def _infer(service: ScoringService, serving: Serving, request: Request, name: str, arm: str | None) -> Answer:
    head, tail = _cut(request)
    body: InferBody = from_json(head, InferBody)
    rows = ListedRows(_rows(serving, body.inputs, tail, service.settings.limits.rows))
    request.n_rows = len(rows)
    wanted = _wanted(body)

    def compute() -> Response:
        found = service.score(rows, request_id=request.id, arm=arm, serving=serving)
        return _respond(found, body, name, request, wanted)

    return Later(compute) if len(rows) > LONG_ROWS else compute()


def _cut(request: Request) -> tuple[bytes, memoryview]:
    """The JSON of a body, and the tensors behind it."""
    given = request.headers.get(_HEADER_LENGTH)
    if given is None:
        return request.body, memoryview(b"")
    if not re.fullmatch(rb"[0-9]{1,12}", given) or int(given) > len(request.body):
        raise Problem(
            400, f"Inference-Header-Content-Length must be at most the length of the body, got {given[:40]!r}"
        )
    return request.body[: int(given)], memoryview(request.body)[int(given) :]


def _wanted(body: InferBody) -> dict[str, bool]:
    """The outputs that are asked for, and whether as bytes."""
    every = body.parameters.get("binary_data_output") is True
    if not body.outputs:
        return dict.fromkeys(_OUTPUTS, every)
    for output in body.outputs:
        if output.name not in _OUTPUTS:
            raise Problem(400, f"no output {output.name[:60]!r}; the outputs are {', '.join(_OUTPUTS)}")
    return {output.name: output.parameters.get("binary_data", every) is True for output in body.outputs}


def _rows(serving: Serving, tensors: list[Tensor], tail: memoryview, max_rows: int) -> list[Row]:
    columns: dict[str, list[Any]] = {}
    model = serving.shown[0]
    for tensor in tensors:
        if tensor.name in columns:
            raise Problem(400, f"input {tensor.name[:60]!r} is given twice; give it once")
        values, tail = _values(tensor, tail, max_rows)
        field = _field_of(model, tensor.name)
        if field is not None and field.holds_lists:
            values = [_list(tensor.name, i, value) for i, value in enumerate(values)]
        columns[tensor.name] = values
    if len(tail):
        raise Problem(400, f"{len(tail)} bytes follow the last tensor; binary_data_size must add up to all of them")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise Problem(400, f"all inputs must have as many rows, got {dict(list(lengths.items())[:10])}")
    check_count(next(iter(lengths.values()), 0), max_rows)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _values(tensor: Tensor, tail: memoryview, max_rows: int) -> tuple[list[Any], memoryview]:
    """The values of a tensor, and what is left of the bytes."""
    what = f"input {tensor.name[:60]!r}"
    n = tensor.shape[0] if tensor.shape else -1
    if not (1 <= len(tensor.shape) <= 2 and n >= 0 and tensor.shape[1:] in ([], [1])):
        raise Problem(400, f"{what} must have the shape [rows] or [rows, 1], got {tensor.shape[:5]}")
    check_count(max(n, 1), max_rows)
    if tensor.datatype != "BYTES" and tensor.datatype not in _NUMBERS:
        raise Problem(400, f"{what} has the datatype {tensor.datatype[:20]!r}; known are {', '.join(_NUMBERS)}, BYTES")
    size = tensor.parameters.get("binary_data_size")
    if (size is None) == (tensor.data is None):
        raise Problem(400, f"{what} must have either data, or binary_data_size and its bytes behind the JSON")
    if tensor.data is not None:
        values = [value[0] if isinstance(value, list) and len(value) == 1 else value for value in tensor.data]
        if len(values) != n:
            raise Problem(400, f"{what} has {len(values)} values, but its shape says {n}")
        return [_checked(tensor, i, value) for i, value in enumerate(values)], tail
    if type(size) is not int or not 0 <= size <= len(tail):
        raise Problem(400, f"{what}: binary_data_size must be between 0 and the {len(tail)} bytes that follow")
    return _decode(tensor, bytes(tail[:size]), n, what), tail[size:]


def _checked(tensor: Tensor, i: int, value: Any) -> Any:
    """A value of JSON, which must be of the kind that its tensor says; null is a missing value."""
    is_text = isinstance(value, str)
    fits = value is None or (is_text if tensor.datatype == "BYTES" else isinstance(value, bool | int | float))
    if not fits:
        text = f"column {tensor.name!r}: the datatype is {tensor.datatype}, but the value is {value!r:.60}"
        raise FaultyRows([Fault(i, tensor.name, text)])
    return value


def _decode(tensor: Tensor, raw: bytes, n: int, what: str) -> list[Any]:
    if tensor.datatype == "BYTES":
        return _texts(raw, n, what)
    dtype = _NUMBERS[tensor.datatype]
    if len(raw) != n * dtype.itemsize:
        raise Problem(400, f"{what} has {len(raw)} bytes, but its shape and datatype need {n * dtype.itemsize}")
    values: list[Any] = np.frombuffer(raw, dtype).tolist()
    return [None if value != value else value for value in values]


def _texts(raw: bytes, n: int, what: str) -> list[Any]:
    """Texts, each behind its length."""
    found, at = [], 0
    for _ in range(n):
        if at + 4 > len(raw):
            break
        (length,) = struct.unpack_from("<I", raw, at)
        at += 4 + length
        if at > len(raw):
            break
        try:
            found.append(raw[at - length : at].decode())
        except UnicodeDecodeError:
            raise Problem(400, f"{what}: element {len(found)} is not UTF-8") from None
    if len(found) != n or at != len(raw):
        raise Problem(400, f"{what}: its bytes do not hold {n} elements, each behind its length of four bytes")
    return found


def _list(name: str, i: int, value: Any) -> Any:
    """The list of a multi-valued column: JSON in a text; other text is left to the column's separator."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            return from_json(value.encode("utf-8", "surrogatepass"))
        except ValueError as error:
            raise FaultyRows([Fault(i, name, f"column {name!r}: {error}; write the list as JSON")]) from None
    return value


def _respond(found: Scored, body: InferBody, name: str, request: Request, wanted: Mapping[str, bool]) -> Response:
    arrays: dict[str, Any] = {"score": found.scores, "prediction": found.predictions}
    outputs, raw = [], []
    for output, as_bytes in wanted.items():
        kind, dtype = _OUTPUTS[output]
        values = arrays[output]
        entry: dict[str, Any] = {"name": output, "datatype": kind, "shape": list(values.shape)}
        if as_bytes:
            raw.append(np.ascontiguousarray(values, dtype).tobytes())
            entry["parameters"] = {"binary_data_size": len(raw[-1])}
        else:
            entry["data"] = values.reshape(-1).tolist()
        outputs.append(entry)
    version = next(iter(found.versions.values()))
    content = {"model_name": name, "model_version": version, "id": body.id or request.id, "outputs": outputs}
    head = to_json(content)
    if not raw:
        return Response(200, head)
    length = ((_HEADER_LENGTH, b"%d" % len(head)),)
    return Response(200, b"".join([head, *raw]), b"application/octet-stream", length)
