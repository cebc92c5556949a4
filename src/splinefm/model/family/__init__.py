"""The factorization machine family: parameters, initial values, and the formula of each model in NumPy.

All models score a row as (paper, equation of the field reductions)

    score = bias + Σ linear + Σ_{u<v} p_u' M_{f(u) f(v)} p_v,    p_u = Σ_{windows of u} Σ_j weight_j V[start + j]

and differ in the matrices M between fields: `model.between`. HigherOrderFM adds products of more than two vectors. The
formulas here are for reading and testing; the engines compute the same numbers fast.
"""

from __future__ import annotations

from splinefm.model.family.contract import Model as Model
from splinefm.model.family.contract import Params as Params
from splinefm.model.family.contract import through as through
from splinefm.model.family.field_aware import FFM as FFM
from splinefm.model.family.field_matrixed import FmFM as FmFM
from splinefm.model.family.field_weighted import FwFM as FwFM
from splinefm.model.family.field_weighted import LowRankFwFM as LowRankFwFM
from splinefm.model.family.fm import FM as FM
from splinefm.model.family.formula import formula_scores as formula_scores
from splinefm.model.family.formula import unit_sums as unit_sums
from splinefm.model.family.higher_order import HigherOrderFM as HigherOrderFM
from splinefm.model.family.parameters import by_output as by_output
from splinefm.model.family.parameters import check_model_memory as check_model_memory
from splinefm.model.family.parameters import check_trainable as check_trainable
from splinefm.model.family.parameters import count_outputs as count_outputs
from splinefm.model.family.parameters import each_output as each_output
from splinefm.model.family.parameters import init_params as init_params
from splinefm.model.family.parameters import mean_model as mean_model
from splinefm.model.family.parameters import member_model as member_model
from splinefm.model.family.parameters import pace_of as pace_of
from splinefm.model.family.parameters import param_shapes as param_shapes
from splinefm.model.family.parameters import params_of as params_of

AnyModel = FM | FwFM | LowRankFwFM | FmFM | FFM | HigherOrderFM
MODELS = (FM, FwFM, LowRankFwFM, FmFM, FFM, HigherOrderFM)
