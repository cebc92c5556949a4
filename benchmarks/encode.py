"""How fast does a table become slots, compared with scikit-learn's transformers for the same job?

The table has 1,000,000 rows, 13 numerical columns (quantile transform, cubic splines on 20 segments) and 26 categorical
ones (100,000 distinct values in all, Zipf). Each contender runs in a separate process, which makes peak memory
comparable. It does the job three times; the first does not count. Contenders alternate, and the best run counts.

    python benchmarks/encode.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from _shared import SEGMENTS, criteo_columns, criteo_schema, finish, make_parser, peak_bytes, say


def peak_mib() -> float:
    """Return the peak resident memory so far, in MiB."""
    return peak_bytes() / 2**20


def run_sklearn(table: pa.Table) -> tuple[float, float, float]:
    """Seconds to fit, seconds to encode, MiB above the input at the peak."""
    import scipy.sparse
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, SplineTransformer

    frame = table.to_pandas()
    splines = make_pipeline(
        QuantileTransformer(), SplineTransformer(n_knots=SEGMENTS + 1, degree=3, sparse_output=True)
    )
    numerical = [name for name in frame if name.startswith("I")]
    categorical = [name for name in frame if name.startswith("C")]
    onehot = OneHotEncoder(handle_unknown="infrequent_if_exist")
    before = peak_mib()
    begin = time.perf_counter()
    # Not in a ColumnTransformer, whose `fit` encodes as well.
    fit_splines = splines.fit(frame[numerical])
    fit_onehot = onehot.fit(frame[categorical])
    fitted = time.perf_counter()
    matrix = scipy.sparse.hstack(
        [fit_splines.transform(frame[numerical]), fit_onehot.transform(frame[categorical])], format="csr"
    )
    encoded = time.perf_counter()
    if matrix.shape[0] != table.num_rows:
        raise RuntimeError("scikit-learn lost rows")
    return fitted - begin, encoded - fitted, peak_mib() - before


def run_splinefm(table: pa.Table, threads: int | None = None) -> tuple[float, float, float]:
    """Seconds to fit, seconds to encode, MiB above the input at the peak."""
    import splinefm as sf

    schema = criteo_schema(table.column_names)
    before = peak_mib()
    begin = time.perf_counter()
    encoder = sf.fit_encoder(schema, table, threads=threads)
    fitted = time.perf_counter()
    slots = encoder.encode(table, threads=threads)
    encoded = time.perf_counter()
    if len(slots) != table.num_rows:
        raise RuntimeError("rows were lost")
    return fitted - begin, encoded - fitted, peak_mib() - before


def _contender(name: str, path: str) -> tuple[float, float, float]:
    with pa.OSFile(path) as file:
        table = pa.ipc.open_file(file).read_all()
    threads = 1 if name == "splinefm, 1 thread" else None
    runs = [run_sklearn(table) if name == "sklearn" else run_splinefm(table, threads) for _ in range(3)]
    # The first run also pays for memory that the process maps for the first time; its peak is the peak.
    return min(run[0] for run in runs[1:]), min(run[1] for run in runs[1:]), runs[0][2]


def measure(rows: int, repeats: int) -> dict[str, Any]:
    """Best times and peaks of all contenders."""
    names = ("splinefm", "splinefm, 1 thread", "sklearn")
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "table.arrow")
        table = pa.table(criteo_columns(rows, text=True))
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        del table
        for repeat in range(repeats):
            for name in names:
                say(f"repeat {repeat + 1} of {repeats}: {name}")
                with context.Pool(1) as pool:
                    results[name].append(pool.apply(_contender, (name, path)))
    best = {name: [min(column) for column in zip(*runs, strict=True)] for name, runs in results.items()}
    ours, single, peer = (best[name] for name in names)
    return {
        "figures": {
            name: dict(zip(("fit_s", "encode_s", "peak_mib"), values, strict=True)) for name, values in best.items()
        },
        "ratios": {
            "fit_vs_sklearn": peer[0] / ours[0],
            "encode_vs_sklearn": peer[1] / ours[1],
            "peak_memory_vs_sklearn": peer[2] / ours[2],
            "fit_1_thread_vs_sklearn": peer[0] / single[0],
            "encode_1_thread_vs_sklearn": peer[1] / single[1],
        },
    }


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "200,000 rows, one repeat").parse_args()
    result = measure(200_000 if options.quick else 1_000_000, 1 if options.quick else 2)
    finish(__file__, result, options)


if __name__ == "__main__":
    main()
