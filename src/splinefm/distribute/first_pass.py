"""FirstPass: what the first pass over the data finds, kept for restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._files import replacing
from splinefm.distribute.checkpoints import (
    DamagedCheckpoint,
    check_files,
    damaged,
    decode_manifest,
    encode_manifest,
    file_digest,
)
from splinefm.distribute.processes import Processes
from splinefm.distribute.rows import ParquetRows
from splinefm.distribute.statistics import Scan, ShareStatistics, collect_statistics, merge_statistics
from splinefm.distribute.wire import Mismatch, from_bytes, to_bytes
from splinefm.encode.encoder import CHUNK
from splinefm.train.rows import ValidationSample

# Maximum number of validation rows, over all processes.
VALIDATION_ROWS = 1_000_000
STATISTICS = "statistics.bin"
# The checksums of the statistics and of the validation rows of all processes. It is written last: if it
# exists, so do all others.
MANIFEST = "prepared.json"


@dataclass(frozen=True, eq=False)
class FirstPass:
    """The statistics of all rows, and the validation rows of this process."""

    statistics: ShareStatistics
    sample: ValidationSample

    @property
    def n_rows(self) -> int:
        """Training rows of all processes."""
        return self.statistics.n_rows - self.statistics.validation_rows(VALIDATION_ROWS)


def run_first_pass(
    rows: ParquetRows, scan: Scan, processes: Processes, folder: Path, threads: int, again: bool
) -> FirstPass:
    """Read all rows once, or use what an interrupted run has read `again`."""
    if again and processes.maxima([float((folder / MANIFEST).is_file())])[0]:
        with processes.fail_together():
            return _restored(scan, processes, folder, threads)
    sample = ValidationSample(scan.validation, scan.seed, VALIDATION_ROWS)
    with processes.fail_together():
        own = collect_statistics(rows, scan, processes.index, processes.count, threads=threads, keep=sample)
    whole = _merged(own, processes, rows.n_rows, threads)
    sample.share = whole.validation_share(VALIDATION_ROWS)
    sample.parts = [
        (randoms[kept := randoms < sample.share], batch.filter(pa.array(kept))) for randoms, batch in sample.parts
    ]
    sample.n_rows = sum(len(randoms) for randoms, _ in sample.parts)
    _keep(whole, sample, processes, folder)
    return FirstPass(whole, sample)


def check_validation(rows: ParquetRows, scan: Scan) -> None:
    """Raise if validation rows do not have the columns of the others."""
    try:
        rows.check_columns(scan.columns)
    except ValueError as error:
        raise ValueError(f"in the validation rows: {error}") from error


def read_validation(rows: ParquetRows, scan: Scan, processes: Processes) -> ValidationSample:
    """Return the rows of this process of a validation table, or of a sample of a large one."""
    share = 1.0
    while share * rows.n_rows > VALIDATION_ROWS:
        share /= 2.0
    sample = ValidationSample(share, scan.seed, rows.n_rows)
    first, end = processes.part(rows.n_rows)
    for batch in rows.table(first, end).chunks(scan.columns, CHUNK):
        sample.add(first, batch)
        first += batch.num_rows
    return sample


def _merged(own: ShareStatistics, processes: Processes, n_rows: int, threads: int) -> ShareStatistics:
    """Merge the statistics of neighbors, in a tree, and broadcast the result."""
    distance = 1
    while distance < processes.count:
        if processes.index % (2 * distance) == distance:
            processes.send(to_bytes(own), processes.index - distance)
        elif processes.index % (2 * distance) == 0 and processes.index + distance < processes.count:
            other = from_bytes(processes.receive(processes.index + distance), own.scan, threads)
            own = merge_statistics([own, other])
        distance *= 2
    with processes.fail_together():
        if processes.first:
            merge_statistics([own], n_rows)
    data = processes.broadcast(to_bytes(own) if processes.first else None)
    return own if processes.first else from_bytes(data, own.scan, threads)


def _keep(whole: ShareStatistics, sample: ValidationSample, processes: Processes, folder: Path) -> None:
    """Write the validation rows, then the statistics, then the checksums of both."""
    with processes.fail_together():
        if processes.first:  # a manifest of another run does not belong to these files
            (folder / MANIFEST).unlink(missing_ok=True)
    own = folder / f"validation-{processes.index:05}.arrow"
    digest = ""
    with processes.fail_together():
        _write_rows(own, sample)
        digest = file_digest(own)
    gathered = processes.gather_json([own.name, digest])
    with processes.fail_together():
        if processes.first:
            files = dict(gathered)
            for path in set(folder.glob("validation-*.arrow")) - {folder / name for name in files}:
                path.unlink()
            with replacing(folder / STATISTICS) as file:
                file.write(to_bytes(whole))
            files[STATISTICS] = file_digest(folder / STATISTICS)
            with replacing(folder / MANIFEST) as file:
                file.write(encode_manifest({}, files).encode())


def _write_rows(path: Path, sample: ValidationSample) -> None:
    batches = [batch.append_column("", pa.array(randoms)) for randoms, batch in sample.parts if len(randoms)]
    with replacing(path) as file:
        if batches:
            with pa.ipc.new_stream(file, batches[0].schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)


def _restored(scan: Scan, processes: Processes, folder: Path, threads: int) -> FirstPass:
    """Return what an interrupted run has written; every process verifies what it reads."""
    files = _read_manifest(folder)
    names = sorted(name for name in files if name != STATISTICS)[processes.index :: processes.count]
    try:
        check_files(folder, {name: files[name] for name in (STATISTICS, *names)})
    except DamagedCheckpoint as error:
        raise ValueError(f"{error}; {_advice(folder)}") from error
    try:
        whole = from_bytes((folder / STATISTICS).read_bytes(), scan, threads)
    except Mismatch as error:
        raise ValueError(
            f"{str(folder / STATISTICS)!r} is of another run: {error}; use the settings of that run, or another folder"
        ) from error
    sample = ValidationSample(whole.validation_share(VALIDATION_ROWS), scan.seed, VALIDATION_ROWS)
    for name in names:
        if data := (folder / name).read_bytes():  # a process may have had no validation rows
            with pa.ipc.open_stream(data) as reader:
                sample.parts += [_without_randoms(batch) for batch in reader]
    sample.n_rows = sum(len(randoms) for randoms, _ in sample.parts)
    return FirstPass(whole, sample)


def _read_manifest(folder: Path) -> Mapping[str, str]:
    """Return the checksums of the files that hold what was prepared."""
    path = folder / MANIFEST
    try:
        files = decode_manifest(path.read_text(encoding="utf-8"))[1]
    except (ValueError, RecursionError, FileNotFoundError) as error:
        raise ValueError(f"{damaged(path)}; {_advice(folder)}") from error
    if STATISTICS not in files:
        raise ValueError(f"{damaged(path)}; {_advice(folder)}")
    return files


def _advice(folder: Path) -> str:
    return f"remove {str(folder / MANIFEST)!r} to read all rows again"


def _without_randoms(batch: pa.RecordBatch) -> tuple[FloatArray, pa.RecordBatch]:
    last = batch.num_columns - 1
    return batch.column(last).to_numpy(), batch.select(list(range(last)))
