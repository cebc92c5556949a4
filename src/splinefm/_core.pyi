"""The compiled loops of splinefm."""

from collections.abc import Sequence
from typing import Annotated, Any, overload

import numpy
from numpy.typing import NDArray


isa: str

isas: tuple[str, ...]

class StringTable:
    """
    Positions of known strings: string i is `text[offsets[i]:offsets[i + 1]]`, in UTF-8.
    """

    def __init__(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def find(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]:
        """
        Position of each string among the known ones, -1 where it is not known.
        """

    def find_into(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], first: int, unknown: int, out: Annotated[NDArray[numpy.int32], dict(shape=(None,), device='cpu')]) -> int:
        """
        Write `first` + the position of each string, or `unknown`; returns how many are not known.
        """

    def slots(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]:
        """
        The hash table: positions of strings, or -1, for files that are used in place.
        """

def count_strings(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]:
    """
    Position of the first of each kind of string, in the order of occurrence, and how many are equal to it.
    """

def probe_hash(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C')]:
    """For tests: the hash of each string."""

def elementary(function: str, x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
    """
    The function log, log1p, exp, expm1, asinh or atan of each x; asinh by formulas, the others by the C library.
    """

def power(x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], exponent: float) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
    """Each x to the power of `exponent`."""

class Interpolation:
    """
    Piecewise linear through (knots, values), constant beyond the ends; NaN stays NaN.
    """

    def __init__(self, knots: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def __call__(self, x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """The value at each x."""

@overload
def uniform_splines(u: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], segments: int, degree: int, first: int, start: Annotated[NDArray[numpy.int32], dict(shape=(None,), device='cpu')], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu')]) -> None:
    """
    Write the first active function at each u, counted from `first`, and the weights of it and the `degree` functions behind it.
    """

@overload
def uniform_splines(u: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], segments: int, degree: int, first: int, start: Annotated[NDArray[numpy.int32], dict(shape=(None,), device='cpu')], weight: Annotated[NDArray[numpy.float64], dict(shape=(None, None), device='cpu')]) -> None: ...

def summarize(x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity: int) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
    """
    Distinct values of an array, in order, at most `capacity`, with the rows below and at each.
    """

def cell_gains(cells: Annotated[NDArray[numpy.int32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], sizes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], pairs: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], residual: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], fold: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, n_folds: int, shrinkage: float, threads: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
    """
    How much smaller the squared residuals of each fold of rows get by the cell means of the others, for pairs of columns, or single columns, whose second number is -1. `cells` has the cell of every column, level and row, `sizes` the number of cells.
    """

class Shape:
    """A layout as the loops read it; see splinefm.encode.slots.SlotLayout."""

    def __init__(self, weight_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], window_unit: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], unit_field: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], window_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], feature_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], apart: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class Parameter:
    """Some parameters and their optimizer state; nothing is copied."""

    def __init__(self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], m: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], v: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], average: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

class ModelSettings:
    """A model and its sizes: see cpp/model.hpp."""

    def __init__(self, *, name: str, k: int, third: int = 0, members: int = 1, order: int = 0) -> None: ...

class Loss:
    """A loss and its parameter, 0 if it has none: see cpp/losses.hpp."""

    def __init__(self, name: str, parameter: float = 0.0) -> None: ...

class OptimizerSettings:
    """See splinefm.model.optimizers.Optimizer."""

    def __init__(self, *, name: str, beta1: float, beta2: float, eps: float, weight_decay: float, ema: float) -> None: ...

class BatchSizes:
    """How the rows of a batch are divided: see splinefm.model.workspace."""

    def __init__(self, *, tile: int, shard: int, block: int, batch_size: int) -> None: ...

class EngineArrays:
    """
    Parameters with their optimizer state, the copies R and M of those between fields, and the step in which each feature was last active.
    """

    def __init__(self, *, bias: Parameter, linear: Parameter, factors: Parameter, between: Parameter | None, scales: Parameter | None, R: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], M: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], last: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

class Engine:
    """Steps of an optimizer; see splinefm.model.cpu.CpuEngine."""

    def __init__(self, *, shape: Shape, model: ModelSettings, loss: Loss, optimizer: OptimizerSettings, sizes: BatchSizes, arrays: EngineArrays, threads: int, n_steps: int) -> None: ...

    def steps(self, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], sample_weight: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], learning_rates: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], batch_size: int, offset: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None = None) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """
        A step on every batch of `batch_size` of the rows; returns the mean loss of each before its step. The offset is added to the scores.
        """

    def set_penalty(self, *, group_ptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], l2: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], l2_third: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], l2_linear: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], smoothness: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], periodic: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], lengths: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None:
        """Penalties on groups of features, which lie end to end."""

    @property
    def n_steps(self) -> int:
        """Steps so far."""

MAX_SUMMED: int = 2048

losses: dict[str, tuple[float, float]]

class WeightArrays:
    """Parameters to score with, and the copies R and M."""

    def __init__(self, *, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], linear: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], factors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], R: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], M: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

def score(*, shape: Shape, model: ModelSettings, tile: int, weights: WeightArrays, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]:
    """
    Scores of encoded rows with any parameters; several classes one after the other.
    """

class ExplainTerms:
    """Terms of the score, row by row; see splinefm.inspect.terms."""

    def __init__(self, *, model: str, k: int, weight_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], window_unit: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], unit_field: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], factors: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], linear: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], between: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], center: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], slope: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> None: ...

    def inner(self, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], offset: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """out = linear parts and products inside fields - offset."""

    def terms(self, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], offset: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """
        out = all that fields add, half of every product of two for each - offset.
        """

    def effects(self, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], offset: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """out = main effects of all fields - offset, then effects of all pairs."""

    def vectors(self, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu')]) -> None:
        """out = the vectors of fields - center."""

def probe_vec(a: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]:
    """
    For tests: a + b, a - b, a b, a / b, b[0] a, sqrt(a), abs(a), max(a, b) and the sum of a.
    """

class ProbeTeam:
    """For tests: a team of threads whose parts add up their numbers."""

    def __init__(self, threads: int, parts: int) -> None: ...

    def run(self, jobs: int) -> None:
        """Run this number of jobs."""

    def found(self) -> list[int]:
        """The sums, part by part."""

def probe_product(x: float, y: float) -> float:
    """For tests: a product inside kernels, where denormal numbers are zero."""

class IdTable:
    """
    Rows by id: a hash table of rows whose ids are words of eight bytes, shape (rows, width).
    """

    def __init__(self) -> None: ...

    def insert(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
        """
        Enter rows; the first whose id was there already, and which is left out, or -1.
        """

    def find(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)], wanted: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """Rows of ids, -1 where there is none."""

    def erase(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Take rows out."""

    def rebuild(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None:
        """Rebuild the table for words that have become wider."""

class TopK:
    """The best items of a catalog in panels, which is vectors or features."""

    @overload
    @staticmethod
    def vectors(panels: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """Panels of vectors, shape (panels, length, columns)."""

    @overload
    @staticmethod
    def vectors(panels: Annotated[NDArray[numpy.uint16], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """Of float16, as their bits."""

    @overload
    @staticmethod
    def vectors(panels: Annotated[NDArray[numpy.int8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """Of int8, with a scale for each item."""

    @staticmethod
    def effects(starts: Annotated[NDArray[numpy.int32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], windows: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """
        Panels of starts and weights; of each window the first effect, the largest start, the number of weights and the line of the first (-1: it is 1).
        """

    def search(self, requests: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], constants: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], *, k: int, capacity: int, visit: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], keep: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], wanted: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> list[tuple[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]]:
        """
        For each query scores and rows from the k-th best score up, in no order.
        """

    @staticmethod
    def effects_of(panels: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], n_rows: int, queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """out[row, q] = queries[q] · the numbers of a feature."""

TOGETHER: int = 8

class JsonRows:
    """Rows in a body of JSON, for `RowScorer.many_json`; see JsonColumns."""

    def __len__(self) -> int: ...

    def column(self, name: str) -> list[Any]:
        """The values of a column."""

class JsonColumns:
    """
    Names of the columns of rows in JSON. `decode` makes a value of the bytes of its JSON; it is asked for values that have no short way.
    """

    def __init__(self, names: Sequence[str], decode: object) -> None: ...

    def read(self, body: bytes, most: int) -> JsonRows | None:
        """
        The rows of a body, or None where a decoder should look at it: it is no {"rows": [..]} or {"columns": {..}}, a row has other columns, there are none or more than `most`, or it is no JSON.
        """

class ContextSlots:
    """
    The layout of a context's fields, with numbers of the fields and starts among all fields of the model.
    """

    def __init__(self, *, weight_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], window_unit: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], unit_field: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_fields: int, n_features: int) -> None: ...

class QueryMap:
    """
    The linear map to a query of `length` numbers. `blocks` has rows (to, from, numbers that it makes, numbers of a matrix that it takes or 0, first weight).
    """

    def __init__(self, *, blocks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], products: int, length: int) -> None: ...

class ContextSide:
    """Encoded contexts -> queries and constants."""

    def __init__(self, *, slots: ContextSlots, params: RowParams, map: QueryMap) -> None: ...

    def queries(self, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], constants: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> bool:
        """Write queries and constants; whether all numbers are finite."""

def map_queries(blocks: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
    """
    out[i] = the linear map of queries[i]; blocks and weights as for QueryMap.
    """

def cell_places(cells: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]:
    """
    The hash table of combinations of features: positions, or -1, for files that are used in place.
    """

class RowEncoder:
    """
    Raw values of one row -> features and weights. Fields are added in the order of the model. Rows are mappings; `columns` and `readers` have an item per field, or per part of a cross: where its value is, and a function that is asked about values and names that are not known here.
    """

    def __init__(self) -> None: ...

    def add_number(self, *, first: int, signs: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], missing: bool, apart: bool, plain: bool, knots: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], powers: int, low: float, high: float, beyond_missing: bool) -> None:
        """
        A field of numbers; its reader returns a float. Signs of special values: 0 to 4 for ==, <, <=, >, >=.
        """

    def add_window(self, *, segments: int, edges: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], coefficients: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], start: int, moves: int, around: int) -> None:
        """A window of the basis of the field that was added last."""

    def add_names(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], first: int, unseen: int, missing: int) -> None:
        """
        A field of one name; its reader returns a feature, or -1. Rows may be -1 for none, -2 to ask.
        """

    def add_lists(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], first: int, unseen: int, missing: int, length: int, averages: bool, apart: bool) -> None:
        """A field of lists of names; its reader returns features and weights."""

    def add_given(self, length: int, apart: bool, values: int = 1) -> None:
        """
        A field whose reader returns features and weights of every value; of several values, it is given a list.
        """

    def add_offset(self, *, logarithm: bool, unit: float, largest: float) -> None:
        """
        A value that is added to the score, or whose logarithm is, in a unit of the scores; its reader returns a float. It is the last value of a row.
        """

    def add_cross(self, *, first: int, parts: RowEncoder, sizes: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], cells: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], buckets: int, multipliers: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], prime: int) -> None:
        """
        The products of the fields of an encoder: numbers, with a window for every row of `sizes`, which are the functions of each number, and names, whose combinations are rows of `cells` or hashed to `buckets`.
        """

    def encode_column(self, x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], widths: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), device='cpu')], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu')]) -> int:
        """
        Write the slots of a column of numbers, for an encoder of one field; returns the first row with a number that it does not take, or -1.
        """

    def encode_columns(self, cells: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], x: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order='C', device='cpu', writable=False)], widths: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), device='cpu')], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu')]) -> int:
        """
        The same for an encoder of one cross: the cell of the names of every row, or -1, and the numbers.
        """

    def encode(self, row: object, columns: tuple[Any, ...], readers: tuple[Any, ...]) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]]:
        """
        Features and weights of terms; where the terms of units end, after a zero; fields of units.
        """

class RowParams:
    """
    The parameters of a model as single rows are scored with them. The arrays are kept, not copied. k is 4 or a multiple of 8. With several biases, the other parameters come one class after the other.
    """

    def __init__(self, *, model: str, k: int, members: int, order: int, factors: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], linear: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], between: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

def score_slots(*, shape: Shape, params: RowParams, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]:
    """Scores of encoded rows, several classes one after the other."""

class RowScorer:
    """
    Raw values of one row -> its score; `columns` and `readers` as in RowEncoder.
    """

    def __init__(self, *, encoder: RowEncoder, params: RowParams, link: str, center: float, scale: float) -> None: ...

    def score(self, row: object, columns: tuple[Any, ...], readers: tuple[Any, ...], link: bool) -> float:
        """The score of a row, or its prediction."""

    def scores(self, row: object, columns: tuple[Any, ...], readers: tuple[Any, ...], link: bool) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """The scores of a row for all classes, or their probabilities."""

    def many(self, rows: list[Any], columns: tuple[Any, ...], readers: tuple[Any, ...], link: bool, out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        Scores of a list of rows, written to `out`, all classes of a row together.
        """

    def many_json(self, rows: JsonRows, at: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], columns: tuple[Any, ...], readers: tuple[Any, ...], link: bool, out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """
        Scores of some rows of JSON, whose numbers are `at`, as `many` writes them.
        """
