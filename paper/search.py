"""The search for hyper-parameters that arms of several experiments share."""

from __future__ import annotations

from collections.abc import Callable

import optuna

from paper.harness import Json

SAMPLER_SEED = 42


def search(objective: Callable[[optuna.Trial], float], trials: int) -> Json:
    """Search as the paper does: Optuna's TPE with seed 42 and the median pruner."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=SAMPLER_SEED))
    study.optimize(objective, n_trials=trials)
    finished = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
    return {
        "params": study.best_trial.user_attrs.get("params", study.best_params),
        "value": study.best_value,
        "trials": trials,
        "finished": len(finished),
    }
