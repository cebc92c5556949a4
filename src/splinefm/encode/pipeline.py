"""How kernels are compiled: by fewer passes than Numba's own. Importing this module loads Numba."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import NopythonTypeInference, PreLowerStripPhis
from numba.core.untyped_passes import (
    FixupArgs,
    GenericRewrites,
    InlineInlinables,
    IRProcessing,
    ReconstructSSA,
    TranslateByteCode,
)


class Short(CompilerBase):
    """What plain loops over numbers need.

    There are no closures, comprehensions, `with` statements, lists, expressions of whole arrays, nor loops over tuples
    of several types in kernels; to look for them takes a tenth of the time.
    """

    def define_pipelines(self) -> list[Any]:
        """The passes, in order."""
        passes = PassManager("short")
        passes.add_pass(TranslateByteCode, "analyze bytecode")
        passes.add_pass(FixupArgs, "fix up arguments")
        passes.add_pass(IRProcessing, "process")
        passes.add_pass(GenericRewrites, "constants as indices")
        passes.add_pass(InlineInlinables, "merge functions")
        passes.add_pass(ReconstructSSA, "one name per value")
        passes.add_pass(NopythonTypeInference, "infer types")
        passes.add_pass(PreLowerStripPhis, "remove phi nodes")
        passes.passes.extend(DefaultPassBuilder.define_nopython_lowering_pipeline(self.state).passes)
        passes.finalize()
        return [passes]
