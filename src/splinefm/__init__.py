"""Factorization machines for tables with numerical columns: splines instead of bins.

Public names load when they are first used, so that importing the package stays light.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from splinefm import metrics as metrics
    from splinefm import plots as plots
    from splinefm.encode.bases import Bins as Bins
    from splinefm.encode.bases import BSpline as BSpline
    from splinefm.encode.bases import CustomBasis as CustomBasis
    from splinefm.encode.bases import Fourier as Fourier
    from splinefm.encode.bases import MultiResolution as MultiResolution
    from splinefm.encode.bases import Polynomial as Polynomial
    from splinefm.encode.bases import Powers as Powers
    from splinefm.encode.drift import DriftWarning as DriftWarning
    from splinefm.encode.encoder import Encoder as Encoder
    from splinefm.encode.encoder import EncoderStatistics as EncoderStatistics
    from splinefm.encode.encoder import fit_encoder as fit_encoder
    from splinefm.encode.fields.categorical import Categorical as Categorical
    from splinefm.encode.fields.categorical import MultiValued as MultiValued
    from splinefm.encode.fields.cross import Cross as Cross
    from splinefm.encode.fields.numerical import Numerical as Numerical
    from splinefm.encode.fields.numerical import Timestamp as Timestamp
    from splinefm.encode.inference import infer_schema as infer_schema
    from splinefm.encode.schema import Schema as Schema
    from splinefm.encode.tables.open import open_table as open_table
    from splinefm.encode.transforms.bestfit import BestFitCDF as BestFitCDF
    from splinefm.encode.transforms.scaling import ArcsinhSquare as ArcsinhSquare
    from splinefm.encode.transforms.scaling import Log as Log
    from splinefm.encode.transforms.scaling import MinMax as MinMax
    from splinefm.encode.transforms.scaling import Quantile as Quantile
    from splinefm.encode.transforms.transform import CustomTransform as CustomTransform
    from splinefm.export.discretize import discretization_error as discretization_error
    from splinefm.export.discretize import discretize as discretize
    from splinefm.export.libffm import export_libffm as export_libffm
    from splinefm.export.libffm import export_libffm_rows as export_libffm_rows
    from splinefm.export.modules import from_torch as from_torch
    from splinefm.export.modules import to_torch as to_torch
    from splinefm.export.onnx.inputs import onnx_inputs as onnx_inputs
    from splinefm.export.onnx.model import export_onnx as export_onnx
    from splinefm.export.scorer import export_scorer as export_scorer
    from splinefm.export.tables import export_tables as export_tables
    from splinefm.fit.estimators import SplineFMClassifier as SplineFMClassifier
    from splinefm.fit.estimators import SplineFMRegressor as SplineFMRegressor
    from splinefm.fit.fitting import fit_model as fit_model
    from splinefm.inspect.dependence import ice_curves as ice_curves
    from splinefm.inspect.dependence import partial_dependence as partial_dependence
    from splinefm.inspect.importance import decompose as decompose
    from splinefm.inspect.importance import importance as importance
    from splinefm.inspect.segment import segments as segments
    from splinefm.inspect.shapley import Background as Background
    from splinefm.inspect.shapley import shapley_values as shapley_values
    from splinefm.model.family.field_aware import FFM as FFM
    from splinefm.model.family.field_matrixed import FmFM as FmFM
    from splinefm.model.family.field_weighted import FwFM as FwFM
    from splinefm.model.family.field_weighted import LowRankFwFM as LowRankFwFM
    from splinefm.model.family.fm import FM as FM
    from splinefm.model.family.higher_order import HigherOrderFM as HigherOrderFM
    from splinefm.rank.index import ItemIndex as ItemIndex
    from splinefm.store.container import ModelFileError as ModelFileError
    from splinefm.store.model_file import load as load
    from splinefm.store.sharded_model import ShardedModel as ShardedModel
    from splinefm.train.fitted import Fitted as Fitted
    from splinefm.train.loop import Diverged as Diverged
    from splinefm.train.losses import Loss as Loss
    from splinefm.train.results import Epoch as Epoch
    from splinefm.train.settings import Training as Training
    from splinefm.tuning.tune import tune as tune
    from splinefm.update.compare import compare as compare
    from splinefm.update.files import update_model as update_model
    from splinefm.update.guard import Guard as Guard
    from splinefm.update.guard import UpdateRefused as UpdateRefused
    from splinefm.update.learner import Learner as Learner

__version__ = "0.1.0"

_HOME = {
    "encode.bases": "BSpline Bins CustomBasis Fourier MultiResolution Polynomial Powers",
    "encode.drift": "DriftWarning",
    "encode.encoder": "Encoder EncoderStatistics fit_encoder",
    "encode.fields.categorical": "Categorical MultiValued",
    "encode.fields.cross": "Cross",
    "encode.fields.numerical": "Numerical Timestamp",
    "encode.inference": "infer_schema",
    "encode.schema": "Schema",
    "encode.tables.open": "open_table",
    "encode.transforms.bestfit": "BestFitCDF",
    "encode.transforms.scaling": "ArcsinhSquare Log MinMax Quantile",
    "encode.transforms.transform": "CustomTransform",
    "export.discretize": "discretization_error discretize",
    "export.libffm": "export_libffm export_libffm_rows",
    "export.modules": "from_torch to_torch",
    "export.onnx.inputs": "onnx_inputs",
    "export.onnx.model": "export_onnx",
    "export.scorer": "export_scorer",
    "export.tables": "export_tables",
    "fit.estimators": "SplineFMClassifier SplineFMRegressor",
    "fit.fitting": "fit_model",
    "inspect.dependence": "ice_curves partial_dependence",
    "inspect.importance": "decompose importance",
    "inspect.segment": "segments",
    "inspect.shapley": "Background shapley_values",
    "model.family.field_aware": "FFM",
    "model.family.fm": "FM",
    "model.family.field_matrixed": "FmFM",
    "model.family.field_weighted": "FwFM LowRankFwFM",
    "model.family.higher_order": "HigherOrderFM",
    "rank.index": "ItemIndex",
    "store.container": "ModelFileError",
    "store.model_file": "load",
    "store.sharded_model": "ShardedModel",
    "train.fitted": "Fitted",
    "train.loop": "Diverged",
    "train.losses": "Loss",
    "train.results": "Epoch",
    "train.settings": "Training",
    "tuning.tune": "tune",
    "update.compare": "compare",
    "update.files": "update_model",
    "update.guard": "Guard UpdateRefused",
    "update.learner": "Learner",
}
_MODULE = {name: f"splinefm.{module}" for module, names in _HOME.items() for name in names.split()}
__all__ = sorted(_MODULE)


# Modules that are loaded on first use; not in __all__, since `from splinefm import *` must work without matplotlib.
_NAMESPACES = ("metrics", "plots")


def __getattr__(name: str) -> Any:
    if name in _NAMESPACES:
        return import_module(f"splinefm.{name}")
    if name not in _MODULE:
        raise AttributeError(f"module 'splinefm' has no attribute {name!r}")
    value = getattr(import_module(_MODULE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__", "metrics", *(["plots"] if find_spec("matplotlib") else [])]
