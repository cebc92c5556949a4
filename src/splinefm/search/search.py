"""The search of a fit: a race of settings, judged by rows that they have not learned from.

The stages, each of which goes on from the best setting so far:

1. columns: if there are many, only the ones that explain something by themselves;
2. splines: bases and penalties, the inferred ones among them;
3. penalties: larger and smaller ones, and resolutions by column;
4. models: more coordinates, field-aware vectors, products of four;
5. crosses and recurring values;
6. the final: the best settings are fitted to all rows, by turns without another part of them.

A stage fits its settings to one part of the rows, and the better ones to the next part. The fits of the winner are the
members of the final model. What is tried depends on an estimate of the work, never on a clock (decisions 105 to 107 and
113).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from splinefm._parallel import Cancelled
from splinefm.encode.bases import BSpline, MultiResolution
from splinefm.encode.schema import Schema
from splinefm.model.family import AnyModel
from splinefm.model.family.field_aware import FFM
from splinefm.model.family.field_weighted import FwFM
from splinefm.model.family.higher_order import HigherOrderFM
from splinefm.model.family.separation import can_keep, constrained
from splinefm.search.columns import rank_columns
from splinefm.search.crosses import Change, candidates_for, find_changes, has_one_name_per_number
from splinefm.search.mixture import MIXABLE, join_schemas, move_params
from splinefm.search.race import Race, draw_sample, have_weight, make_folds
from splinefm.search.resolutions import suggest_resolutions
from splinefm.search.screening import HALF_EPOCHS
from splinefm.search.setting import Setting, free_bases, names_of_columns, smallest_penalty
from splinefm.train.chunks import Chunks
from splinefm.train.loop import Diverged
from splinefm.train.progress import SILENT, Progress
from splinefm.train.results import SearchEntry, TrainingResult
from splinefm.train.settings import L2, SMOOTHNESS, Training, l2_strength, penalty_strength

# Below, single parts of the rows do not tell settings apart; above, a default fit takes long enough.
MIN_ROWS, MAX_ROWS = 1_000, 1_000_000
# Encoded rows, and features of all classes: a search has several copies of rows and of vectors in memory.
MAX_BYTES, MAX_FEATURES = 1 << 28, 1 << 20
# Settings are judged by at least this many rows, where that takes more than one part of them.
MIN_JUDGED = 2_000
# A sample of the rows is not smaller than this, and has to be clearly smaller than all rows to pay.
MIN_SAMPLE, FEW_CATEGORIES, MIN_OF_CATEGORY, MIN_OF_CLASS = 4_000, 20, 20, 200
MAX_SAMPLE_SHARE, MAX_SAMPLE_JUDGED = 0.7, 4_000
# Fits of a plain setting that the search may take, if a sample cannot be as small as the budget asks.
MIN_FITS = 12
# Settings go on to the next part of the rows unless they are worse than the best one by more standard errors than this,
# but some splines with similar losses do, since they may be mixed.
MAX_ERRORS_BEHIND, MAX_SIMILAR, SIMILAR = 1.5, 4, 0.1
# The shares of the work that the stages of splines and of models leave to the next ones.
RESERVE_OF_SPLINES, RESERVE_OF_PENALTIES, RESERVE_OF_MODELS = 0.6, 0.5, 0.35
# A mixture of settings has vectors of at most this length and this many numbers in all, since it has to be scored and
# sent around; each setting lowers the loss by this share.
MAX_MIXED, MAX_NUMBERS_OF_MIXTURE, MIN_GAIN_OF_MIXTURE = 192, 1 << 20, 0.002
# Two members take no longer than one that is fitted again to all rows, and are better.
MIN_MEMBERS = 2
# Settings that take part in the final.
FINALISTS, MIN_FINALISTS, FINALISTS_OF_SAMPLE = 6, 2, 3
# Models are tried if a fit to all rows takes at most this many times the seconds of the final.
MAX_FINALS = 2.0
# With at least this many columns, some that explain nothing by themselves may be left out; how often their number is
# halved.
MANY_COLUMNS, HALVINGS = 30, 6
# Where the best epoch is this close to the last one, a run with twice as many epochs is tried; where it comes in this
# first part, one with twice its number, whose learning rate has decayed by then.
NEARLY_LAST, EARLY, MIN_EPOCHS = 0.9, 0.4, 4


class Budget(NamedTuple):
    """Seconds of one core, by the estimate of `seconds_of_epoch`, and the most members.

    Each part also grows with the seconds of a plain fit to all rows, so that large tables are searched, too.
    """

    search: float
    final: float
    members: int
    fits: float
    """How many plain fits to all rows the search may take on top."""


BUDGETS = {"default": Budget(10.0, 4.0, 4, 0.5), "best": Budget(90.0, 90.0, 8, 10.0)}


class Spline(NamedTuple):
    """A basis for all numbers whose basis was inferred (None: as it is), and penalties as multiples of the defaults."""

    basis: BSpline | MultiResolution | None
    l2: float
    smoothness: float


SPLINES = (
    Spline(BSpline(8), 0.1, 1.0),
    Spline(BSpline(20), 0.1, 0.1),
    Spline(BSpline(8), 10.0, 1.0),
    Spline(BSpline(4), 0.1, 0.1),
    Spline(BSpline(4), 10.0, 0.1),
    Spline(BSpline(8), 1.0, 0.1),
    Spline(None, 0.1, 1.0),
    Spline(None, 10.0, 1.0),
)
MORE_SPLINES = (
    Spline(BSpline(20), 10.0, 0.1),
    Spline(BSpline(20), 1.0, 0.01),
    Spline(MultiResolution((8, 32)), 10.0, 1.0),
    Spline(MultiResolution((8, 32), degree=1), 10.0, 1.0),
    Spline(BSpline(64), 1.0, 0.1),
)
# Models and what their L2 penalty is multiplied by. Products of four take twice as many epochs.
MODELS: tuple[tuple[AnyModel, float], ...] = (
    (FwFM(48, 48), 1.0),
    (FFM(8), 1.0),
    (HigherOrderFM(48, 4), 1.0),
    (FwFM(16), 1.0),
)
MORE_MODELS: tuple[tuple[AnyModel, float], ...] = (
    (HigherOrderFM(48, 4), 1e-3),
    (FwFM(64, 64), 0.1),
    (FFM(16), 1.0),
    (FFM(16), 10.0),
    (HigherOrderFM(64, 6), 1.0),
    (HigherOrderFM(64, 6), 1e-3),
    (HigherOrderFM(64, 3), 1.0),
)


class OpenChoices(NamedTuple):
    """What the user has left open."""

    model: bool
    l2: bool
    smoothness: bool
    epochs: bool
    bases: bool
    columns: bool
    crosses: Sequence[str]
    """The fields that may become parts of crosses."""


def find_open_choices(schema: Schema, model: AnyModel | None, given: Training) -> OpenChoices:
    """Return what a search may choose: everything that is not given."""
    names = [item.name for item in schema.fields]
    return OpenChoices(
        model=model is None,
        l2=given.l2 is None,
        smoothness=given.smoothness is None and bool(schema.numerical),
        epochs=given.epochs is None,
        bases=bool(free_bases(schema)),
        columns=not schema.crosses and all(map(schema.is_chosen, names)),
        crosses=candidates_for(schema, given.crosses),
    )


@dataclass
class SearchResult:
    """The result of a search.

    Parameters
    ----------
    setting : Setting
        The best setting.
    chunks : Chunks
        The rows, encoded with its schema.
    members : list of TrainingResult
        Its fits to all rows but another part of them, the first of them without the validation rows; none if it was
        fitted to a sample only.
    entries : tuple of SearchEntry
        What was tried.
    is_interrupted : bool
        Whether the user stopped the search.
    sample : TrainingResult, optional
        Its fit to a sample of the rows, if there is no other.
    parts : tuple of Setting
        The settings of a mixture, the best one first.
    """

    setting: Setting
    chunks: Chunks
    members: list[TrainingResult] = field(default_factory=list)
    entries: tuple[SearchEntry, ...] = ()
    is_interrupted: bool = False
    sample: TrainingResult | None = None
    parts: tuple[Setting, ...] = ()

    @property
    def best(self) -> Setting:
        """The best single setting, which the first member has."""
        return self.parts[0] if self.parts else self.setting

    def of_sample(self) -> TrainingResult:
        """Return the fit to a sample of the rows, whose history says so."""
        assert self.sample is not None
        return self.sample._replace(history=[epoch._replace(run="search") for epoch in self.sample.history])


def can_search(chunks: Chunks, given: Training) -> bool:
    """Return whether the rows bear a search: there are enough of them, in memory, and some are held out."""
    kept = chunks.kept
    if given.effort == "fast" or kept is None or chunks.validation is None:
        return False
    n_bytes, layout = kept.slots.start.nbytes + kept.slots.weight.nbytes, chunks.encoder.layout
    has_few = n_bytes <= MAX_BYTES and layout.n_features * chunks.loss.n_outputs <= MAX_FEATURES
    return MIN_ROWS <= chunks.n_rows <= MAX_ROWS and has_few


def search(
    base: Setting,
    is_open: OpenChoices,
    chunks: Chunks,
    given: Training,
    progress: Progress = SILENT,
    deadline: float | None = None,
) -> SearchResult | None:
    """Look for a better setting than `base`.

    Parameters
    ----------
    base : Setting
        The setting to begin with.
    is_open : OpenChoices
        What may be changed.
    chunks : Chunks
        The rows, encoded with its schema; see `can_search`.
    given : Training
        The settings as the user gave them: effort, members, seed and threads.
    progress : Progress
        Where to report.
    deadline : float, optional
        When the search ends, on the clock of `time.monotonic`.

    Returns
    -------
    SearchResult or None
        None if nothing could be tried.
    """
    found = Search.begin(base, is_open, chunks, given, progress, deadline)
    if not have_weight(chunks, found.race.folds):
        return None
    with progress.within("search"):
        try:
            found.take()
            return found.result() if found.pool else None
        except Cancelled:
            return found.result() if found.has_finished() else None
        except KeyboardInterrupt:
            if not found.has_finished():
                raise
            return found.result(is_interrupted=True)


def _min_sample_rows(chunks: Chunks) -> float:
    """Return how many rows a sample has at least: more if there are many categories, or one of two classes is rare."""
    sizes = [item.layout.n_features for item in chunks.encoder.schema.singles if not item.is_numerical]
    n_categories = sum(size for size in sizes if size > FEW_CATEGORIES)  # most rows have the others
    least = max(MIN_SAMPLE, MIN_OF_CATEGORY * n_categories)
    if chunks.loss.name != "logistic":
        return least
    share = float(chunks.loss.mean(np.asarray(chunks.start, np.float64)))
    return max(least, MIN_OF_CLASS / max(1e-9, min(share, 1.0 - share)))


@dataclass
class Search:
    """The state of a search: a race, what was tried, and the work that is left."""

    base: Setting
    is_open: OpenChoices
    race: Race
    budget: Budget
    given: Training
    progress: Progress
    stage: tuple[int, ...] = (0,)
    """The folds that stages before the final use: some parts of all rows, or a sample of them."""
    total: float = 0.0
    """Seconds of one core that the search may take before the final."""
    left: float = 0.0
    """Those that are left."""
    final: float = 0.0
    """Seconds of one core that the final may take."""
    finalists: list[Setting] = field(default_factory=list)
    """The settings of the final, the best first."""
    pool: dict[Setting, None] = field(default_factory=dict)
    """The settings that were fitted to all folds of the stage."""

    @classmethod
    def begin(
        cls,
        base: Setting,
        is_open: OpenChoices,
        chunks: Chunks,
        given: Training,
        progress: Progress,
        deadline: float | None,
    ) -> Search:
        """Prepare the folds, and a sample of the rows if all of them take too long."""
        race, budget = Race(chunks, given, progress, deadline), BUDGETS["best" if given.effort == "best" else "default"]
        members = budget.members if given.members is None else given.members
        race.folds = make_folds(chunks, max(members, 1), given.seed)
        made = cls(base, is_open, race, budget, given, progress)
        plain = made._with_spline(SPLINES[0])
        seconds = race.seconds(plain, 0)
        made.left = budget.search + budget.fits * seconds
        made.final = budget.final + budget.fits * seconds
        n_learned, n_judged = (len(rows) for rows in race.folds[0])
        tried = len(SPLINES) + len(MODELS)
        share = made.left / (3.0 * tried * seconds)
        if share < MAX_SAMPLE_SHARE and n_learned > _min_sample_rows(chunks) / MAX_SAMPLE_SHARE:
            n_rows = max(int(_min_sample_rows(chunks)), int(share * n_learned))
            race.folds.append(draw_sample(race.folds[0], n_rows, MAX_SAMPLE_JUDGED, given.seed))
            made.stage = (len(race.folds) - 1,)
        else:
            n_folds = min(len(race.folds), math.ceil(MIN_JUDGED / n_judged))
            made.stage = tuple(range(n_folds))
        made.left = made.total = max(made.left, MIN_FITS * race.seconds(plain, made.stage[0]))
        return made

    @property
    def n_folds(self) -> int:
        """Parts of all rows."""
        return len(self.race.folds) - self.is_sampled

    @property
    def is_sampled(self) -> bool:
        """Whether the stages before the final see a sample of the rows."""
        return self.stage[0] > 0

    @property
    def best(self) -> Setting:
        """The best setting of the stages so far."""
        return self._ranked()[0]

    def _ranked(self) -> list[Setting]:
        """Return the settings of the pool, the best first."""
        return self.race.ranked(self.pool, self.stage)

    def take(self) -> None:
        """Take all stages but the final, which `result` needs only in part."""
        self.progress.begin("columns and splines")
        self.choose_columns()
        self.choose_splines()
        if not self.pool:
            return
        self.choose_penalties()
        self.choose_resolutions()
        self.progress.begin("models")
        self.choose_model()
        self.progress.begin("crosses")
        self.choose_crosses()
        self.choose_epochs()
        self.progress.begin("final")
        self.choose_finalists()

    def has_finished(self) -> bool:
        """Return whether there is a setting to keep; if the pool is empty, settings with one fit fill it."""
        if not self.pool:
            self.stage = self.stage[:1]
            fitted = (key for key, entrant in self.race.results.items() if entrant.trained is not None)
            self.pool = {setting: None for setting, fold in fitted if fold == self.stage[0]}
        return bool(self.pool)

    # Stages

    def choose_columns(self) -> None:
        """Leave out columns that explain nothing, if there are many of them."""
        if not self.is_open.columns or len(self.base.schema) < MANY_COLUMNS:
            return
        simple = self._with_spline(SPLINES[0])
        names = rank_columns(self.race.encoded(self.base), self.base.schema, self.given)
        sizes = [len(names) >> i for i in range(1, HALVINGS + 1) if len(names) >> i >= 2]
        fewer = [simple.with_columns(names[:size]) for size in sizes]
        self.contest([simple, *fewer])
        best = self.best
        if len(best.schema) < len(self.base.schema):
            self.base = self.base.with_columns([item.name for item in best.schema])
            self.is_open = self.is_open._replace(
                crosses=[name for name in self.is_open.crosses if name in self.base.schema.names]
            )

    def choose_splines(self) -> None:
        """Try bases and penalties."""
        splines = SPLINES + (MORE_SPLINES if self.given.effort == "best" else ())
        self.contest([self._with_spline(spline) for spline in splines], RESERVE_OF_SPLINES * self.total)

    def choose_penalties(self) -> None:
        """Try larger and smaller L2 penalties, and go on where that helps."""
        if not self.is_open.l2:
            return
        first = self.best
        reserve = RESERVE_OF_PENALTIES * self.total
        self.contest([first.with_l2(10.0), first.with_l2(0.1)], reserve)
        for factor in (10.0, 0.1):
            if self.best == first.with_l2(factor):
                self.contest([first.with_l2(factor * factor)], reserve)

    def choose_resolutions(self) -> None:
        """Try finer and coarser resolutions by column, as the best setting with inferred bases suggests."""
        for setting in self._best_inferred():
            trained, chunks = self.race.results[setting, self.stage[0]].trained, self.race.encoded(setting)
            if trained is None:
                return
            schema = suggest_resolutions(setting.model, chunks, trained.params)
            if schema is not None:
                self.contest([replace(setting, schema=schema)], RESERVE_OF_PENALTIES * self.total)

    def _best_inferred(self) -> list[Setting]:
        """Return the best setting whose bases are the inferred ones, if one was tried."""
        fold = self.stage[0]
        known = [each for each, of in self.race.results if of == fold and each.schema == self.base.schema]
        return self.race.ranked(known, (fold,))[:1]

    def choose_model(self) -> None:
        """Try other models, if there is time to fit them to all rows."""
        if not self.is_open.model:
            return
        models = self._candidates(MODELS + (MORE_MODELS if self.given.effort == "best" else ()))
        tried = [self._with_model(self.best, model, factor) for model, factor in models]
        quick = [each for each in tried if self.race.seconds(each, 0) <= MAX_FINALS * self.final]
        self.contest(quick, RESERVE_OF_MODELS * self.total)

    def choose_crosses(self) -> None:
        """Try crosses and recurring values one by one, then together, on the best setting of pairs."""
        pairs = [each for each in self._ranked() if not isinstance(each.model, HigherOrderFM)]
        if not pairs or len(self.is_open.crosses) < 2 or self.left <= self.race.seconds(pairs[0], self.stage[0]):
            return
        first = pairs[0]
        rows, crosses, chunks = self._max_rows_of_half(first), self.is_open.crosses, self.race.encoded(first)
        try:
            changes = find_changes(first, chunks, self.given, crosses, rows, self.progress)
        except Diverged:
            return
        changed = {each: change for change in changes if self._has_names(each := change.of(first), change)}
        self.contest(list(changed))
        better = [each for each in self._ranked() if each in changed and self._loss(each) < self._loss(first)]
        best = better[0] if better else first
        for each in better[1:]:
            together = changed[each].of(best)
            self.contest([together])
            best = min(best, together, key=self._loss)
        # Crosses can favor other bases than columns do.
        other = next((each for each in pairs if each.schema != first.schema), None)
        if better and other is not None:
            self.contest([changed[better[0]].of(other)])
        if self.best.crosses and self.is_open.model:
            self.contest([self._with_model(self.best, model, factor) for model, factor in self._candidates(MODELS[:2])])

    def choose_epochs(self) -> None:
        """Try more epochs if the best one came last, and fewer if it came early, at a high learning rate."""
        best = self.best
        trained = self.race.results[best, self.stage[0]].trained
        if not self.is_open.epochs or trained is None or self.is_sampled:  # more rows are learned by heart later
            return
        epochs = self._epochs(best)
        came = int(np.argmin([epoch.validation_loss for epoch in trained.history])) + 1
        if came >= NEARLY_LAST * epochs:
            self.contest([best.with_epochs(2 * epochs)])
        elif came <= EARLY * epochs:
            self.contest([best.with_epochs(max(MIN_EPOCHS, 2 * came))])

    def choose_finalists(self) -> None:
        """Fit the best settings to all rows but another part of them, and keep the better ones."""
        self.race.forget(self.pool)
        ranked = self._ranked()
        if self.is_sampled:
            # More rows can favor another model than the sample, and bear smaller penalties.
            best_of_model = {each.model: each for each in reversed(ranked)}
            finalists, done = sorted(best_of_model.values(), key=ranked.index)[:FINALISTS_OF_SAMPLE], [0]
            if self.is_open.l2:
                finalists.append(finalists[0].with_l2(0.1))
            finalists = self._affordable(finalists, 0, self.final, at_least_one=True)
            self.race.run(finalists, (0,))
        else:
            finalists, done = ranked[:FINALISTS], list(self.stage)
        self.finalists = self.race.ranked(finalists, done)
        while len(done) < self.n_members(chosen := self.select_mixture(self.finalists[0], done)):
            n_kept = 1 if self.is_sampled else max(MIN_FINALISTS, len(self.finalists) // 2)
            self.finalists = list(dict.fromkeys([*chosen, *self.finalists[:n_kept]]))
            self.race.run(self.finalists, (len(done),))
            done.append(len(done))
            self.finalists = self.race.ranked(self.finalists, done)

    def n_members(self, settings: Sequence[Setting]) -> int:
        """Return how many fits of each setting the final model has: as many as asked for, or as take little time."""
        if self.given.members is not None:
            return self.given.members
        if not self.is_open.model:
            return 1
        seconds = max(1e-9, sum(self.race.seconds(each, 0) for each in settings))
        return int(min(self.n_folds, max(MIN_MEMBERS, self.final / seconds)))

    # Steps

    def contest(self, settings: Sequence[Setting], reserve: float = 0.0) -> None:
        """Fit settings to the folds of the stage, one fold after the other; those that fall behind do not go on.

        `reserve` is the work to leave for later stages.
        """
        alive = [each for each in dict.fromkeys(settings) if each not in self.pool and self.race.has_same_rows(each)]
        for i, fold in enumerate(self.stage):
            leads = i > 0 and len(alive) > 0 and self._leads(alive[0], self.stage[:i])  # goes on beyond the budget
            alive = self._affordable(alive, fold, self.left - reserve, at_least_one=leads)
            new = [each for each in alive if not self.race.has(each, fold)]
            self.race.run(alive, (fold,))
            work = sum(self.race.work(each, fold) for each in new)
            self.left = max(self.left - work, min(self.left, reserve))  # what a leading setting takes beyond is free
            alive = self._not_behind(alive, self.stage[: i + 1])
        self.pool |= dict.fromkeys(alive)
        self.race.drop_params([*self.pool, *self._best_inferred()])

    def _leads(self, setting: Setting, folds: Sequence[int]) -> bool:
        """Return whether a setting is better than all of the pool."""
        return self.race.ranked([*self.pool, setting], folds)[0] == setting

    def _not_behind(self, settings: Sequence[Setting], folds: Sequence[int]) -> list[Setting]:
        """Return the settings that are not clearly worse than the best one, the best first."""
        ranked = self.race.ranked([*settings, *self.pool], folds)
        if not ranked or not math.isfinite(self.race.loss(ranked[0], folds)):
            return []
        kept: list[Setting] = []
        similar = 0.0 if self.pool else SIMILAR * abs(self.race.loss(ranked[0], folds))
        for each in (each for each in ranked if each in settings):
            gain, error = self.race.gain(ranked[0], each, folds)
            if gain <= MAX_ERRORS_BEHIND * error or (gain <= similar and len(kept) < MAX_SIMILAR):
                kept.append(each)
        return kept

    def _affordable(
        self, settings: Iterable[Setting], fold: int, left: float, at_least_one: bool = False
    ) -> list[Setting]:
        """Return the settings that the work that is left allows, in their order."""
        chosen: list[Setting] = []
        for each in settings:
            seconds = 0.0 if self.race.has(each, fold) else self.race.seconds(each, fold)
            if seconds <= left or not (chosen or self.pool) or (at_least_one and not chosen):
                left -= seconds
                chosen.append(each)
        return chosen

    def _with_spline(self, spline: Spline) -> Setting:
        """Return the base setting with a basis and penalties, as far as they are open."""
        changed, n_rows = self.base, self.race.chunks.encoder.n_rows
        if spline.basis is not None and self.is_open.bases:
            changed = changed.with_basis(spline.basis)
        l2, smoothness = L2 * l2_strength(n_rows) * spline.l2, SMOOTHNESS * penalty_strength(n_rows) * spline.smoothness
        is_open = self.is_open
        return changed.with_penalties(l2 if is_open.l2 else None, smoothness if is_open.smoothness else None)

    def _candidates(self, models: Sequence[tuple[AnyModel, float]]) -> list[tuple[AnyModel, float]]:
        """Return the models that keep the constraints on interactions, or can when they have products of pairs only."""
        changed = ((constrained(model, self.base.schema), factor) for model, factor in models)
        return list(dict.fromkeys(pair for pair in changed if can_keep(pair[0], self.base.schema)))

    def _with_model(self, setting: Setting, model: AnyModel, factor: float) -> Setting:
        """Return a setting with another model, its L2 penalty multiplied by a factor if it is open."""
        changed = setting.with_model(model)
        if self.is_open.l2:
            changed = changed.with_l2(factor)
        if isinstance(model, HigherOrderFM) and self.is_open.epochs:
            changed = changed.with_epochs(2 * self._epochs(setting))
        return changed

    def _epochs(self, setting: Setting) -> int:
        return setting.training.max_epochs(self.race.chunks.encoder.n_rows)

    def _loss(self, setting: Setting) -> float:
        return self.race.loss(setting, self.stage) if setting in self.pool else math.inf

    def _max_rows_of_half(self, setting: Setting) -> int:
        """Return how many rows to learn from where crosses are looked for: a share of the work that is left."""
        seconds = HALF_EPOCHS * self.race.seconds_of_epoch(setting, 0)
        n_rows = len(self.race.folds[0].learned)
        return int(n_rows * min(1.0, max(self.budget.search / 10.0, self.left / 4.0) / max(seconds, 1e-9)))

    def _has_names(self, setting: Setting, change: Change) -> bool:
        """Return whether the numbers that a change takes as names have one name each."""
        name, schema = change.name, self.race.encoded(setting).encoder.schema
        return name in schema.names and has_one_name_per_number(schema, name)

    # The result

    def result(self, is_interrupted: bool = False) -> SearchResult:
        """Return the best setting with its fits, or a mixture of settings."""
        race, best = self.race, self.finalists[0] if self.finalists else self.best
        folds = self._folds_of(best)
        chosen = [best] if is_interrupted or len(folds) < 2 else self.select_best_mixture(folds)
        best = chosen[0]
        joined = best
        if len(chosen) > 1 and (schema := join_schemas([each.schema for each in chosen])) is not None:
            joined = replace(best, schema=schema)
        new, members = race.encoded(joined), []
        n_members = len(race.folds) if len(chosen) > 1 else self.n_members([best])
        for each in chosen:
            old = race.encoded(each)
            for fold in self._folds_of(each)[:n_members]:
                trained = race.results[each, fold].trained
                if trained is not None and old is not new:
                    moved = move_params(each.model, trained.params, old.encoder, new.encoder)
                    trained = trained._replace(params=moved)
                members += [] if trained is None else [trained]
        sample = race.results[best, self.stage[0]].trained if (best, self.stage[0]) in race.results else None
        return SearchResult(joined, new, members, self.entries(chosen), is_interrupted, sample, tuple(chosen))

    def _folds_of(self, setting: Setting) -> list[int]:
        """Return the parts of all rows that a setting was fitted without."""
        return [fold for fold in range(self.n_folds) if (setting, fold) in self.race.results]

    def select_best_mixture(self, folds: Sequence[int]) -> list[Setting]:
        """Return the settings whose mean is best: a model that is not the best alone may have better mixtures."""
        settings = dict.fromkeys([*self.pool, *self.finalists])
        ranked = self.race.ranked((each for each in settings if {*folds} <= {*self._folds_of(each)}), folds)
        best = {each.model: each for each in reversed(ranked)}
        mixed = (self.select_mixture(each, folds) for each in reversed(best.values()))
        return min(mixed, key=lambda chosen: self.race.loss_of_mean_score(chosen, folds))

    def select_mixture(self, best: Setting, folds: Sequence[int]) -> list[Setting]:
        """Return settings whose mean score is better than the best setting's, which is the first of them.

        They have the same model, and were fitted to the same parts of the rows. One after the other is added that
        lowers the loss of the judged rows the most.
        """
        race = self.race
        is_open = self.given.members is None and self.is_open.model
        if not is_open or not isinstance(best.model, MIXABLE):
            return [best]
        others = [each for each in self.pool | dict.fromkeys(self.finalists) if {*folds} <= {*self._folds_of(each)}]
        others = [each for each in others if each.model == best.model and each.schema != best.schema]
        chosen, loss, k = [best], race.loss(best, folds), best.model.k
        n_features = {each: race.encoded(each).encoder.layout.n_features for each in (best, *others)}

        def is_small(settings: Sequence[Setting]) -> bool:
            length = len(settings) * max(len(folds), MIN_MEMBERS) * k
            return length <= MAX_MIXED and length * sum(n_features[each] for each in settings) <= MAX_NUMBERS_OF_MIXTURE

        while others := [each for each in others if is_small([*chosen, each])]:
            losses = [race.loss_of_mean_score([*chosen, each], folds) for each in others]
            least = int(np.argmin(losses))
            schema = join_schemas([each.schema for each in (*chosen, others[least])])
            if not loss - losses[least] > MIN_GAIN_OF_MIXTURE * abs(loss):  # Poisson losses can be negative
                break
            if schema is not None:
                chosen, loss = [*chosen, others[least]], losses[least]
            del others[least]
        return chosen

    def entries(self, chosen: Sequence[Setting]) -> tuple[SearchEntry, ...]:
        """Return what was tried, the best first; settings that were judged by more rows come before others."""
        race, entries = self.race, []
        for setting in dict.fromkeys(each for each, _ in race.results):
            folds = sorted(race.folds_of(setting))
            whole = [fold for fold in folds if fold < self.n_folds] or folds
            loss, error = race.loss_and_error(setting, whole)
            seconds = sum(race.results[setting, fold].seconds for fold in folds)
            names = names_of_columns(setting.schema)
            entries.append(
                SearchEntry(
                    model=str(setting.model),
                    basis=setting.basis,
                    l2=smallest_penalty(setting.training.l2, names),
                    smoothness=smallest_penalty(setting.training.smoothness, names),
                    n_columns=len(setting.schema.columns),
                    crosses=setting.crosses,
                    epochs=self._epochs(setting),
                    loss=loss,
                    error=error,
                    folds=len(whole),
                    seconds=round(seconds, 3),
                    is_chosen=setting in chosen,
                )
            )
        return tuple(sorted(entries, key=lambda entry: (not entry.is_chosen, -entry.folds, entry.loss)))
