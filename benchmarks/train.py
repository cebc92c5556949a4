"""How many rows per second does training process, compared with torch?

Rows have the shape of the Criteo data: 26 categorical fields with 1,000,000 features in all (Zipf, exponent 1.2) and 13
numerical ones (cubic splines on 20 segments, and a feature for missing values). Both contenders start from the same
parameters and get the same batches of 4096 encoded rows; the run checks that the loss of the first batch is the same.
Encoding and building batches are not timed. A call of ours gets several batches, as many as in training.

Of torch the fastest of several variants counts (see `peers/torch_fm.py`), with fewer threads if that is faster.
`*_vs_torch` is torch with default settings; `*_vs_tuned_torch` adds huge pages and an allocator that keeps its memory,
which few people set. Of ours the faster of Adagrad and AdamW counts. Every model runs in a separate process; contenders
alternate, and the best round counts.

    python benchmarks/train.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import ctypes
import gc
import math
import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from _shared import N_CATEGORICAL, N_NUMERICAL, SEGMENTS, finish, make_parser, say, zipf_ranks

import splinefm as sf
from splinefm.encode.bases import cardinal_splines
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots, empty_slots
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import init_params

FEATURES, DEGREE = 1_000_000, 3
BATCH, LEARNING_RATE, THREADS = 4096, 0.01, 2
RATED: dict[str, AnyModel] = {"fm_k16": sf.FM(16), "fwfm_k16": sf.FwFM(16), "ffm_k8": sf.FFM(8), "fmfm_k8": sf.FmFM(8)}
FURTHER: dict[str, AnyModel] = {
    "fm_k8": sf.FM(8),
    "ffm_k4": sf.FFM(4),
    "low_rank_fwfm_k16": sf.LowRankFwFM(16, 3),
    "higher_order_fm_k16": sf.HigherOrderFM(16, 3),
}
# A dense optimizer reads and writes the whole table several times a step: not worth the wait beyond this size.
DENSE_LIMIT = 30_000_000
# Rows, and what trains on them and returns the loss of the first batch.
Steps = list[tuple[int, Callable[[], float]]]
Speeds = dict[str, float]


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    batches: int
    rounds: int
    seconds: float  # per round
    ffm_features: int
    optimizers: tuple[str, ...]  # of ours
    torch: tuple[bool, ...]  # whether tuned


# The FFM's table is 39 times the others': with fewer features the quick run need not wait for its start values.
QUICK = Size(6, 3, 0.25, 100_000, ("adagrad",), (False,))
FULL = Size(24, 4, 1.5, FEATURES, ("adagrad", "adamw"), (False, True))


def make_data(rows: int, features: int) -> tuple[Slots, npt.NDArray[np.float64]]:
    """Encoded rows and random targets, a quarter of them positive."""
    rng = np.random.default_rng(0)
    each = features // N_CATEGORICAL
    categorical = [FieldLayout(f"C{i + 1}", each, (1,), (0,)) for i in range(N_CATEGORICAL)]
    n_spline = 1 + SEGMENTS + DEGREE
    numerical = [FieldLayout(f"I{i + 1}", n_spline, (DEGREE + 1,), (0,)) for i in range(N_NUMERICAL)]
    slots = empty_slots(rows, SlotLayout((*categorical, *numerical)))
    layout = slots.layout
    for field in range(N_CATEGORICAL):
        slots.start[:, field] = layout.feature_ptr[field] + rng.permutation(each)[zipf_ranks(rng, rows, each)]
    slots.weight[:, :N_CATEGORICAL] = 1.0
    for field in range(N_CATEGORICAL, N_CATEGORICAL + N_NUMERICAL):
        start, weight = cardinal_splines(rng.random(rows), SEGMENTS, DEGREE)
        slots.start[:, field] = layout.feature_ptr[field] + 1 + start.ravel()
        slots.weight[:, layout.weight_ptr[field] : layout.weight_ptr[field + 1]] = weight
    return slots, (rng.random(rows) < 0.25).astype(np.float64)


def our_steps(
    model: AnyModel, params: Params, slots: Slots, y: npt.NDArray[np.float64], optimizer: str, threads: int
) -> Steps:
    """Calls of ours, for as many batches as in training."""
    from splinefm.model.cpu import CpuEngine
    from splinefm.model.optimizers import Optimizer
    from splinefm.train.loop import in_groups

    engine = CpuEngine(
        model,
        slots.layout,
        params,
        optimizer=Optimizer(optimizer, LEARNING_RATE),
        batch_size=BATCH,
        threads=threads,
    )
    weight = np.ones(len(slots))

    def call(rows: npt.NDArray[np.int64]) -> float:
        return float(engine.steps(slots, y, weight, rows, np.full(len(rows) // BATCH, LEARNING_RATE))[0])

    groups = in_groups(np.arange(len(slots)), BATCH, engine)
    return [(len(rows), partial(call, rows)) for rows in groups]


class Torch:
    """Finds the fastest torch variant for a model and keeps it.

    Parameters
    ----------
    model, params, slots, y
        The job.
    seconds : float
        Time to find out how fast a variant is.

    Attributes
    ----------
    steps : list of callables
        Of the fastest variant.
    variant : str
        Its name.
    speeds : dict
        Rows per second of every variant, with all threads.
    loss : float
        Of the first batch.
    """

    def __init__(
        self, model: AnyModel, params: Params, slots: Slots, y: npt.NDArray[np.float64], seconds: float
    ) -> None:
        from peers.torch_fm import VARIANTS, make_batch, make_step

        assert isinstance(model, sf.FM | sf.FwFM | sf.FmFM | sf.FFM)
        batches = [make_batch(slots[at : at + BATCH], y[at : at + BATCH]) for at in range(0, len(slots), BATCH)]
        self.speeds: Speeds = {}
        self.variant, self.steps, self.loss, best = "", Steps(), 0.0, 0.0
        for variant in VARIANTS:
            if variant.startswith("adamw") and params["factors"].size > DENSE_LIMIT:
                continue
            say(f"torch {variant}")
            step = make_step(model, params, variant, LEARNING_RATE)
            steps: Steps = [(BATCH, partial(step, batch)) for batch in batches]
            set_torch_threads(THREADS)
            losses = [step() for _, step in steps[:2]]
            speed = max(rows_per_second(steps, seconds) for _ in range(2))
            self.speeds[f"torch {variant}, {THREADS} threads"] = speed
            if speed > best:
                self.variant, self.steps, self.loss, best = variant, steps, losses[0], speed
            del steps
            gc.collect()


def set_torch_threads(threads: int) -> None:
    """From now on."""
    import torch

    torch.set_num_threads(threads)


def rows_per_second(steps: Steps, seconds: float) -> float:
    """Over all steps, or as many as fit into the time; two batches at least."""
    begin = time.perf_counter()
    done = 0
    for rows, step in steps:
        step()
        done += rows
        if done >= 2 * BATCH and time.perf_counter() - begin > seconds:
            break
    return done / (time.perf_counter() - begin)


def measure_model(name: str, size: Size, tuned: bool) -> Speeds:
    """Measure rows per second of every contender; runs in a separate process."""
    prepare_torch(tuned)
    say(f"{name}: data and start values")
    model = (RATED | FURTHER)[name]
    slots, y = make_data(size.batches * BATCH, size.ffm_features if isinstance(model, sf.FFM) else FEATURES)
    params = init_params(model, slots.layout, np.random.default_rng(1))
    has_peer = isinstance(model, sf.FM | sf.FwFM | sf.FmFM | sf.FFM)
    peer = Torch(model, params, slots, y, size.seconds) if has_peer else None
    speeds = dict(peer.speeds) if peer else {}
    for optimizer in size.optimizers:
        contenders = {}
        for threads in range(THREADS, 0, -1):
            say(f"{name}: splinefm {optimizer}, {threads} threads")
            steps = our_steps(model, params, slots, y, optimizer, threads)
            loss = steps[0][1]()
            if peer and not abs(loss - peer.loss) < 1e-4:
                raise RuntimeError(f"{name}: the loss of the first batch is {loss}, with torch it is {peer.loss}")
            for _, step in steps:  # so that allocated pages are mapped
                step()
            contenders[f"splinefm {optimizer}, {threads} threads"] = steps
        say(f"{name}: {size.rounds} rounds")
        for _ in range(size.rounds):
            for threads in range(THREADS, 0, -1):
                round_steps = {key: steps for key, steps in contenders.items() if f" {threads} threads" in key}
                if peer:
                    set_torch_threads(threads)
                    round_steps[f"torch {peer.variant}, {threads} threads"] = peer.steps
                for key, steps in round_steps.items():
                    speeds[key] = max(speeds.get(key, 0.0), rows_per_second(steps, size.seconds))
        del contenders, steps
        gc.collect()
    return speeds


def prepare_torch(tuned: bool) -> None:
    """Settings that make torch faster here; they must come before its import."""
    # Threads that wait do not take the cores from those that work: ten times faster where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    warnings.filterwarnings("ignore", message="Sparse invariant checks")
    if not tuned:
        return
    # Huge pages for large tensors, as NumPy has them.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    # Keep freed memory instead of asking for new pages in every step: up to three times faster for FFM.
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.mallopt(-4, 0)  # M_MMAP_MAX
        libc.mallopt(-1, -1)  # M_TRIM_THRESHOLD


def measure(names: list[str], size: Size) -> dict[str, Any]:
    """All models, and the ratios."""
    figures: dict[str, Speeds] = {}
    ratios: dict[str, float] = {}
    context = multiprocessing.get_context("spawn")
    for tuned in size.torch:
        peer = "tuned_torch" if tuned else "torch"
        for name in names if not tuned else RATED:
            with context.Pool(1) as pool:
                speeds = pool.apply(measure_model, (name, size, tuned))
            figures[f"{name}, tuned torch" if tuned else name] = speeds
            say(f"{name}: " + "; ".join(f"{key} {speed:,.0f}" for key, speed in speeds.items()))
            theirs = max(fastest(speeds, "torch", threads) for threads in range(1, THREADS + 1))
            if theirs:
                ratios[f"{name}_vs_{peer}"] = fastest(speeds, "splinefm", THREADS) / theirs
    gains = [fastest(speeds, "splinefm", 2) / fastest(speeds, "splinefm", 1) for speeds in figures.values()]
    ratios["threads2_vs_1"] = math.prod(gains) ** (1.0 / len(gains))
    return {"figures": figures, "ratios": ratios}


def fastest(speeds: Speeds, contender: str, threads: int) -> float:
    """Rows per second of the fastest variant of a contender, 0 if it has none."""
    return max(
        (speed for key, speed in speeds.items() if key.startswith(contender) and key.endswith(f" {threads} threads")),
        default=0.0,
    )


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "four models, ours with Adagrad only, fewer rows").parse_args()
    result = measure(list(RATED if options.quick else RATED | FURTHER), QUICK if options.quick else FULL)
    finish(__file__, result, options)


if __name__ == "__main__":
    main()
