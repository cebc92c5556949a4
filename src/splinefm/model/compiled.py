"""Kernels that are kept on disk once they are compiled. Importing this module loads Numba."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit


def compiled(sources: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function and keep the result, in a file that is named after all sources that it is made of.

    Numba looks at the file of the function alone, and reads what it kept before it looks; a kernel of an older version
    of this package, or one that is made of other files that have changed, must not be found.

    Parameters
    ----------
    sources : str
        Files of the package, such as "model/kernels model/vectors".
    **options
        For `njit`.
    """
    package = Path(__file__).parents[1]
    read = b"".join((package / f"{name}.py").read_bytes() for name in sources.split())
    digest = hashlib.sha256(read).hexdigest()[:12]

    def decorate(function: Callable[..., Any]) -> Any:
        function.__qualname__ = f"{function.__name__}_{digest}"
        return njit(cache=True, **options)(function)

    return decorate
