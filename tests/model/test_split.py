"""Context and item sides against the formula of the whole row."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.model.family.formula import formula_scores
from splinefm.model.split import Split
from support import all_models, averages, mixed_schema, mixed_table, random_params

MODELS = [*all_models(5), *averages(), sf.LowRankFwFM(k=3, rank=1)]
SPLITS = [(), (0,), (3,), (1, 4), (0, 2, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4)]
NAMES = ("x", "kind", "tags", "z", "words")


def make_slots(n=30):
    table = mixed_table(n, names=NAMES)
    encoder = sf.fit_encoder(mixed_schema(NAMES), table)
    return encoder.layout, encoder.encode(table)


@pytest.fixture(scope="module", params=MODELS, ids=str)
def case(request):
    layout, slots = make_slots()
    params = random_params(request.param, layout)
    return request.param, params, layout, slots


@pytest.mark.parametrize("items", SPLITS, ids=str)
def test_every_item_meets_every_context_as_in_the_formula(case, items):
    model, params, layout, slots = case
    split = Split(model, params, layout, items)
    context = split.context_side(split.part(slots, split.context))
    item = split.item_side(split.part(slots, items))
    scores = split.bias + context.scores[:, None] + item.scores + context.vectors @ item.vectors.T
    assert item.vectors.shape == context.vectors.shape == (len(slots), split.length)
    for i in (3, 17):
        mixed = slots[np.arange(len(slots))]
        for f in split.context:
            windows = slice(*layout.window_ptr[f : f + 2])
            weights = slice(layout.weight_ptr[windows.start], layout.weight_ptr[windows.stop])
            mixed.start[:, windows], mixed.weight[:, weights] = slots.start[i, windows], slots.weight[i, weights]
        np.testing.assert_allclose(scores[i], formula_scores(model, params, mixed), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("model", "one", "two", "four"),
    [
        (sf.FM(k=3), 3, 3, 3),
        (sf.FwFM(k=3), 3, 6, 3),
        (sf.FwFM(k=3, third=2), 3 + 2, 6 + 4, 3 + 4),
        (sf.LowRankFwFM(k=3, rank=1), 3, 3, 3),
        (sf.LowRankFwFM(k=3, rank=4), 3, 6, 3),
        (sf.FmFM(k=(3, 1, 2, 4, 3)), 3, 4, 3),
        (sf.FFM(k=3), 12, 18, 12),
        (sf.HigherOrderFM(k=3, order=2), 3, 3, 3),
        (sf.HigherOrderFM(k=3, order=5), 3, 6, 9),
    ],
)
def test_vectors_are_as_short_as_the_table_says(model, one, two, four):
    layout, _ = make_slots()
    params = random_params(model, layout)
    found = [Split(model, params, layout, items).length for items in ((0,), (0, 1), (0, 1, 2, 3))]
    assert found == [one, two, four]


def test_a_side_without_fields_has_no_vector():
    layout, slots = make_slots()
    model = sf.FM(k=3)
    split = Split(model, random_params(model, layout), layout, tuple(range(5)))
    context = split.context_side(split.part(slots, ()))
    assert context.vectors.shape == (30, 0)
    assert not context.scores.any()


def test_no_rows_are_no_vectors():
    layout, slots = make_slots()
    for model in MODELS:
        split = Split(model, random_params(model, layout), layout, (1, 3))
        assert split.item_side(split.part(slots, (1, 3))[:0]).vectors.shape == (0, split.length)
