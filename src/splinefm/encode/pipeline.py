"""How kernels are compiled: by fewer passes than Numba's own. Importing this module loads Numba."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import gc
from typing import Any

from numba import version_info
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import NativeLowering, NopythonTypeInference, PreLowerStripPhis
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

    def compile_extra(self, func: Any) -> Any:
        """Compile, and look for garbage afterwards: among the many objects in use that takes a sixth of the time."""
        collects = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)
        finally:
            if collects:
                gc.enable()

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


class _PartOfLibrary(JITCodeLibrary):
    """Code that is optimized and translated to machine code as part of its callers, and not for itself."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(NativeLowering):
    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        """Lower, and tell compiled callers where the code is; nobody else can call it."""
        state.library = _PartOfLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        entry = [].clear  # Numba knows code by a built-in function of its own; this one takes no arguments
        state.targetctx.insert_user_function(entry, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=entry)
        return True


class _Part(Short):
    def define_pipelines(self) -> list[Any]:
        """The passes, in order."""
        (passes,) = super().define_pipelines()
        passes.passes = [(_LowerPart if kind is NativeLowering else kind, text) for kind, text in passes.passes]
        return [passes]


# For functions that become part of their callers. It knows private parts of Numba, hence is for the version that the
# tests run with; with any other the first fit takes a second longer.
Part = _Part if version_info.short == (0, 68) else Short
