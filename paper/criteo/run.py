"""Criteo's display advertising data: an FwFM with the integers in bins, in steps and as cubic splines.

The whole pipeline for the original file, which is read as a stream: rows by time into 5/7, 1/7 and 1/7, categories with
ten rows or more, negative and missing integers as codes, learning rate and L2 tuned for every k. With the 0.1 % sample
the same comparison runs on several random splits; generated files of the same shape show throughput and memory.

    python -m paper.criteo.run [--quick] [--data DIR] [--jobs N]
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

import splinefm as sf
from paper.criteo.arms import ARMS, defaults, tune_and_test
from paper.criteo.data import INTEGERS, SAMPLE, Parts, convert, find_whole, largest, parts_of, split_sample
from paper.criteo.report import report as report
from paper.criteo.size import run_size
from paper.harness import CACHE, Json, Options, Results, read_options, read_settings, run_units, write_report

Unit = tuple[object, ...]
BINS = 40


def compare_on_sample(path: Path, split: int, k: int, arm: str, settings: Json) -> Json:
    """Run an arm on one random split of the sample."""
    parts = split_sample(path, split)
    if arm == "defaults":
        return defaults(k, split, parts)
    return tune_and_test(arm, k, split, parts, settings, settings["sample"])


def compare_on_whole(folder: Path, k: int, arm: str, settings: Json) -> Json:
    """Run an arm on the whole file, split by time, with the authors' seed."""
    return tune_and_test(arm, k, 42, parts_of(folder), settings, settings["whole"] | {"threads": None})


def histograms(parts: Parts) -> Json:
    """Return histograms of each integer column after arcsinh² and scaling by its largest value."""
    columns = {}
    for name in INTEGERS:
        transform = sf.ArcsinhSquare(low=0.0, high=largest(parts.train, name))
        counts = np.zeros(BINS, np.int64)
        for batch in sf.open_table(parts.train).chunks([name]):
            x = batch.column(0).drop_null().to_numpy().astype(float)
            counts += np.histogram(transform(x[x >= 0.0]), BINS, (0.0, 1.0))[0]
        columns[name] = counts.tolist()
    return {"columns": columns}


def sample_units(settings: Json, folder: Path | None) -> dict[str, Unit]:
    """Return every arm and k on every split of the sample, if it is available."""
    if folder is None or not (path := folder / SAMPLE).exists():
        return {}
    how = settings["sample"]
    return {
        f"sample/split {split}/k {k}/{arm}": (path, split, k, arm, settings)
        for split in range(how["splits"])
        for k in how["ks"]
        for arm in (*ARMS, "defaults")
    }


def whole_units(settings: Json, folder: Path) -> dict[str, Unit]:
    """Return every arm and k on the whole file."""
    return {f"whole/k {k}/{arm}": (folder, k, arm, settings) for k in settings["whole"]["ks"] for arm in ARMS}


def size_units(settings: Json) -> dict[str, Unit]:
    """Return one generated file per size."""
    how = settings["size"]
    sizes = zip(how["rows"], how["one_offs"], strict=True)
    return {f"size/{rows} rows/{share} one-offs": (rows, share, settings) for rows, share in sizes}


def run_whole(results: Results, source: Path, settings: Json, options: Options) -> None:
    """Run the paper's experiment; the converted file is kept."""
    folder = CACHE / "criteo"
    run_units(results, {"whole/parts": (source, folder)}, convert, options)
    run_units(results, {"histograms": (parts_of(folder),)}, histograms, options)
    # A fit uses all cores.
    run_units(results, whole_units(settings, folder), compare_on_whole, replace(options, jobs=1))


def main() -> None:
    """Run the units without results and write the tables."""
    options = read_options("criteo", __doc__)
    settings = read_settings("criteo", options.quick)
    results = Results.open(options, settings)
    source, sample = find_whole(options.data), sample_units(settings, options.data)
    if source is not None:
        run_whole(results, source, settings, options)
    elif sample and options.data is not None:
        run_units(results, {"histograms": (split_sample(options.data / SAMPLE, 0),)}, histograms, options)
    else:
        print(f"no train.txt, train.txt.gz or {SAMPLE} in --data: only the generated files are run")
    run_units(results, sample, compare_on_sample, options)
    # They measure time and memory: one after another.
    run_units(results, size_units(settings), run_size, replace(options, jobs=1))
    print(write_report(options.out, report(results, options.out)))


if __name__ == "__main__":
    main()
