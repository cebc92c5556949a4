"""What tests share: models, tables, fitted models with random parameters, and how many examples to draw."""

import functools
import itertools
import os
import pickle

import numpy as np
import pyarrow as pa
from hypothesis import settings

import splinefm as sf
from splinefm.model.family.parameters import init_params

# `make test THOROUGH=1` sets it.
THOROUGH = bool(os.environ.get("SPLINEFM_THOROUGH"))
# The sanitizer of `make sanitize`, or "".
SANITIZED = os.environ.get("SPLINEFM_SANITIZED", "")


def examples(number: int) -> settings:
    """Draw `number` examples in a thorough run, else a twentieth of them but at least four (or all, if fewer)."""
    return settings(max_examples=number if THOROUGH else min(number, max(4, number // 20)))


# Models


def one_of_each(n_fields):
    """Return one model of every kind. Kernels have a length of 4; they pad one of 3. The FmFM has a k per field."""
    return [
        sf.FM(k=4),
        sf.FwFM(k=4),
        sf.LowRankFwFM(k=4, rank=2),
        sf.FmFM(k=sizes_of_fields(n_fields)),
        sf.FFM(k=3),
        sf.HigherOrderFM(k=3, order=3),
        sf.FwFM(k=3, third=2),
    ]


def all_models(n_fields):
    """Return `one_of_each` with an FmFM of one k for all fields and other orders; higher orders come last."""
    quadratic = one_of_each(n_fields)[:5]
    higher = [sf.HigherOrderFM(k=4, order=2), sf.HigherOrderFM(k=3, order=4), sf.FwFM(k=3, third=2)]
    return [*quadratic, sf.FmFM(k=3), *higher]


def averages():
    """Return means of several models: weights by member, and products of three and more."""
    return [
        sf.FwFM(k=4, members=2),
        sf.FwFM(k=2, third=2, members=2),
        sf.HigherOrderFM(k=4, order=3, members=2),
        sf.HigherOrderFM(k=3, order=4, members=3),
    ]


def sizes_of_fields(n_fields):
    """Return different lengths of vectors, one per field."""
    return tuple(itertools.islice(itertools.cycle((2, 3, 4, 1, 3)), n_fields))


def random_params(model, layout, seed=0, *, scale=0.8, spread=0.4, dtype=np.float32):
    """Move all parameters away from their initial values, where most models are an FM; padding of an FmFM stays zero.

    `scale` is the scale of the vectors, `spread` the standard deviation added to all other parameters.
    """
    rng = np.random.default_rng(seed)
    params = {name: values.astype(dtype) for name, values in init_params(model, layout, rng, scale=scale).items()}
    for name, values in params.items():
        if name != "factors":
            params[name] = (values + rng.normal(0.0, spread, values.shape)).astype(dtype)
    if isinstance(model, sf.FmFM):
        sizes = np.array(model.vector_sizes(len(layout.fields)))
        used = np.arange(sizes.max()) < sizes[:, None]
        params["field_matrices"] *= used[:, None, :, None] & used[None, :, None, :]
    return params


def fit_encoder(schema, table):
    """`sf.fit_encoder`, once for the same schema and rows: most tests try several models on them."""
    if any(getattr(item, "vocabulary", None) is not None for item in schema):  # fitted fields have no hash
        return sf.fit_encoder(schema, table)
    key = tuple(schema), pickle.dumps(table)
    if key not in _encoders:
        while len(_encoders) > 50:
            del _encoders[next(iter(_encoders))]
        _encoders[key] = sf.fit_encoder(schema, table)
    return _encoders[key]


_encoders = {}


def random_fitted(model, schema, table, *, loss=None, seed=1, **options):
    """Return a model with the parameters of `random_params`: what training would take does not matter to most tests."""
    encoder = fit_encoder(schema, table)
    params = random_params(model, encoder.layout, seed, **options)
    return sf.Fitted(encoder, model, params, sf.Loss(loss) if isinstance(loss, str) else loss or sf.Loss())


def random_classes(model, schema, table, labels=("a", "b", "c"), *, seed=1):
    """Return a model of several classes with random parameters."""
    encoder = fit_encoder(schema, table)
    parts = [random_params(model, encoder.layout, seed + i) for i in range(len(labels))]
    params = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    return sf.Fitted(encoder, model, params, sf.Loss("softmax", classes=tuple(labels)))


# Tables: every kind of field, with special and missing values, several windows per unit and several units


MIXED_FIELDS = {
    field.name: field
    for field in (
        sf.Numerical("x", sf.MinMax(), sf.BSpline(5), special=[0.0, "negative"]),
        sf.Categorical("kind"),
        sf.MultiValued("tags", reduction="mean"),
        sf.Numerical("z", sf.MinMax(), sf.MultiResolution((2, 4), degree=2), reduction="identity"),
        sf.Categorical("user"),
        sf.MultiValued("words", reduction="identity"),
    )
}


def mixed_schema(names=tuple(MIXED_FIELDS)):
    """Return fields of `mixed_table`: both reductions, special values, lists."""
    return sf.Schema([MIXED_FIELDS[name] for name in names])


def made_once(make):
    """Keep tables that tests ask for again; each gets lists of its own."""
    kept = functools.cache(make)
    return functools.wraps(make)(
        lambda *args, **options: {name: list(values) for name, values in kept(*args, **options).items()}
    )


@made_once
def mixed_table(n, seed=0, names=tuple(MIXED_FIELDS)):
    """Return rows of `mixed_schema` as lists, with missing values in most columns."""
    rng = np.random.default_rng(seed)
    words = [list(rng.choice(list("abcd"), rng.integers(0, 4), replace=False)) for _ in range(n)]
    table = {
        "x": [[0.0, -1.0, None, float(rng.random() + 0.01)][int(c)] for c in rng.choice(4, n, p=[0.1, 0.1, 0.2, 0.6])],
        "kind": [[None, "u", "v", "w"][int(c)] for c in rng.integers(0, 4, n)],
        "tags": [None if rng.random() < 0.1 else words[i] for i in range(n)],
        "z": [None if rng.random() < 0.1 else float(rng.normal()) for _ in range(n)],
        "user": [str(rng.integers(0, 9)) for _ in range(n)],
        "words": words[::-1],
    }
    return {name: table[name] for name in names}


def _lists(rng, names, n, most):
    """Return lists of fewer than `most` names: one draw for all of them is twenty times as fast as one for each."""
    codes, lengths = rng.integers(len(names), size=(n, most)).tolist(), rng.integers(0, most, n).tolist()
    return [[names[i] for i in row[:length]] for row, length in zip(codes, lengths, strict=True)]


def visits_table(rng, n=300, *, hostile=False):
    """Return visits with `recency` and `price`; `hostile` ones have values that training did not meet."""
    table = {
        "recency": rng.gamma(2.0, 5.0, n) + 0.5,
        "price": np.where(rng.random(n) < 0.2, np.nan, rng.normal(3.0, 2.0, n)),
        "country": rng.choice(["US", "FR", "DE"], n, p=[0.6, 0.3, 0.1]).tolist(),
        "tags": _lists(rng, ["t1", "t2", "t3"], n, 3),
        "device": rng.choice(["phone", "desk"], n).tolist(),
    }
    if hostile:
        odd = rng.random(n) < 0.3
        table["recency"] = np.where(odd, rng.choice([0.0, -3.0, 999.0, 1e9, 0.5, np.nan], n), table["recency"])
        table["country"] = rng.choice(["US", "XX", None], n).tolist()
        table["tags"] = [[["t1"] * 9, ["t3", "new"], None, []][i] for i in rng.integers(0, 4, n)]
        table["device"] = rng.choice(["desk", "watch", None], n).tolist()
    return table


def visits_schema(basis, transform=None, *, special=(0.0, ">= 999"), reduction="sum", tags="mean"):
    """Return the fields of `visits_table`; tests vary the first."""
    return sf.Schema(
        [
            sf.Numerical("recency", transform or sf.MinMax(), basis, special=special, reduction=reduction),
            sf.Numerical("price", sf.MinMax(), sf.BSpline(segments=4, degree=2)),
            sf.Categorical("country"),
            sf.MultiValued("tags", reduction=tags),
            sf.Categorical("device", min_count=2, unseen="neutral"),
        ]
    )


def shop_schema(reduction):
    """Return fields whose windows overlap, share units or have units of their own, by reduction."""
    return sf.Schema(
        [
            sf.Numerical("price", sf.MinMax(), sf.BSpline(5), special=[0.0, "negative"], reduction=reduction),
            sf.Numerical("age", sf.Quantile(), sf.MultiResolution((2, 4), 2), reduction=reduction),
            sf.Categorical("country", unseen="neutral"),
            sf.MultiValued("tags", reduction={"sum": "mean"}.get(reduction, reduction)),
            sf.Numerical("hour", sf.MinMax(0, 24), sf.BSpline(6, 2, periodic=True), reduction=reduction),
        ]
    )


@functools.cache
def shop_table(n, seed):
    """Return rows of `shop_schema`, with a country that only this seed has."""
    rng = np.random.default_rng(seed)
    price = np.select([rng.random(n) < 0.2, rng.random(n) < 0.1], [0.0, -1.0], rng.lognormal(size=n))
    return pa.table(
        {
            "price": pa.array(price, mask=rng.random(n) < 0.1),
            "age": rng.uniform(18, 90, n),
            "country": rng.choice(["US", "FR", "DE", "IL", "JP", f"new {seed}"], n),
            "tags": [
                None if rng.random() < 0.1 else list(rng.choice(list("abcdef"), rng.integers(0, 4))) for _ in price
            ],
            "hour": rng.uniform(0, 24, n),
        }
    )


def take_rows(table, rows, names=None):
    """Return some rows of a table of lists."""
    return {name: [table[name][i] for i in rows] for name in names or table}


def small_indices():
    """Return indices of every form and storage type, with ids of both kinds, some with groups or removed items."""
    table, items = mixed_table(50, 3), ("user", "words", "x")
    ids, groups = [f"item {i}" for i in range(50)], [f"g{i % 4}" for i in range(50)]
    models = [
        random_fitted(model, mixed_schema(), mixed_table(60))
        for model in (sf.FwFM(k=4), sf.FFM(k=2), sf.HigherOrderFM(k=3))
    ]
    options = [
        {"form": "vectors"},
        {"form": "effects", "groups": groups},
        {"dtype": "float16", "groups": groups},
        {"dtype": "int8"},
        {"form": "vectors"},
        {"form": "vectors", "groups": groups},
    ]
    found = []
    for number, chosen in enumerate(options):
        names = ids if number % 2 else np.arange(50)
        model = models[max(0, number - 3)]
        index = sf.ItemIndex(model, take_rows(table, range(50), items), names, threads=1, **chosen)
        if number % 3 == 0:
            index.remove([names[7], names[20]])
        found.append(index)
    return found


# Crosses


CROSSES = {
    "category × category": lambda: sf.Cross("kind", "user", min_count=2),
    "category × number": lambda: sf.Cross("kind", "x", segments=3, min_count=3),
    "category × numbers": lambda: sf.Cross("x", "kind", sf.Numerical("z", sf.MinMax(), sf.BSpline(2, 1)), min_count=2),
    "number × number": lambda: sf.Cross("x", "z", segments=(2, 3), degree=2),
    "levels × one": lambda: sf.Cross(
        sf.Numerical("x", sf.Quantile(), sf.MultiResolution((2, 4), 1)), sf.Numerical("hour", *_CLOCK)
    ),
    "numbers": lambda: sf.Cross("x", "z", "hour", segments=2, degree=1),
    "of bins": lambda: sf.Cross(sf.Numerical("x", sf.MinMax(), sf.Bins(3), special=["negative"]), "user"),
    "categories": lambda: sf.Cross(
        "kind", "user", sf.Categorical("again", unseen="neutral", column="code"), min_count=2
    ),
    "values": lambda: sf.Cross(sf.Categorical("x"), min_count=2),
    "hashed": lambda: sf.Cross("kind", "user", buckets=5, name="hashed cross"),
    "hashed × number": lambda: sf.Cross("hashed", "code", "hour", buckets=3, segments=3),
}
"""Fields of `cross_schema` of every kind, made by a function each."""
_CLOCK = (sf.MinMax(0, 24), sf.BSpline(4, 2, periodic=True))


def cross_schema(*kinds):
    """Return fields of `cross_table` and crosses of them; parts differ from the fields of their columns."""
    fields = [
        sf.Numerical("x", sf.MinMax(), sf.BSpline(5), special=[0.0, "negative"]),
        sf.Categorical("kind"),
        sf.Numerical("z", sf.MinMax(), sf.MultiResolution((2, 4), degree=2)),
        sf.Categorical("user", min_count=2),
        sf.Numerical("hour", *_CLOCK),
        sf.Categorical("hashed", unseen="hash", buckets=3, column="user"),
        sf.Categorical("code", values="numbers"),
    ]
    return sf.Schema([*fields, *(CROSSES[kind]() for kind in kinds)])


@made_once
def cross_table(n, seed=0, *, strange=False):
    """Return rows of `cross_schema`; `strange` ones have values that training did not meet."""
    rng = np.random.default_rng(seed)
    table = {
        "x": [[0.0, -1.0, None, float(rng.random() + 0.01)][int(c)] for c in rng.choice(4, n, p=[0.1, 0.1, 0.1, 0.7])],
        "kind": [[None, "u", "v", "w"][int(c)] for c in rng.integers(0, 4, n)],
        "z": [None if rng.random() < 0.1 else float(rng.normal()) for _ in range(n)],
        "user": [str(min(rng.geometric(0.3), 9)) for _ in range(n)],
        "hour": rng.uniform(0, 24, n).tolist(),
        "code": [str(rng.integers(0, 3)) for _ in range(n)],
    }
    if strange:
        for name, values in {"x": [1e9, 0.0, -5.0], "kind": ["new"], "z": [1e9, -1e9], "user": ["99", None]}.items():
            for i in np.flatnonzero(rng.random(n) < 0.2):
                table[name][i] = values[rng.integers(len(values))]
    return table
