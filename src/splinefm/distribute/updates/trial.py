"""Trial: an update on several ranks under a guard, as `Trial` of `learn.updates.guard` is on one machine."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from splinefm.distribute.prepared import read_validation
from splinefm.distribute.ranks import Ranks
from splinefm.distribute.results import OldModel
from splinefm.distribute.rows import ParquetRows
from splinefm.distribute.statistics import Scan
from splinefm.distribute.training import ADAGRAD_RATE, Job
from splinefm.encode.encoder import CHUNK, Encoder
from splinefm.learn.fitted import Fitted
from splinefm.learn.rows.held_out import ValidationSample
from splinefm.learn.training import Chunk, Epoch, seeded
from splinefm.learn.updates.guard import Guard, Verdict, make_verdict
from splinefm.learn.updates.sums import Rise, Sums, score_rows

FloatArray = npt.NDArray[np.float64]


class RankTrial:
    """One update under a guard: what the model said before it, and the rows of this rank that judge it.

    Every rank scores its own rows with the old model, whose tables are mapped into memory.

    Parameters
    ----------
    guard : Guard
        The bounds.
    old : OldModel
        The model before the update.
    rows : ParquetRows
        The new rows.
    scan : Scan
        Their columns.
    held_out : ValidationSample
        The rows of this rank that are learned last.
    others : ParquetRows, optional
        Rows of other files, which judge the update in place of those that are held out.
    ranks : Ranks
        The processes.
    threads : int, optional
        Threads of this rank.
    """

    def __init__(
        self,
        guard: Guard,
        old: OldModel,
        rows: ParquetRows,
        scan: Scan,
        held_out: ValidationSample,
        others: ParquetRows | None,
        ranks: Ranks,
        threads: int | None,
    ) -> None:
        self.guard, self.ranks, self.loss, self.threads = guard, ranks, old.head.loss, threads
        self.source = scan.source(None)
        n_held_out = ranks.sums([held_out.n_rows])[0]
        with ranks.together():
            score = old.table_scorer(threads=threads)
            new = Sums(self.loss, by_row=False)
            first, end = (rows.n_rows * rank // ranks.size for rank in (ranks.rank, ranks.rank + 1))
            for batch in rows.table(first, end).chunks(scan.columns, CHUNK):
                score_rows(new, score, self.source, batch)
            if others is None and n_held_out:
                judges = held_out
            else:
                judges = read_validation(rows if others is None else others, scan, ranks)
            self._judges = [batch for _, batch in judges.parts if batch.num_rows]
            self._before = Sums(self.loss)
            for batch in self._judges:
                score_rows(self._before, score, self.source, batch)
        self.new, self.before = self._of_all(new), self._of_all(self._before)

    def judge(self, job: Job, encoder: Encoder) -> Verdict:
        """Compare the model after the update with that before it; all ranks get the same verdict."""
        after = Sums(self.loss)
        with self.ranks.together():
            chunks = [self.source.encode(batch, encoder, self.loss, self.threads) for batch in self._judges]
        scores = _scores(job, chunks)
        with self.ranks.together():
            for batch, score in zip(self._judges, scores, strict=True):
                after.add(*self.source.targets(batch), score)
            rise = Rise.between(self._before.row_losses, after.row_losses)
        found = Rise(*self.ranks.sums(rise).tolist())
        return make_verdict(self.guard, self.new, self.before, self._of_all(after), found)

    def _of_all(self, own: Sums) -> Sums:
        return Sums.from_array(self.loss, self.ranks.sums(own.to_array()))


def _scores(job: Job, chunks: list[Chunk]) -> list[FloatArray]:
    """Scores of the chunks of this rank; ranks without rows take part with empty batches."""
    size, model = job.feed.size, job.model
    places = [(i, at) for i, chunk in enumerate(chunks) for at in range(0, len(chunk.y), size)]
    found: list[list[FloatArray]] = [[] for _ in chunks]
    for step in range(int(job.ranks.largest([len(places)])[0])):
        batch, n_rows, i = job.feed.empty(), 0, 0
        if step < len(places):
            i, at = places[step]
            n_rows = min(size, len(chunks[i].y) - at)
            batch = job.feed.maker(chunks[i], np.arange(at, at + n_rows), size)
        batch.total[:] = 1.0
        scores = model.evaluate(batch.to(job.ranks.device))[:n_rows, 1:].double().cpu().numpy()
        if n_rows:
            found[i].append(scores[:, 0] if model.shape.outputs == 1 else scores)
    return [np.concatenate(parts) for parts in found]


def learn_held_out(job: Job, chunk: Chunk | None) -> None:
    """Take the steps of the rows that were held out, once the update is accepted; they are at most a million."""
    size, model, rate = job.feed.size, job.model, job.constant or 0.0
    n_rows = 0 if chunk is None else len(chunk.y)
    order = seeded(job.training.seed, model.dense.number).permutation(n_rows)
    model.set_rate(rate, ADAGRAD_RATE * rate)
    for at in range(0, int(job.ranks.largest([n_rows])[0]), size):
        rows = order[at : at + size]
        batch = job.feed.empty() if chunk is None or not len(rows) else job.feed.maker(chunk, rows, size)
        batch.total[:] = job.ranks.sums([float(batch.weight.sum())])[0]
        model.step(batch.to(job.ranks.device))


def judging_files(guard: Guard) -> str:
    """Return the files of a guard whose `validation` is not a share."""
    if not isinstance(guard.validation, str):
        raise ValueError(f"on several ranks, validation must be a share of the rows or Parquet files, got {guard!r}")
    return guard.validation


def updated_epoch(head: Fitted, epoch: Epoch, verdict: Verdict | None) -> Epoch:
    """Return the entry of an update in the history, which continues that of the model before it."""
    seconds = (head.history[-1].seconds if head.history else 0.0) + epoch.seconds
    judged = math.nan if verdict is None else verdict.after.loss
    return epoch._replace(epoch=len(head.history) + 1, validation_loss=judged, seconds=seconds)
