"""Building ONNX graphs; the only module that imports onnx, an optional package: `pip install 'splinefm[onnx]'`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array
from splinefm._checks import is_integer

try:
    import onnx
    from onnx import helper, numpy_helper
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] != "onnx":
        raise
    raise ModuleNotFoundError(
        "export to ONNX needs onnx, which is not installed: pip install 'splinefm[onnx]'", name=error.name
    ) from error

Operand = str | float | np.generic | Array
"""The name of a value, or a constant: a Python int or float is an int64 or a double."""

OLDEST, NEWEST = 17, int(onnx.defs.onnx_opset_version())
"""The operator sets that graphs can be written for."""
MAX_BYTES = 2_000_000_000
"""A file holds at most 2 GiB; the rest is for names and nodes."""
_ML, _ML_VERSION = "ai.onnx.ml", 2  # the domain of LabelEncoder


class Graph:
    """A graph under construction: calling it with an operator adds a node and returns the name of its result.

    Parameters
    ----------
    opset : int
        Version of the operator set.
    taken : set of str
        Names that inputs and outputs will have; no other value gets one of them.

    Examples
    --------
    >>> graph = Graph(17, {"x", "twice"})
    >>> x = graph.input("x", np.float64, ("N",))
    >>> graph.output("twice", graph("Mul", x, 2.0), np.float64)
    >>> [node.op_type for node in graph.model("example", {}).graph.node]
    ['Mul', 'Identity']
    """

    def __init__(self, opset: int, taken: set[str]) -> None:
        if not is_integer(opset) or not OLDEST <= opset <= NEWEST:
            raise ValueError(
                f"opset must be an integer from {OLDEST} to {NEWEST} (the newest of onnx {onnx.__version__}), "
                f"got {opset!r}"
            )
        self.opset = int(opset)
        self._taken = set(taken)
        self._scope = ""
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._tensors: list[Any] = []
        self._scalars: dict[tuple[str, bytes], str] = {}
        self._bytes = 0

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Context in which names of values begin with this prefix, for readers of the graph."""
        before, self._scope = self._scope, f"{name}/"
        try:
            yield
        finally:
            self._scope = before

    def input(self, name: str, dtype: npt.DTypeLike, shape: tuple[str | int, ...]) -> str:
        """An input of the graph; object stands for strings, a name in the shape for any size."""
        new = helper.make_tensor_value_info(name, _element_type(dtype), shape)
        known = next((one for one in self._inputs if one.name == name), new)
        if known != new:
            raise ValueError(
                f"column {name!r} is read by fields of different kinds, and an input of a graph has one type; "
                "give each of the fields a different column"
            )
        if known is new:
            self._inputs.append(new)
        return name

    def output(self, name: str, value: str, dtype: npt.DTypeLike, more: tuple[int, ...] = ()) -> None:
        """An output of the graph, with an entry (of the shape `more`) per row."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, _element_type(dtype), ("N", *more)))

    def __call__(self, operator: str, *operands: Operand, **attributes: Any) -> str:
        """The result of an operator."""
        result = self._new_name(operator)
        inputs = [operand if isinstance(operand, str) else self._constant(operand) for operand in operands]
        self._nodes.append(helper.make_node(operator, inputs, [result], name=result, **attributes))
        return result

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """The value as another type."""
        return self("Cast", value, to=_element_type(dtype))

    def look_up(self, value: str, keys: list[Any], rows: list[int], otherwise: int) -> str:
        """The row of each key, which may be strings or integers."""
        kind = "keys_strings" if isinstance(keys[0], str) else "keys_int64s"
        self._grow(sum(len(key.encode()) + 4 if isinstance(key, str) else 10 for key in keys) + 10 * len(rows))
        return self("LabelEncoder", value, domain=_ML, default_int64=otherwise, values_int64s=rows, **{kind: keys})

    def model(self, doc: str, metadata: Mapping[str, str], version: str = "") -> onnx.ModelProto:
        """The finished model, checked."""
        graph = helper.make_graph(
            self._nodes, "splinefm", self._inputs, self._outputs, initializer=self._tensors, doc_string=doc
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(_ML, _ML_VERSION)]
        model = helper.make_model(
            graph,
            opset_imports=opsets,
            # The oldest that allows these operators: runtimes refuse files that are newer than they are.
            ir_version=helper.find_min_ir_version_for(opsets),
            producer_name="splinefm",
            producer_version=version,
            doc_string=doc,
        )
        helper.set_model_props(model, dict(metadata))
        onnx.checker.check_model(model, full_check=True)
        return model

    def _constant(self, value: float | np.generic | Array) -> str:
        array = np.asarray(value)
        key = (array.dtype.str, array.tobytes()) if array.ndim == 0 else None
        if key is not None and key in self._scalars:
            return self._scalars[key]
        name = self._new_name("constant")
        self._grow(array.nbytes)
        self._tensors.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        if key is not None:
            self._scalars[key] = name
        return name

    def _grow(self, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_BYTES:
            raise ValueError(
                f"the model takes more than {MAX_BYTES:,} bytes, more than an ONNX file can hold; raise min_count "
                "of the fields with most categories, or use a smaller k"
            )

    def _new_name(self, operator: str) -> str:
        number = len(self._nodes) + len(self._tensors)
        name = f"{self._scope}{operator}_{number}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _element_type(dtype: npt.DTypeLike) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
