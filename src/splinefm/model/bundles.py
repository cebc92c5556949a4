"""What the kernels of the CPU engine work on, bundled by purpose: see `memory`."""

from __future__ import annotations

from typing import NamedTuple

from splinefm.model.memory import Float32, Float64, Int32, Int64

NEAR = 2048  # table rows of a field whose gradients are summed in `Sums`
COUNTERS = 8  # of the phases of a block of rows: see `threads`


class Shape(NamedTuple):
    """The layout as arrays; windows unit_ptr[u] .. unit_ptr[u + 1] - 1 belong to unit u."""

    weight_ptr: Int32
    window_unit: Int32
    unit_field: Int32
    unit_ptr: Int32
    window_ptr: Int32
    row_ptr: Int32
    n_fields: int
    n_units: int


class Weights(NamedTuple):
    """The parameters as the kernels read them."""

    T: Float32
    L: Float32
    bias: Float32
    R: Float32
    M: Float32


class Data(NamedTuple):
    """Encoded rows with targets."""

    start: Int32
    weight: Float32
    y: Float64
    sample_weight: Float64
    rows: Int64
    n_windows: int
    n_weights: int


class Course(NamedTuple):
    """Steps on batches of `batch_size` of n rows, one after another.

    What each is divided by, what its loss is; the numbers of the optimizer that change from step to step; and how far
    the threads have come.
    """

    n: int
    batch_size: int
    total: Float64
    loss: Float64
    number: Int64
    lr: Float32
    correct1: Float32
    correct2: Float32
    counters: Int64


class Columns(NamedTuple):
    """Starts and weights of rows, sixteen rows of a column after sixteen of the next: see `vectors.column`."""

    start: Int32
    weight: Float32
    n_windows: int
    n_weights: int


class Work(NamedTuple):
    """Derivatives of a block of rows, `room` numbers each, and gradients of the parameters between fields.

    The latter are `n_between` numbers for each of `n_shards` shards: dR of weights, dM of matrices.
    """

    D: Float32
    slopes: Float32
    losses: Float64
    between: Float32
    room: int
    n_between: int
    n_shards: int
    shard: int
    block: int


class Sums(NamedTuple):
    """Gradients of the table rows of a field with splines, and how much weight they got: see `scatter`."""

    vectors: Float32
    linear: Float32
    weight: Float32


class Scratch(NamedTuple):
    """Room for a tile of rows: P, the same times the slopes, and the sums of a HigherOrderFM.

    In an FFM P is S of a row, and A has p_u[f] of its units: see `ffm`.
    """

    P: Float32
    Z: Float32
    A: Float32
    sums: Sums


class Touch(NamedTuple):
    """The table rows that a batch touches, field by field, and their gradients of `width` numbers.

    In an FM `own` times its vector is still to be subtracted from the gradient of a row; elsewhere `own` is zero.
    `place` and `before` are for an FFM: see `ffm`.
    """

    slot: Int32
    rows: Int32
    gradient: Float32
    linear: Float32
    own: Float32
    place: Int32
    before: Int32
    ptr: Int64
    n_places: Int64
    width: int


class Penalty(NamedTuple):
    """Groups of table rows as arrays; `signed` has four numbers per group."""

    group_ptr: Int64
    begin: Int64
    end: Int64
    l2: Float32
    l2_linear: Float32
    smoothness: Float32
    order: Int64
    signed: Float32
    periodic: Int64


class State(NamedTuple):
    """The optimizer's memory."""

    m: Float32
    v: Float32
    average: Float32
    last: Int64


class Dense(NamedTuple):
    """Parameters between fields, n numbers, their gradient, and the optimizer's memory of them."""

    values: Float32
    gradient: Float32
    n: int
    state: State


class Memory(NamedTuple):
    """All that a step works on, but for the data and what each thread has of its own."""

    shape: Shape
    weights: Weights
    columns: Columns
    work: Work
    touch: Touch
    penalty: Penalty
    vectors: State
    linear: State
    bias: State
    between: Dense
    scales: Dense


class Batches(NamedTuple):
    """What to train on."""

    data: Data
    course: Course


class Scoring(NamedTuple):
    """All that scoring works on; D has room for the derivatives of a tile."""

    shape: Shape
    weights: Weights
    data: Data
    columns: Columns
    scratch: Scratch
    scores: Float32
    D: Float32
