"""Factorization machines for tables with numerical columns: splines instead of bins.

Public names load when they are first used, so that importing the package stays light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinefm.encode.auto import choose_transform as choose_transform
    from splinefm.encode.bases import Bins as Bins
    from splinefm.encode.bases import CustomBasis as CustomBasis
    from splinefm.encode.bases import Fourier as Fourier
    from splinefm.encode.bases import Polynomial as Polynomial
    from splinefm.encode.bases import Powers as Powers
    from splinefm.encode.categorical import Categorical as Categorical
    from splinefm.encode.categorical import MultiValued as MultiValued
    from splinefm.encode.drift import DriftWarning as DriftWarning
    from splinefm.encode.encoder import Encoder as Encoder
    from splinefm.encode.encoder import Statistics as Statistics
    from splinefm.encode.encoder import fit_encoder as fit_encoder
    from splinefm.encode.inference import infer_schema as infer_schema
    from splinefm.encode.numerical import Numerical as Numerical
    from splinefm.encode.schema import Schema as Schema
    from splinefm.encode.slots import Layout as Layout
    from splinefm.encode.slots import Slots as Slots
    from splinefm.encode.splines import BSpline as BSpline
    from splinefm.encode.splines import MultiResolution as MultiResolution
    from splinefm.encode.starvation import Starvation as Starvation
    from splinefm.encode.table import open_table as open_table
    from splinefm.encode.timestamps import Timestamp as Timestamp
    from splinefm.encode.transforms import ArcsinhSquare as ArcsinhSquare
    from splinefm.encode.transforms import BestFitCDF as BestFitCDF
    from splinefm.encode.transforms import CustomTransform as CustomTransform
    from splinefm.encode.transforms import Log as Log
    from splinefm.encode.transforms import MinMax as MinMax
    from splinefm.encode.transforms import Quantile as Quantile
    from splinefm.learn.container import ModelFileError as ModelFileError
    from splinefm.learn.estimators import SplineFMClassifier as SplineFMClassifier
    from splinefm.learn.estimators import SplineFMRegressor as SplineFMRegressor
    from splinefm.learn.fitted import Fitted as Fitted
    from splinefm.learn.fitting import fit_model as fit_model
    from splinefm.learn.incremental import Learner as Learner
    from splinefm.learn.losses import Loss as Loss
    from splinefm.learn.metrics import GroupCalibration as GroupCalibration
    from splinefm.learn.metrics import auc as auc
    from splinefm.learn.metrics import calibration_by as calibration_by
    from splinefm.learn.metrics import calibration_error as calibration_error
    from splinefm.learn.metrics import logloss as logloss
    from splinefm.learn.metrics import mae as mae
    from splinefm.learn.metrics import normalized_entropy as normalized_entropy
    from splinefm.learn.metrics import r2 as r2
    from splinefm.learn.metrics import rmse as rmse
    from splinefm.learn.modelfile import load as load
    from splinefm.learn.study import StudySummary as StudySummary
    from splinefm.learn.study import TrialSummary as TrialSummary
    from splinefm.learn.training import Diverged as Diverged
    from splinefm.learn.training import Epoch as Epoch
    from splinefm.learn.training import Training as Training
    from splinefm.learn.tuning import Tuned as Tuned
    from splinefm.learn.tuning import tune as tune
    from splinefm.model.family import FFM as FFM
    from splinefm.model.family import FM as FM
    from splinefm.model.family import FmFM as FmFM
    from splinefm.model.family import FwFM as FwFM
    from splinefm.model.family import HigherOrderFM as HigherOrderFM
    from splinefm.model.family import LowRankFwFM as LowRankFwFM
    from splinefm.use import plots as plots
    from splinefm.use.approximate import ApproximateIndex as ApproximateIndex
    from splinefm.use.background import Background as Background
    from splinefm.use.curves import Bars as Bars
    from splinefm.use.curves import Curve as Curve
    from splinefm.use.decomposition import Decomposition as Decomposition
    from splinefm.use.decomposition import decompose as decompose
    from splinefm.use.dependence import individual_curves as individual_curves
    from splinefm.use.dependence import partial_dependence as partial_dependence
    from splinefm.use.discretize import DiscretizationReport as DiscretizationReport
    from splinefm.use.discretize import discretization_error as discretization_error
    from splinefm.use.discretize import discretize as discretize
    from splinefm.use.export_libffm import export_libffm as export_libffm
    from splinefm.use.export_libffm import export_libffm_rows as export_libffm_rows
    from splinefm.use.export_onnx import export_onnx as export_onnx
    from splinefm.use.export_onnx import onnx_inputs as onnx_inputs
    from splinefm.use.export_tables import export_tables as export_tables
    from splinefm.use.importance import Importance as Importance
    from splinefm.use.importance import importance as importance
    from splinefm.use.ranking import ItemIndex as ItemIndex
    from splinefm.use.ranking_error import ScoreError as ScoreError
    from splinefm.use.scorer import Scorer as Scorer
    from splinefm.use.shapley import ShapleyValues as ShapleyValues
    from splinefm.use.shapley import shapley_values as shapley_values
    from splinefm.use.surfaces import Surface as Surface
    from splinefm.use.views import segment as segment
    from splinefm.use.views import segments as segments

__version__ = "0.1.0.dev0"

_HOME = {
    "encode.auto": "choose_transform",
    "encode.bases": "Bins CustomBasis Fourier Polynomial Powers",
    "encode.categorical": "Categorical MultiValued",
    "encode.drift": "DriftWarning",
    "encode.encoder": "Encoder Statistics fit_encoder",
    "encode.inference": "infer_schema",
    "encode.numerical": "Numerical",
    "encode.schema": "Schema",
    "encode.slots": "Layout Slots",
    "encode.splines": "BSpline MultiResolution",
    "encode.starvation": "Starvation",
    "encode.table": "open_table",
    "encode.timestamps": "Timestamp",
    "encode.transforms": "ArcsinhSquare BestFitCDF CustomTransform Log MinMax Quantile",
    "learn.container": "ModelFileError",
    "learn.estimators": "SplineFMClassifier SplineFMRegressor",
    "learn.fitted": "Fitted",
    "learn.fitting": "fit_model",
    "learn.incremental": "Learner",
    "learn.losses": "Loss",
    "learn.metrics": "GroupCalibration auc calibration_by calibration_error logloss mae normalized_entropy r2 rmse",
    "learn.modelfile": "load",
    "learn.study": "StudySummary TrialSummary",
    "learn.training": "Diverged Epoch Training",
    "learn.tuning": "Tuned tune",
    "model.family": "FFM FM FmFM FwFM HigherOrderFM LowRankFwFM",
    "use.approximate": "ApproximateIndex",
    "use.background": "Background",
    "use.curves": "Bars Curve",
    "use.decomposition": "Decomposition decompose",
    "use.dependence": "individual_curves partial_dependence",
    "use.discretize": "DiscretizationReport discretization_error discretize",
    "use.export_libffm": "export_libffm export_libffm_rows",
    "use.export_onnx": "export_onnx onnx_inputs",
    "use.export_tables": "export_tables",
    "use.importance": "Importance importance",
    "use.ranking": "ItemIndex",
    "use.ranking_error": "ScoreError",
    "use.scorer": "Scorer",
    "use.shapley": "ShapleyValues shapley_values",
    "use.surfaces": "Surface",
    "use.views": "segment segments",
}
_MODULE = {name: f"splinefm.{module}" for module, names in _HOME.items() for name in names.split()}
__all__ = sorted(_MODULE)


def __getattr__(name: str) -> Any:
    # A module, not in __all__: `from splinefm import *` must work without matplotlib.
    if name == "plots":
        return import_module("splinefm.use.plots")
    if name not in _MODULE:
        raise AttributeError(f"module 'splinefm' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__", *(["plots"] if find_spec("matplotlib") else [])]
