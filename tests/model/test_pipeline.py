"""Numba's compiler with fewer passes."""

import gc
import subprocess
import sys

import pytest
from numba import njit
from numba.core.errors import TypingError

from splinefm.encode.pipeline import Short


def test_private_parts_of_numba_are_used_with_a_known_version_alone():
    code = (
        "import numba; numba.version_info = numba.version_info._replace(short=(0, 99));"
        "from splinefm.encode import pipeline; assert pipeline.Part is pipeline.Short"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("collects", [True, False])
def test_compilation_leaves_the_collector_of_garbage_as_it_was(collects):
    during = []

    def known(x):
        return x + 1

    def unknown(x):
        return x.no_such_thing

    class Watched(Short):
        def define_pipelines(self):
            during.append(gc.isenabled())
            return super().define_pipelines()

    (gc.enable if collects else gc.disable)()
    try:
        assert njit(pipeline_class=Watched)(known)(2) == 3
        assert gc.isenabled() == collects
        with pytest.raises(TypingError):
            njit(pipeline_class=Watched)(unknown)(2)
        assert gc.isenabled() == collects and during and not any(during)
    finally:
        gc.enable()
