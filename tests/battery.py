"""What every engine must do: one battery for all models, both reductions and all losses.

A module with an engine subclasses it, and pytest runs the tests there:

    class TestCpuEngine(EngineBattery):
        def engine(self, *arguments, **options):
            return CpuEngine(*arguments, **options)

The expected values come from the NumPy formulas of `splinefm.model.family`, from finite differences, from automatic
differentiation and from textbook optimizers. The module is long because it is a single list: what an engine must do is
read in one place.
"""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import huber

import splinefm as sf
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import init_params
from splinefm.model.optimizers import Group, Optimizer
from splinefm.train.losses import FORMULAS
from support import THOROUGH, all_models, examples, random_params, shop_schema, shop_table

# Means of several models are trained as one: kernels pad the 3 numbers of a member, and take 8 as they are.
MODELS = [*all_models(5), sf.FwFM(k=6, members=2), sf.FwFM(k=16, third=4, members=2)]
# Vectors of two parts that the kernels know in one piece each, and of parts that they take eight by eight.
PARTS = [sf.FwFM(k=8, third=8), sf.FwFM(k=16, third=16), sf.FwFM(k=16, third=8), sf.FwFM(k=24, third=24)]
LOSSES = [name for name in FORMULAS if name != "softmax"]
# Powers, levels and thresholds that are not the defaults.
PARAMETERS = {"tweedie": 1.3, "quantile": 0.8, "huber": 0.7}
each_model = pytest.mark.parametrize("model", MODELS, ids=str)
each_reduction = pytest.mark.parametrize("reduction", ["sum", "identity"])
each_loss = pytest.mark.parametrize("loss", LOSSES)
# A gradient is the slope of the loss times the slope of the score: every loss meets one model of pairs and one of
# products, every model meets one loss. A thorough run has all combinations.
each_gradient = pytest.mark.parametrize(
    ("loss", "reduction", "model"),
    [
        pytest.param(loss, reduction, model, id=f"{loss}-{reduction}-{model}")
        for loss in LOSSES
        for reduction in ("sum", "identity")
        for model in MODELS
        if THOROUGH or loss == "logistic" or model in (sf.FwFM(k=4), sf.FwFM(k=3, third=2))
    ],
)
# The first moment of AdamW without memory is the gradient.
GRADIENT = Optimizer("adamw", beta1=0.0)


@lru_cache
def make_slots(reduction, n=40, seed=1):
    """Encoded rows of a table in which every kind of field occurs, with tokens and zero weights."""
    return sf.fit_encoder(shop_schema(reduction), shop_table(300, 0)).encode(shop_table(n, seed))


def make_targets(loss, n, seed=0):
    """Targets and sample weights; logistic targets are shares."""
    rng = np.random.default_rng(seed)
    if loss in ("logistic", "poisson"):
        y = rng.choice([0.0, 0.3, 1.0], n) if loss == "logistic" else rng.poisson(1.5, n)
    elif loss in ("gamma", "tweedie"):
        y = rng.lognormal(0.0, 1.0, n) * (1.0 if loss == "gamma" else rng.random(n) < 0.7)
    else:
        y = rng.normal(size=n)
    return y.astype(np.float64), rng.uniform(0.2, 3.0, n)


def off_the_kink(loss, y, score):
    """Move targets of the quantile loss away from scores, where the loss has no derivative."""
    return np.where(np.abs(score - y) < 0.05, y + np.where(y >= score, 0.1, -0.1), y) if loss == "quantile" else y


def in_double(params):
    return {name: values.astype(np.float64) for name, values in params.items()}


def design(slots):
    """X[i, u, r]: weight of feature r in unit u of row i."""
    layout = slots.layout
    X = np.zeros((len(slots), layout.n_units, layout.n_features))
    for w, unit in enumerate(layout.window_unit):
        for j in range(layout.weight_ptr[w + 1] - layout.weight_ptr[w]):
            X[np.arange(len(slots)), unit, slots.start[:, w] + j] += slots.weight[:, layout.weight_ptr[w] + j]
    return X


def active_features(slots):
    """Return which features have a weight other than zero in some row."""
    layout = slots.layout
    active = np.zeros(layout.n_features, bool)
    for w in range(layout.n_windows):
        for j in range(layout.weight_ptr[w + 1] - layout.weight_ptr[w]):
            used = slots.weight[:, layout.weight_ptr[w] + j] != 0
            active[slots.start[used, w] + j] = True
    return active


def losses(loss, y, score):
    parameter, mean = PARAMETERS.get(loss), np.exp(score)
    return {
        "logistic": lambda: np.logaddexp(0.0, score) - y * score,
        "squared": lambda: 0.5 * (score - y) ** 2,
        "poisson": lambda: mean - y * score,
        "gamma": lambda: np.log(mean / y) + y / mean - 1.0,
        "tweedie": lambda: _half_tweedie(y, mean, parameter),
        "quantile": lambda: np.where(y > score, parameter, 1.0 - parameter) * np.abs(y - score),
        "huber": lambda: huber(parameter, y - score),
    }[loss]()


def _half_tweedie(y, mean, p):
    return y ** (2 - p) / ((1 - p) * (2 - p)) - y * mean ** (1 - p) / (1 - p) + mean ** (2 - p) / (2 - p)


def torch_losses(torch, loss, y, score):
    """The losses once more, for automatic differentiation."""
    parameter, mean = PARAMETERS.get(loss), torch.exp(score)
    if loss == "logistic":
        return torch.nn.functional.softplus(score) - y * score
    if loss == "squared":
        return 0.5 * (score - y) ** 2
    if loss == "huber":
        return torch.nn.functional.huber_loss(score, y, reduction="none", delta=parameter)
    if loss == "quantile":
        return torch.maximum(parameter * (y - score), (parameter - 1) * (y - score))
    if loss == "poisson":
        return mean - y * score
    return torch.log(mean / y) + y / mean - 1 if loss == "gamma" else _half_tweedie(y, mean, parameter)


def mean_loss(model, loss, params, slots, y, weight):
    return (weight * losses(loss, y, formula_scores(model, params, slots))).sum() / weight.sum()


def assert_same(first, second, **tolerance):
    assert first.keys() == second.keys()
    for name in first:
        if tolerance:
            np.testing.assert_allclose(first[name], second[name], **tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@st.composite
def problems(draw):
    """Any layout, slots and model: a field may have several windows per unit and several units."""
    fields = []
    for f in range(draw(st.integers(1, 4))):
        widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
        new = draw(st.lists(st.booleans(), min_size=len(widths) - 1, max_size=len(widths) - 1))
        units = np.concatenate([[0], np.cumsum(new)]).astype(int).tolist()
        fields.append(FieldLayout(f"f{f}", max(widths) + draw(st.integers(0, 5)), tuple(widths), tuple(units)))
    layout = SlotLayout(tuple(fields))
    kinds = [st.just(model) for model in (sf.FM(4), sf.FwFM(4), sf.FmFM(3), sf.FFM(3))]
    kinds.append(st.builds(sf.LowRankFwFM, st.just(4), st.integers(1, 3)))
    kinds.append(st.builds(sf.HigherOrderFM, st.integers(2, 3), st.integers(2, 5)))
    kinds.append(st.builds(sf.FwFM, st.integers(1, 17), st.integers(1, 9)))
    kinds.append(st.builds(lambda k, third, n: sf.FwFM(n * k, third, n), *map(st.integers, (1, 0, 2), (17, 9, 4))))
    kinds.append(st.builds(sf.FmFM, st.tuples(st.just(4), *[st.integers(1, 4)] * (len(fields) - 1))))
    model = draw(st.one_of(kinds))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    window_field = layout.unit_field[layout.window_unit]
    last = layout.feature_ptr[window_field + 1] - np.diff(layout.weight_ptr)
    n = draw(st.integers(1, 40))
    start = rng.integers(layout.feature_ptr[window_field], last + 1, (n, layout.n_windows)).astype(np.int32)
    weight = rng.uniform(-0.6, 0.8, (n, layout.n_weights)) * (rng.random((n, layout.n_weights)) < 0.8)
    return model, Slots(start, weight.astype(np.float32), layout), rng


def finite_difference(objective, params, name, index):
    ends = []
    for h in (1e-5, -1e-5):
        values = params[name].copy()
        values[index] += h
        ends.append(objective(params | {name: values}))
    return (ends[0] - ends[1]) / 2e-5


def assert_gradient(objective, params, gradient, slots, rng, each=6):
    """Compare some numbers of every kind with finite differences, in the table active rows first of all."""
    rows = np.flatnonzero(active_features(slots))
    slope = lru_cache(lambda name, index: finite_difference(objective, params, name, index))  # there is one bias
    checked = 0
    for name, values in params.items():
        for _ in range(each):
            index = tuple(int(rng.integers(size)) for size in values.shape)
            if name in ("linear", "factors"):
                index = (int(rng.choice(rows)), *index[1:])
            expected = slope(name, index)
            assert gradient[name][index] == pytest.approx(expected, rel=1e-3, abs=1e-5), (name, index)
            checked += abs(expected) > 1e-4
    assert checked > each


def torch_interaction(torch, model, params, X, layout):
    """The models once more, over explicit pairs (or more) of units."""
    P = X @ params["factors"]
    n_units = layout.n_units
    if isinstance(model, sf.HigherOrderFM):
        tuples = [torch.combinations(torch.arange(n_units), t) for t in range(2, model.order + 1)]
        return sum(P[:, units].prod(2).sum((1, 2)) for units in tuples)
    u, v = torch.triu_indices(n_units, n_units, 1)
    fields = torch.tensor(layout.unit_field).long()
    f, e = fields[u], fields[v]
    if isinstance(model, sf.FFM):
        parts = P.reshape(*P.shape[:2], -1, model.k)
        return (parts[:, u, e] * parts[:, v, f]).sum((1, 2))
    if isinstance(model, sf.FmFM):
        return torch.einsum("npi,pij,npj->n", P[:, u], params["field_matrices"][f, e], P[:, v])
    products = P[:, u, : model.k] * P[:, v, : model.k]
    if isinstance(model, sf.FwFM):
        n_fields = len(layout.fields)
        weights = params["field_weights"].reshape(model.members, n_fields, n_fields)[:, f, e]
        pairs = torch.einsum("npmd,mp->n", products.unflatten(2, (model.members, -1)), weights)
        return pairs + P[:, torch.combinations(torch.arange(n_units), 3), model.k :].prod(2).sum((1, 2))
    products = products.sum(2)
    if isinstance(model, sf.LowRankFwFM):
        U, d = params["field_factors"], params["field_scales"]
        products = products * (U.T @ torch.diag(d) @ U)[f, e] * (f != e)
    return products.sum(1)


def penalized(model, loss, slots, y, weight, groups):
    """The objective of the docstring of `Group`, on full arrays."""
    active = active_features(slots)
    flat = [group for own in groups for group in own]
    end = np.cumsum([group.size for group in flat])
    for group, last in zip(flat, end, strict=True):
        if group.smoothness > 0:
            active[last - group.size : last] = True

    def objective(params):
        value = mean_loss(model, loss, params, slots, y, weight)
        for group, last in zip(flat, end, strict=True):
            own = slice(last - group.size, last)
            v, w = params["factors"][own], params["linear"][own]
            pairs = v.shape[1] - model.third
            value += 0.5 * group.l2 * (v[active[own], :pairs] ** 2).sum()
            value += (
                0.5 * (group.l2 if group.l2_third is None else group.l2_third) * (v[active[own], pairs:] ** 2).sum()
            )
            value += 0.5 * group.l2_linear * (w[active[own]] ** 2).sum()
            rows = np.column_stack([v, w])
            for _ in range(group.order):
                rows = np.roll(rows, -1, axis=0) - rows if group.periodic else np.diff(rows, axis=0)
            value += group.smoothness * (rows**2).sum()
        return value

    return objective, active


def make_groups(layout, order, periodic):
    """Tokens and functions apart; smooth groups at the beginning, inside and at the end of fields, and none."""
    sizes = [field.n_features for field in layout.fields]
    smooth = {"order": order, "periodic": periodic}
    return [
        [Group(4, l2=0.3, l2_linear=0.2, l2_third=0.9), Group(sizes[0] - 4, smoothness=0.2, **smooth)],
        [Group(5, smoothness=0.3, l2=0.1, **smooth), Group(sizes[1] - 5, smoothness=0.1, l2_linear=0.4, **smooth)],
        [Group(sizes[2], l2=0.5, l2_third=0.0)],
        [Group(1), Group(sizes[3] - 1, l2_linear=0.6)],
        [Group(1), Group(sizes[4] - 1, smoothness=0.4, l2=0.2, l2_linear=0.1, **smooth)],
    ]


def plain_gradient(params, X, y, weight):
    """Gradient of the mean logistic loss of an FM, on full arrays in float64."""
    P = X @ params["factors"]
    both = P.sum(axis=1)
    score = params["bias"][0] + X.sum(axis=1) @ params["linear"]
    score = score + 0.5 * ((both**2).sum(axis=1) - (P**2).sum(axis=(1, 2)))
    slope = weight * (1 / (1 + np.exp(-score)) - y) / weight.sum()
    factors = np.einsum("nur,nud->rd", X, slope[:, None, None] * (both[:, None] - P))
    return {"bias": slope.sum(keepdims=True), "linear": slope @ X.sum(axis=1), "factors": factors}


def snapshot(engine):
    """Table and memory of the optimizer, by features; Adagrad has no first moment."""
    arrays = {name: engine.values[name] for name in ("factors", "linear")}
    for name in tuple(arrays):
        arrays |= {f"{name} {what}": array for what, array in engine.state[name]._asdict().items()}
    rows = len(engine.values["linear"])
    return {name: array.reshape(rows, -1).copy() for name, array in arrays.items() if array.size > 1}


class PlainOptimizer:
    """AdamW or Adagrad as in the textbook, for one array; `rows` says which of its rows take part."""

    def __init__(self, settings, values, decay):
        self.settings, self.values, self.decay = settings, values.astype(np.float64), decay
        self.m, self.v, self.average = np.zeros(values.shape), np.zeros(values.shape), self.values.copy()

    def step(self, number, learning_rate, gradient, rows):
        s, g = self.settings, gradient[rows]
        if s.name == "adamw":
            self.m[rows] = s.beta1 * self.m[rows] + (1 - s.beta1) * g
            self.v[rows] = s.beta2 * self.v[rows] + (1 - s.beta2) * g**2
            m, v = self.m[rows] / (1 - s.beta1**number), self.v[rows] / (1 - s.beta2**number)
        else:
            self.v[rows] += g**2
            m, v = g, self.v[rows]
        self.values[rows] -= learning_rate * (m / (np.sqrt(v) + s.eps) + self.decay * self.values[rows])
        self.average = s.ema * self.average + (1 - s.ema) * self.values  # of all rows, at every step


class EngineBattery:
    """Tests of an engine; a subclass says how it is made and where its gradient is."""

    sampled = False
    """Whether a quick run takes one of seven products of model and loss, because every step takes long."""

    def assert_equal(self, actual, expected):
        """Compare scores that are equal to the last bit; the sums of another engine may depend on how rows come."""
        np.testing.assert_array_equal(actual, expected)

    def engine(
        self,
        model,
        layout,
        params,
        loss="logistic",
        optimizer=None,
        groups=None,
        batch_size=4096,
        threads=1,
        loss_parameter=0.0,
    ):
        """Return an engine that starts from `params`."""
        raise NotImplementedError

    def gradient_of(self, engine):
        """Return the gradient that the last step of an engine with the optimizer `GRADIENT` saw, by parameter."""
        raise NotImplementedError

    def one_step(self, model, loss, params, slots, y, weight, **options):
        """Return gradient and loss of a step from `params`."""
        options = {"optimizer": GRADIENT, "batch_size": max(1, len(slots)), "threads": 1} | options
        options["loss_parameter"] = PARAMETERS.get(loss, 0.0)
        engine = self.engine(model, slots.layout, params, loss, **options)
        value = engine.step(slots, y, weight)
        return self.gradient_of(engine), value

    def assert_scores(self, model, params, slots):
        expected = formula_scores(model, params, slots)
        actual = self.engine(model, slots.layout, params, threads=1).scores(slots)
        assert actual.dtype == np.float32 and actual.shape == (len(slots),)
        assert (np.abs(actual - expected) <= 1e-5 * np.maximum(1.0, np.abs(expected))).all()

    @pytest.mark.parametrize("n_outputs", [1, 3])
    def test_a_shift_of_the_bias_moves_all_scores(self, n_outputs):
        slots, model = make_slots("sum"), MODELS[0]
        params = init_params(model, slots.layout, np.random.default_rng(0), n_outputs=n_outputs)
        engine = self.engine(model, slots.layout, params, "logistic" if n_outputs == 1 else "softmax")
        before, shift = engine.scores(slots), np.arange(1.0, n_outputs + 1.0)
        engine.shift_bias(shift)
        np.testing.assert_allclose(engine.scores(slots), before + (shift if n_outputs > 1 else 1.0), atol=1e-5)
        np.testing.assert_allclose(engine.params()["bias"].ravel(), params["bias"].ravel() + shift, atol=1e-5)

    @each_model
    @each_reduction
    def test_scores_are_those_of_the_formula(self, model, reduction):
        slots = make_slots(reduction)
        assert ((slots.weight != 0) & (slots.weight != 1)).any() and not active_features(slots).all()
        params = random_params(model, slots.layout)
        assert formula_scores(model, params, slots).std() > 0.1
        self.assert_scores(model, params, slots)

    @each_model
    def test_a_single_row_and_no_row_have_scores(self, model):
        slots = make_slots("sum")
        params = random_params(model, slots.layout)
        engine = self.engine(model, slots.layout, params, threads=2)
        whole = engine.scores(slots)
        for i in range(5):
            self.assert_equal(engine.scores(slots[i : i + 1]), whole[i : i + 1])
        assert engine.scores(slots[:0]).shape == (0,)
        self.assert_equal(engine.scores(slots[np.array([7, 3, 3])]), whole[[7, 3, 3]])

    @each_model
    def test_threads_do_not_change_scores(self, model):
        slots = make_slots("identity", 1_700)
        engine = self.engine(model, slots.layout, random_params(model, slots.layout), threads=1)
        one = engine.scores(slots)
        for threads in (2, 3):
            self.assert_equal(engine.scores(slots, threads=threads), one)

    @examples(60)
    @given(problems())
    def test_any_slots_have_the_scores_of_the_formula(self, problem):
        model, slots, rng = problem
        self.assert_scores(model, random_params(model, slots.layout, rng), slots)

    @examples(60)
    @given(problems(), st.sampled_from(LOSSES))
    def test_the_gradient_gives_the_slope_in_any_direction(self, problem, loss):
        model, slots, rng = problem
        params = random_params(model, slots.layout, rng)
        y, weight = make_targets(loss, len(slots), rng)
        exact = in_double(params)
        y = off_the_kink(loss, y, formula_scores(model, exact, slots))
        gradient, value = self.one_step(model, loss, params, slots, y, weight)
        assert value == pytest.approx(mean_loss(model, loss, exact, slots, y, weight), rel=1e-4, abs=1e-5)
        for name in params:
            direction = rng.normal(size=params[name].shape)
            ends = [
                mean_loss(model, loss, exact | {name: exact[name] + h * direction}, slots, y, weight)
                for h in (1e-5, -1e-5)
            ]
            slope = (ends[0] - ends[1]) / 2e-5
            size = np.abs(gradient[name] * direction).sum()
            assert (gradient[name] * direction).sum() == pytest.approx(slope, rel=1e-3, abs=1e-4 * size + 1e-5), name

    @each_gradient
    def test_gradients_are_those_of_the_formula(self, model, reduction, loss):
        slots = make_slots(reduction)
        params = random_params(model, slots.layout)
        y, weight = make_targets(loss, len(slots))
        exact = in_double(params)
        y = off_the_kink(loss, y, formula_scores(model, exact, slots))
        gradient, value = self.one_step(model, loss, params, slots, y, weight)
        assert value == pytest.approx(mean_loss(model, loss, exact, slots, y, weight), rel=1e-5)
        rng = np.random.default_rng(0)
        assert_gradient(lambda p: mean_loss(model, loss, p, slots, y, weight), exact, gradient, slots, rng)

    @pytest.mark.parametrize("model", PARTS, ids=str)
    @each_reduction
    def test_gradients_of_pairs_and_triples_are_those_of_the_formula(self, model, reduction):
        slots = make_slots(reduction)
        params = random_params(model, slots.layout, scale=0.4)
        y, weight = make_targets("logistic", len(slots))
        exact = in_double(params)
        gradient, value = self.one_step(model, "logistic", params, slots, y, weight)
        assert value == pytest.approx(mean_loss(model, "logistic", exact, slots, y, weight), rel=1e-5)
        rng = np.random.default_rng(0)
        assert_gradient(lambda p: mean_loss(model, "logistic", p, slots, y, weight), exact, gradient, slots, rng)
        self.assert_scores(model, params, slots)

    @each_gradient
    def test_a_whole_gradient_is_that_of_automatic_differentiation(self, model, reduction, loss):
        torch = pytest.importorskip("torch")
        slots = make_slots(reduction)
        values = random_params(model, slots.layout)
        y, weight = make_targets(loss, len(slots))
        y = off_the_kink(loss, y, formula_scores(model, in_double(values), slots))
        gradient, value = self.one_step(model, loss, values, slots, y, weight)

        params = {name: torch.tensor(array, dtype=torch.float64, requires_grad=True) for name, array in values.items()}
        X, y, weight = torch.tensor(design(slots)), torch.tensor(y), torch.tensor(weight)
        score = params["bias"] + X.sum(1) @ params["linear"] + torch_interaction(torch, model, params, X, slots.layout)
        objective = (weight * torch_losses(torch, loss, y, score)).sum() / weight.sum()
        objective.backward()

        assert value == pytest.approx(objective.item(), rel=1e-5)
        for name, tensor in params.items():
            np.testing.assert_allclose(gradient[name], tensor.grad.numpy(), rtol=1e-3, atol=1e-5, err_msg=name)

    @each_loss
    def test_a_loss_of_large_scores_is_exact(self, loss):
        slots = make_slots("sum")
        for bias in (-40.0, -3.0, 3.0, 12.0):
            params = random_params(sf.FM(4), slots.layout) | {"bias": np.array([bias], np.float32)}
            y, weight = make_targets(loss, len(slots))
            gradient, value = self.one_step(sf.FM(4), loss, params, slots, y, weight)
            score = formula_scores(sf.FM(4), params, slots)
            exact = sf.Loss(loss, **{FORMULAS[loss].named: PARAMETERS[loss]} if loss in PARAMETERS else {})
            slope = (weight * exact.slope(y, score)).sum() / weight.sum()
            assert value == pytest.approx((weight * losses(loss, y, score)).sum() / weight.sum(), rel=1e-4)
            assert gradient["bias"][0] == pytest.approx(slope, rel=1e-4)

    @each_model
    @pytest.mark.parametrize("loss", ["logistic", "squared", "poisson", "tweedie"])  # linear in the target
    def test_a_share_with_a_count_weighs_as_much_as_its_rows(self, model, loss):
        slots = make_slots("sum")
        params = random_params(model, slots.layout)
        rng = np.random.default_rng(0)
        count = rng.integers(1, 6, len(slots))
        positive = rng.integers(0, count + 1)
        rows = np.repeat(np.arange(len(slots)), count)
        y = np.concatenate([np.arange(n) < p for n, p in zip(count, positive, strict=True)]).astype(np.float64)
        few, few_loss = self.one_step(model, loss, params, slots, positive / count, count.astype(np.float64))
        many, many_loss = self.one_step(model, loss, params, slots[rows], y, np.ones(len(y)))
        assert_same(few, many, rtol=1e-4, atol=1e-6)
        if loss in ("logistic", "poisson"):  # the others have a constant
            assert few_loss == pytest.approx(many_loss, rel=1e-6)

    @each_model
    def test_the_scale_of_sample_weights_does_not_matter(self, model):
        slots = make_slots("sum")
        params = random_params(model, slots.layout)
        y, weight = make_targets("logistic", len(slots))
        one, loss = self.one_step(model, "logistic", params, slots, y, weight)
        other, other_loss = self.one_step(model, "logistic", params, slots, y, 1e6 * weight)
        assert_same(one, other, rtol=1e-4, atol=1e-7)
        assert loss == pytest.approx(other_loss)

    # All penalties with one model; of the others only the number of columns differs.
    @pytest.mark.parametrize(
        ("model", "order", "periodic"),
        [
            *((MODELS[0], order, periodic) for order in (1, 2, 3) for periodic in (False, True)),
            *((model, 3, True) for model in (MODELS[1], MODELS[3], MODELS[4], MODELS[-1])),
            *((model, 2, False) for model in (*PARTS, MODELS[4])),
        ],
        ids=str,
    )
    def test_penalties_are_those_of_the_objective(self, model, order, periodic):
        slots = make_slots("sum")[:12]
        params = random_params(model, slots.layout)
        y, weight = make_targets("logistic", len(slots))
        groups = make_groups(slots.layout, order, periodic)
        gradient, value = self.one_step(model, "logistic", params, slots, y, weight, groups=groups)
        exact = in_double(params)
        assert value == pytest.approx(
            mean_loss(model, "logistic", exact, slots, y, weight), rel=1e-5
        )  # without penalties
        objective, active = penalized(model, "logistic", slots, y, weight, groups)
        assert not active.all() and (active & ~active_features(slots)).any()
        for row in range(slots.layout.n_features):
            column = row % params["factors"].shape[1]
            for name, index in (("linear", (row,)), ("factors", (row, column))):
                expected = finite_difference(objective, exact, name, index)
                assert gradient[name][index] == pytest.approx(expected, rel=1e-3, abs=2e-5), (name, index)

    def test_coordinates_for_products_of_three_have_their_own_l2(self):
        """One model, so that it runs at any depth: a model of pairs would do for most of the numbers above."""
        slots, model = make_slots("sum")[:12], sf.FwFM(k=3, third=5)
        params, (y, weight) = random_params(model, slots.layout), make_targets("logistic", 12)
        active = active_features(slots)
        groups = [[Group(field.n_features, l2=0.25, l2_third=0.75)] for field in slots.layout.fields]
        plain, _ = self.one_step(model, "logistic", params, slots, y, weight)
        gradient, _ = self.one_step(model, "logistic", params, slots, y, weight, groups=groups)
        expected = params["factors"] * active[:, None] * np.repeat(np.float32([0.25, 0.75]), [3, 5])
        np.testing.assert_allclose(gradient["factors"] - plain["factors"], expected, atol=1e-6)
        assert np.abs(expected[:, 3:]).max() > 0.1

    @examples(40)
    @given(
        size=st.integers(1, 9),
        order=st.integers(1, 3),
        periodic=st.booleans(),
        smoothness=st.floats(0.125, 2.0),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_a_smooth_group_of_any_size_has_the_gradient_of_its_differences(
        self, size, order, periodic, smoothness, seed
    ):
        rng = np.random.default_rng(seed)
        layout = SlotLayout((FieldLayout("a", size, (1,), (0,)), FieldLayout("b", 2, (1,), (0,))))
        groups = [[Group(size, smoothness=smoothness, order=order, periodic=periodic)], [Group(2)]]
        params = random_params(sf.FM(2), layout, rng)
        slots = Slots(np.array([[0, size]], np.int32), np.zeros((1, 2), np.float32), layout)  # the loss has no gradient
        gradient, _ = self.one_step(sf.FM(2), "squared", params, slots, np.ones(1), np.ones(1), groups=groups)
        difference = np.eye(size)
        for _ in range(order):
            difference = np.roll(difference, -1, axis=0) - difference if periodic else np.diff(difference, axis=0)
        curvature = 2 * smoothness * difference.T @ difference
        np.testing.assert_allclose(
            gradient["factors"][:size], curvature @ params["factors"][:size], rtol=1e-3, atol=1e-3
        )
        np.testing.assert_allclose(gradient["linear"][:size], curvature @ params["linear"][:size], rtol=1e-3, atol=1e-3)
        assert not gradient["factors"][size:].any() and not gradient["linear"][size:].any()

    @examples(40)
    @given(
        shape=st.lists(st.integers(1, 5), min_size=1, max_size=3),
        blocks=st.integers(1, 3),
        order=st.integers(1, 3),
        periodic=st.lists(st.booleans(), min_size=3, max_size=3),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_a_tensor_is_smoothed_along_every_axis(self, shape, blocks, order, periodic, seed):
        rng = np.random.default_rng(seed)
        size, axes = int(np.prod(shape)), tuple(periodic[: len(shape)])
        n = blocks * size
        layout = SlotLayout((FieldLayout("a", n, (1,), (0,)), FieldLayout("b", 2, (1,), (0,))))
        group = Group(n, smoothness=0.5, order=order, periodic=axes, shape=tuple(shape))
        params = random_params(sf.FM(2), layout, rng)
        active = int(rng.integers(blocks))  # the only block with an active feature
        first = active * size
        weight = np.full((1, 2), 1e-6, np.float32)  # the loss has next to no gradient
        slots = Slots(np.array([[first, n]], np.int32), weight, layout)
        gradient, _ = self.one_step(
            sf.FM(2), "squared", params, slots, np.ones(1), np.ones(1), groups=[[group], [Group(2)]]
        )
        expected = np.zeros((n, 3))
        v = np.column_stack([params["factors"], params["linear"]])[first : first + size].reshape(*shape, 3)
        for axis, wraps in enumerate(axes):
            matrix = np.eye(shape[axis])
            for _ in range(order):
                matrix = np.roll(matrix, -1, axis=0) - matrix if wraps else np.diff(matrix, axis=0)
            if shape[axis] > 1:
                curved = np.tensordot(matrix.T @ matrix, v, axes=(1, axis))  # 2 x 0.5 is the factor
                expected[first : first + size] += np.moveaxis(curved, 0, axis).reshape(size, 3)
        np.testing.assert_allclose(gradient["factors"][:n], expected[:, :2], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(gradient["linear"][:n], expected[:, 2], rtol=1e-3, atol=1e-3)

    def test_a_polynomial_of_lower_degree_is_smooth(self):
        layout = SlotLayout((FieldLayout("a", 8, (1,), (0,)),))
        x = np.arange(8.0)
        slots = Slots(np.zeros((1, 1), np.int32), np.zeros((1, 1), np.float32), layout)
        for order in (1, 2, 3):
            line = (x ** (order - 1)).astype(np.float32)
            params = {"bias": np.zeros(1, np.float32), "linear": line, "factors": np.stack([line, -line], axis=1)}
            groups = [[Group(8, smoothness=1.0, order=order)]]
            gradient, _ = self.one_step(sf.FM(2), "squared", params, slots, np.zeros(1), np.ones(1), groups=groups)
            assert not gradient["factors"].any() and not gradient["linear"].any()

    def test_the_padding_of_shorter_vectors_stays_zero(self):
        model = sf.FmFM(k=(2, 3, 4, 1, 3))
        slots = make_slots("identity")
        layout = slots.layout
        groups = make_groups(layout, 2, False)
        for name in ("adamw", "adagrad"):
            optimizer = Optimizer(name, learning_rate=0.1, weight_decay=0.1, ema=0.5)
            engine = self.engine(model, layout, random_params(model, layout), "logistic", optimizer, groups, threads=1)
            for seed in range(4):
                engine.step(slots, *make_targets("logistic", len(slots), seed))
            for params in (engine.params(), engine.params(averaged=True)):
                for f, k in enumerate(model.vector_sizes(5)):
                    assert not params["factors"][layout.feature_ptr[f] : layout.feature_ptr[f + 1], k:].any()
                    assert (
                        not params["field_matrices"][f, :, k:].any() and not params["field_matrices"][:, f, :, k:].any()
                    )

    @each_model
    def test_a_step_on_some_rows_is_a_step_on_the_slots_of_those_rows(self, model):
        slots = make_slots("sum")
        params = random_params(model, slots.layout)
        y, weight = make_targets("logistic", len(slots))
        rows = np.random.default_rng(0).permutation(len(slots))[:23]
        engines = [self.engine(model, slots.layout, params, threads=1) for _ in range(2)]
        assert engines[0].step(slots, y, weight, rows=rows) == engines[1].step(slots[rows], y[rows], weight[rows])
        assert_same(engines[0].params(), engines[1].params())

    @each_model
    def test_a_single_row_makes_a_step(self, model):
        slots = make_slots("identity")[3:4]
        params = random_params(model, slots.layout)
        y, weight = np.array([0.3]), np.array([2.0])
        gradient, value = self.one_step(model, "logistic", params, slots, y, weight)
        exact = in_double(params)
        assert value == pytest.approx(mean_loss(model, "logistic", exact, slots, y, weight), rel=1e-5)
        rng = np.random.default_rng(0)
        assert_gradient(lambda p: mean_loss(model, "logistic", p, slots, y, weight), exact, gradient, slots, rng)

    def test_rows_without_weight_have_no_part_in_the_gradient(self):
        slots = make_slots("sum")
        params = random_params(sf.FwFM(4), slots.layout)
        y, weight = make_targets("logistic", len(slots))
        some = np.arange(len(slots)) % 3 > 0
        whole = self.one_step(sf.FwFM(4), "logistic", params, slots, y, weight * some)
        part = self.one_step(sf.FwFM(4), "logistic", params, slots[some], y[some], weight[some])
        assert_same(whole[0], part[0], rtol=1e-4, atol=1e-7)
        assert whole[1] == pytest.approx(part[1])

    def test_parameters_are_copies(self):
        slots = make_slots("sum")
        params = random_params(sf.FwFM(4), slots.layout)
        start = {name: values.copy() for name, values in params.items()}
        engine = self.engine(sf.FwFM(4), slots.layout, params, threads=1)
        assert_same(engine.params(), start)
        assert_same(engine.params(averaged=True), start)
        engine.step(slots, *make_targets("logistic", len(slots)))
        assert_same(params, start)
        now = engine.params()
        for values in engine.params().values():
            values[:] = 0.0
        assert_same(engine.params(), now)

    @pytest.mark.parametrize("name", ["adamw", "adagrad"])
    @pytest.mark.parametrize("weight_decay", [0.0, 0.1])
    def test_optimizers_are_the_textbook_on_active_features(self, name, weight_decay):
        slots = make_slots("sum", 90)
        settings = Optimizer(name, learning_rate=0.05, weight_decay=weight_decay, eps=1e-3, ema=0.7)
        engine = self.engine(
            sf.FM(4), slots.layout, random_params(sf.FM(4), slots.layout), "logistic", settings, threads=1
        )
        decays = {"bias": 0.0, "linear": weight_decay, "factors": weight_decay}
        plain = {key: PlainOptimizer(settings, values, decays[key]) for key, values in engine.params().items()}
        y, weight = make_targets("logistic", len(slots))
        rng = np.random.default_rng(0)
        seen = np.zeros(slots.layout.n_features, int)
        for number in range(1, 11):
            rows = rng.permutation(len(slots))[:4]
            learning_rate = None if number < 6 else 0.02
            part = slots[rows]
            params = {key: optimizer.values for key, optimizer in plain.items()}
            gradient = plain_gradient(params, design(part), y[rows], weight[rows])
            for key, optimizer in plain.items():
                active = np.array([True]) if key == "bias" else active_features(part)
                optimizer.step(number, learning_rate or 0.05, gradient[key], active)
            engine.step(slots, y, weight, rows=rows, learning_rate=learning_rate)
            seen += active_features(part)
            if number in (4, 10):  # once in between: looking at the average does not change what follows
                averaged = engine.params(averaged=True)
                for key in ("linear", "factors"):
                    np.testing.assert_allclose(averaged[key], plain[key].average, rtol=1e-4, atol=1e-5, err_msg=key)
        assert ((seen > 0) & (seen < 10)).sum() > 10
        assert_same(engine.params(), {key: optimizer.values for key, optimizer in plain.items()}, rtol=1e-4, atol=1e-5)

    @each_model
    @pytest.mark.parametrize("name", ["adamw", "adagrad"])
    def test_parameters_between_fields_take_the_steps_of_the_textbook(self, model, name):
        slots = make_slots("identity")
        settings = Optimizer(name, learning_rate=0.02, weight_decay=0.5, eps=1e-3, ema=0.5)
        engine = self.engine(model, slots.layout, random_params(model, slots.layout), "squared", settings, threads=1)
        dense = [key for key in engine.params() if key not in ("linear", "factors")]
        plain = {key: PlainOptimizer(settings, engine.params()[key], 0.0) for key in dense}
        y, weight = make_targets("squared", len(slots))
        for number in range(1, 5):
            gradient, _ = self.one_step(model, "squared", engine.params(), slots, y, weight)
            for key, optimizer in plain.items():
                optimizer.step(number, 0.02, gradient[key].astype(np.float64), slice(None))
            engine.step(slots, y, weight)
        for params in (engine.params(), engine.params(averaged=True)):  # there is no average of them
            for key, optimizer in plain.items():
                np.testing.assert_allclose(params[key], optimizer.values, rtol=1e-4, atol=1e-5, err_msg=key)

    def test_looking_at_the_average_does_not_change_it(self):
        slots = make_slots("sum", 90)
        y, weight = make_targets("logistic", len(slots))
        engines = [
            self.engine(
                sf.FM(4), slots.layout, random_params(sf.FM(4), slots.layout), optimizer=Optimizer(ema=0.9), threads=1
            )
            for _ in range(2)
        ]
        for step in range(8):
            for engine in engines:
                engine.step(slots, y, weight, rows=np.arange(10 * step, 10 * step + 10))
            engines[0].params(averaged=True)
        assert_same(engines[0].params(), engines[1].params())
        averages = [engine.params(averaged=True) for engine in engines]
        assert_same(*averages, rtol=1e-5, atol=1e-6)
        assert_same(engines[1].params(averaged=True), averages[1], rtol=1e-5, atol=1e-6)
        assert (averages[0]["factors"] != engines[0].params()["factors"]).any()

    @each_model
    @each_loss
    def test_training_lowers_the_loss(self, model, loss):
        slots = make_slots("sum", 200)
        y, weight = make_targets(loss, len(slots))
        params = init_params(model, slots.layout, np.random.default_rng(0))
        engine = self.engine(
            model,
            slots.layout,
            params,
            loss,
            Optimizer(learning_rate=0.02),
            threads=1,
            loss_parameter=PARAMETERS.get(loss, 0.0),
        )
        first = engine.step(slots, y, weight)
        for _ in range(60):
            last = engine.step(slots, y, weight)
        assert last < 0.9 * first if loss != "poisson" else last < first - 0.1

    @each_model
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_parameters_that_are_not_finite_are_seen(self, model, bad):
        slots = make_slots("sum")
        params = random_params(model, slots.layout)
        row = int(slots.start[0, 0])
        active = (slots.start[:, 0] <= row) & (row < slots.start[:, 0] + 4)
        assert active.any() and not active.all()
        before = self.engine(model, slots.layout, params, threads=1).scores(slots)
        for name in ("linear", "factors"):
            values = params[name].copy()
            values[row] = bad
            engine = self.engine(model, slots.layout, params | {name: values}, threads=1)
            scores = engine.scores(slots)
            assert not np.isfinite(scores[active]).any()
            np.testing.assert_array_equal(scores[~active], before[~active])
            assert not np.isfinite(engine.step(slots, *make_targets("logistic", len(slots))))

    @each_loss
    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_a_loss_that_is_not_finite_is_seen(self, loss, bad):
        slots = make_slots("sum")
        params = random_params(sf.FM(4), slots.layout) | {"bias": np.array([bad], np.float32)}
        y, weight = make_targets(loss, len(slots))
        _, value = self.one_step(sf.FM(4), loss, params, slots, np.full(len(y), 0.5), weight)
        assert not np.isfinite(value)
        with np.errstate(invalid="ignore"):  # infinities of both signs
            gradient, value = self.one_step(
                sf.FM(4), loss, random_params(sf.FM(4), slots.layout), slots, np.full(len(y), bad), weight
            )
        assert not np.isfinite(value)
        if np.isnan(bad) or loss not in ("quantile", "huber"):  # whose slope is bounded
            assert not np.isfinite(gradient["bias"]).any()

    @each_model
    def test_scores_beyond_the_range_of_floats_are_seen(self, model):
        slots = make_slots("identity")
        params = random_params(model, slots.layout)
        params["factors"] *= np.float32(1e21)
        engine = self.engine(model, slots.layout, params, threads=1)
        with np.errstate(invalid="ignore"):
            assert not np.isfinite(engine.scores(slots)).any()
            assert not np.isfinite(engine.step(slots, *make_targets("logistic", len(slots))))

    @each_model
    @each_reduction
    @pytest.mark.parametrize("name", ["adamw", "adagrad"])
    def test_rows_that_are_not_touched_do_not_change(self, model, reduction, name):
        slots = make_slots(reduction)[:6]
        params = random_params(model, slots.layout)
        optimizer = Optimizer(name, weight_decay=0.1, ema=0.9)
        groups = [[Group(field.n_features, l2=0.1, l2_linear=0.1)] for field in slots.layout.fields]
        engine = self.engine(model, slots.layout, params, "logistic", optimizer, groups, threads=1)
        every = make_slots(reduction)
        engine.step(every, *make_targets("logistic", len(every)))  # so that states are not all zero
        before = snapshot(engine)
        for seed in range(3):
            engine.step(slots, *make_targets("logistic", len(slots), seed))
        touched = active_features(slots)
        assert touched.any() and not touched.all()
        for key, array in snapshot(engine).items():
            np.testing.assert_array_equal(array[~touched], before[key][~touched], err_msg=key)
            assert (array[touched] != before[key][touched]).any(axis=1).all(), key

    def test_no_rows_or_no_weight_make_no_step(self):
        slots = make_slots("sum")
        params = random_params(sf.FM(4), slots.layout)
        engine = self.engine(sf.FM(4), slots.layout, params, optimizer=Optimizer(weight_decay=0.1), threads=1)
        y, weight = make_targets("logistic", len(slots))
        assert engine.step(slots[:0], y[:0], weight[:0]) == 0.0
        assert engine.step(slots, y, weight, rows=np.empty(0, np.int64)) == 0.0
        assert engine.step(slots, y, np.zeros(len(slots))) == 0.0
        assert engine.n_steps == 0
        assert_same(engine.params(), params)

    def test_a_batch_beyond_the_batch_size_is_refused(self):
        slots = make_slots("sum")
        engine = self.engine(sf.FM(4), slots.layout, random_params(sf.FM(4), slots.layout), batch_size=10, threads=1)
        with pytest.raises(ValueError, match=r"a batch has at most 10 rows \(batch_size\), got 40"):
            engine.step(slots, *make_targets("logistic", 40))

    @each_model
    def test_several_steps_in_one_call_are_steps_one_by_one(self, model):
        slots = make_slots("sum", 100)
        y, weight = make_targets("logistic", len(slots))
        weight[16:32] = 0.0  # a batch without weight makes no step
        rates = np.array([0.1, 0.5, 0.02, 0.3, 0.2, 0.1, 0.01])
        order = np.random.default_rng(3).permutation(len(slots))
        order = np.concatenate([np.setdiff1d(order, np.arange(16, 32))[:16], np.arange(16, 32), order[:68]])
        params = random_params(model, slots.layout)
        at_once, one_by_one = (self.engine(model, slots.layout, params, batch_size=16, threads=1) for _ in range(2))
        losses = at_once.steps(slots, y, weight, order, rates)
        expected = [
            one_by_one.step(slots, y, weight, order[16 * b : 16 * (b + 1)], learning_rate=rate)
            for b, rate in enumerate(rates)
        ]
        assert losses.tolist() == expected and losses[1] == 0.0 and (losses[[0, *range(2, 7)]] > 0.0).all()
        for name, values in at_once.params().items():
            np.testing.assert_array_equal(values, one_by_one.params()[name], err_msg=name)
        assert at_once.n_steps == 6

    def test_the_size_of_a_batch_is_checked(self):
        slots = make_slots("sum", 20)
        y, weight = make_targets("logistic", len(slots))
        engine = self.engine(sf.FM(4), slots.layout, random_params(sf.FM(4), slots.layout), batch_size=16, threads=1)
        for size in (0, 17):
            with pytest.raises(ValueError, match="from 1 to 16 rows"):
                engine.steps(slots, y, weight, np.arange(20), np.full(20, 0.1), batch_size=size)
