"""An extension of Griffe: the reference has the parameters that `shared_parameters` gives both estimators.

Griffe reads the source without running it, so it sees the docstrings before the decorator completes them.
"""

from __future__ import annotations

import ast
import re
import textwrap
from typing import Any

import griffe

HOME = "fit.parameters"
PARTS = {"{model}": "_MODEL", "{settings}": "_SETTINGS", "{attributes}": "_ATTRIBUTES"}


class SharedParameters(griffe.Extension):
    """Do for the source what `splinefm.fit.parameters.shared_parameters` does at run time."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        if pkg.name != "splinefm":
            return
        texts = {mark: ast.literal_eval(str(pkg[HOME][name].value)) for mark, name in PARTS.items()}
        shared = pkg[HOME]["SplineFMParameters"].members["__init__"].parameters
        for estimator in (
            pkg["fit.estimators.SplineFMClassifier"],
            pkg["fit.estimators.SplineFMRegressor"],
        ):
            for mark, text in texts.items():
                estimator.docstring.value = estimator.docstring.value.replace(f"{mark}\n", textwrap.dedent(text))
            init = estimator.members["__init__"]
            given = [item for item in init.parameters if is_named(item)]
            known = {item.name for item in given}
            added = [with_default(pkg, item) for item in shared if item.name not in known and is_named(item)]
            init.parameters = griffe.Parameters(*given, *added)


def is_named(parameter: griffe.Parameter) -> bool:
    """Whether this is a parameter that a user can give, not all others."""
    return parameter.kind is not griffe.ParameterKind.var_keyword


def with_default(package: griffe.Module, parameter: griffe.Parameter) -> griffe.Parameter:
    """The parameter with the value of its default, such as 20 instead of `Training.epochs`."""
    default = str(parameter.default)
    if default == "_VALIDATION":
        default = str(package["fit.fitting.fit_model"].parameters["validation"].default)
    elif default.startswith("Training."):
        default = str(package["train.settings.Training"].members[default.removeprefix("Training.")].value)
        described = re.match(r"field\(default=([^,)]+)", default)  # a dataclass field with other settings, too
        default = described[1] if described else default
    return griffe.Parameter(parameter.name, annotation=parameter.annotation, kind=parameter.kind, default=default)
