"""Make the golden model files of the present format: python tests/store/golden/make_golden.py

One file per model, each with every transform, basis and kind of field, and `formatN.json` with rows and the scores that
the files must give to them for ever. A file that exists is never made again: when the format changes, run this once for
the new number and leave the old files alone.
"""

import json
from pathlib import Path

import numpy as np

import splinefm as sf
from splinefm.store.model_file import FORMAT

FOLDER = Path(__file__).parent
TARGET = "click"
MODELS = {
    "fm": sf.FM(k=4),
    "fwfm": sf.FwFM(k=4),
    "lowrankfwfm": sf.LowRankFwFM(k=4, rank=2),
    "fmfm": sf.FmFM(k=3),
    "ffm": sf.FFM(k=2),
    "higherorderfm": sf.HigherOrderFM(k=3, order=3),
}
CITIES = ["zürich", "東京", "e\u0301", "\u00e9", "", " ", "🙂" * 5, "a" * 100, 'quote " and \\', "null\x00byte"]


def make_schema() -> sf.Schema:
    """Every transform, basis and kind of field, with each of their settings used somewhere."""
    return sf.Schema(
        [
            sf.Numerical("even", sf.MinMax(), sf.BSpline(5)),
            sf.Numerical("ranks", sf.Quantile(knots=40), sf.BSpline(degree=2, knots=(0.0, 0.2, 0.5, 1.0))),
            sf.Numerical("tail", sf.BestFitCDF(), sf.MultiResolution((2, 5))),
            sf.Numerical(
                "counts",
                sf.ArcsinhSquare(clip=0.99),
                sf.Bins(5, "quantile"),
                special=[0.0, float("inf"), "negative", ">= 999"],
            ),
            sf.Numerical("amount", sf.Log(), sf.Polynomial(3, "legendre"), missing="error"),
            sf.Numerical("hour", sf.MinMax(0, 24), sf.BSpline(6, periodic=True)),
            sf.Numerical("phase", sf.MinMax(), sf.Fourier(2)),
            sf.Numerical("share", sf.Log(shift=0.5), sf.Powers()),
            sf.Numerical("age", "auto", sf.Bins(edges=(0.0, 18.0, 30.0, 65.0))),
            sf.Numerical("steps", "auto", sf.BSpline(4, degree=1), reduction="identity"),
            sf.Numerical("atoms", sf.Quantile(atom_share=0.1), sf.Polynomial(2, "chebyshev")),
            sf.Numerical("family", sf.BestFitCDF(family="normal"), sf.Polynomial(2)),
            sf.Numerical("bins", sf.MinMax(), sf.Bins(20, "quantile")),
            sf.Categorical("größe ☃ \n", min_count=3),
            sf.Categorical("hashed", min_count=2, unseen="hash", buckets=5),
            sf.Categorical("neutral", unseen="neutral", missing="error"),
            sf.Categorical("strict", unseen="error"),
            sf.Categorical("given", vocabulary=["b", "a", ""], reduction="identity"),
            sf.MultiValued("tags"),
            sf.MultiValued("words", separator="|", reduction="mean", max_length=2, unseen="neutral"),
            sf.MultiValued("ids", reduction="identity", unseen="hash", buckets=3, min_count=2),
            sf.Timestamp("when", parts=["weekday"], zone="Europe/Paris", text="missing"),
            sf.Numerical("trend", "auto", sf.BSpline(4), column="when", part="trend"),
            sf.Numerical("money", sf.MinMax(), sf.BSpline(4), decimal=",", text="missing"),
            sf.Categorical("exact money", column="money"),
            sf.Categorical("code"),
            sf.Categorical("flag"),
        ]
    )


def make_table(rows: int = 300, seed: int = 0) -> dict[str, list]:
    """Rows for the schema, with missing, special, rare and unseen values."""
    rng = np.random.default_rng(seed)
    numbers = {
        "even": rng.random(rows),
        "ranks": rng.standard_t(2.0, rows),
        "tail": rng.gamma(2.0, 30.0, rows),
        "counts": rng.choice([0.0, np.inf, -1.0, 1e6, 3.0, 5.5, 8.25, 40.0, 77.0, 100.0], rows)
        * rng.choice([1, 2], rows),
        "amount": rng.lognormal(2.0, 1.0, rows),
        "hour": rng.uniform(0, 24, rows),
        "phase": rng.random(rows),
        "share": rng.random(rows),
        "age": rng.integers(0, 90, rows).astype(float),
        "steps": rng.integers(0, 9, rows).astype(float),
        "atoms": np.where(rng.random(rows) < 0.5, 0.0, rng.random(rows)),
        "family": rng.normal(size=rows),
        "bins": rng.random(rows),
    }
    table: dict[str, list] = {name: values.tolist() for name, values in numbers.items()}
    others = ["even", "tail", "counts", "steps"]
    names = {
        "größe ☃ \n": [*CITIES, *(f"rare {i}" for i in range(9))],
        "hashed": [f"h{i}" for i in range(40 + 10 * seed)],
        "neutral": [f"n{i}" for i in range(5 + seed)],
        "strict": ["x", "y"],
        "given": ["a", "b", "", "other"],
    }
    for name, choices in names.items():
        table[name] = rng.choice(np.array(choices, object), rows).tolist()
    lists = [[f"t{i}" for i in rng.integers(0, 6 + seed, size)] for size in rng.integers(0, 4, rows)]
    table["tags"] = lists
    table["words"] = ["|".join(["ä b", *words][: len(words)]) for words in lists]
    table["ids"] = [[str(number % 7)] * 2 + ["9"] for number in range(rows)]
    for name in [*others, "größe ☃ \n", "tags", "words"]:
        for at in rng.integers(0, rows, rows // 20):
            table[name][at] = None
    table[TARGET] = (rng.random(rows) < 0.3 + 0.4 * (np.array(table["phase"]) > 0.5)).astype(int).tolist()
    # Later formats have more; what is above must stay as it was.
    minutes = rng.integers(0, 60 * 24 * 100, rows)
    table["when"] = [str(np.datetime64("2024-01-01T00:00") + int(minute)) + "Z" for minute in minutes]
    table["money"] = [f"{value:.1f}".replace(".", ",") for value in rng.integers(0, 20, rows) / 2]
    table["code"] = rng.choice(["1", "2.0", "3"], rows).tolist()
    table["flag"] = rng.choice(["True", "false"], rows).tolist()
    return table


def main() -> None:
    """Fit, save and score."""
    rows = make_table(40, seed=1)
    expected = {"rows": rows, "scores": {}}
    answers = FOLDER / f"format{FORMAT}.json"
    if answers.exists():
        raise SystemExit(f"{answers.name} exists; golden files are never made again")
    training = sf.Training(epochs=2, batch_size=64, threads=1, l2=1e-4, smoothness=1e-3)
    for name, model in MODELS.items():
        fitted = sf.fit_model(make_table(), TARGET, schema=make_schema(), model=model, training=training)
        fitted.save(FOLDER / f"format{FORMAT}-{name}.sfm")
        expected["scores"][name] = fitted.scores(rows).tolist()
    answers.write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
