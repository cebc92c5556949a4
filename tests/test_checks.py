"""Checks of arguments that all folders share, and threads."""

import threading

import numpy as np
import pytest

import splinefm as sf
from splinefm._checks import MAX_SIZE, check_count, check_fitted, check_increasing, check_positive, check_size
from splinefm._parallel import count_threads, in_order
from splinefm._wording import on_command_line
from splinefm.inspect.segment import segment


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
def test_integers_are_not_booleans_floats_or_text(value):
    with pytest.raises(ValueError, match="n must be an integer, got"):
        check_count("n", value, 1)
    with pytest.raises(ValueError, match="n must be an integer of at least 1, got"):
        check_size("n", value)


def test_counts_have_limits():
    check_count("n", np.int64(MAX_SIZE), 1)
    check_count("n", 10**12, 1, None)
    for value, limits, message in [
        (0, (1,), "n must be at least 1, got 0"),
        (MAX_SIZE + 1, (1,), "n must be from 1 to 2,147,483,647"),
        (0, (1, None), "n must be at least 1, got 0"),
        (9, (0, 5), "n must be from 0 to 5, got 9"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_count("n", value, *limits)


def test_settings_are_named_as_the_user_writes_them():
    with on_command_line(), pytest.raises(ValueError, match="--batch-size must be at most 5, got 6"):
        check_size("batch_size", 6, 1, 5)
    with on_command_line(), pytest.raises(ValueError, match="--max-error must be a positive number, got nan"):
        check_positive("max_error", float("nan"))


def test_increasing_numbers_are_finite():
    for values in ([1.0], [1.0, 1.0], [0.0, np.inf], [[0.0, 1.0]]):
        with pytest.raises(ValueError, match="edges must be at least two increasing finite numbers"):
            check_increasing("edges", values)


def test_a_model_is_told_from_an_estimator_and_from_its_class():
    for value in (sf.SplineFMClassifier(), sf.Fitted, "model.sfm", None):
        with pytest.raises(TypeError, match=r"binned must be a sf\.Fitted, got .*; an estimator has one in fitted_"):
            check_fitted(value, "binned")


def test_threads_keep_the_order_and_do_not_run_ahead():
    taken = []

    def items():
        for i in range(100):
            taken.append(i)
            yield i

    results = in_order(lambda i: (i, threading.get_ident()), items(), threads=2)
    assert next(results)[0] == 0 and len(taken) < 10
    assert [i for i, _ in results] == list(range(1, 100))
    with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
        count_threads(0)


def test_an_error_in_a_thread_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda i: 1 // (i - 3), range(9), threads=2))


@pytest.mark.parametrize(
    "call",
    [
        lambda model, X: sf.importance(model, X),
        lambda model, X: sf.shapley_values(model, X, X),
        lambda model, X: sf.decompose(model, X, X),
        lambda model, X: sf.Background.of(model, X),
        lambda model, X: sf.partial_dependence(model, "x", [1.0], X),
        lambda model, X: sf.ice_curves(model, X, "x", [1.0]),
        lambda model, X: segment(model, {}, "x"),
        lambda model, X: sf.segments(model, X, "x"),
        lambda model, X: sf.Learner(model),
        lambda model, X: sf.to_torch(model),
        lambda model, X: sf.ShardedModel.write(model, "folder"),
    ],
)
def test_an_estimator_in_place_of_its_model_is_named(call):
    with pytest.raises(TypeError, match=r"must be a sf.Fitted, got SplineFMRegressor; an estimator has one in fitted_"):
        call(sf.SplineFMRegressor(), {"x": [1.0, 2.0]})
