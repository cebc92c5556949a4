"""Devices and threads of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from splinefm._wording import setting


def find_device(name: str | None) -> torch.device:
    """Return a device that computes; by default CUDA if there is one, else the CPU.

    Examples
    --------
    >>> find_device("cpu")
    device(type='cpu')
    >>> find_device("meta")
    Traceback (most recent call last):
    ValueError: device 'meta' cannot be used here: ...; use one of cpu, ...
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(2, device=device).sum().item()
    except (AssertionError, NotImplementedError, RuntimeError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(
            f"{setting('device')} {name!r} cannot be used here: {reason}; use one of {', '.join(_devices())}, or "
            "install a build of PyTorch for that device"
        ) from error
    return device


def _devices() -> list[str]:
    """Return the names of the devices of this machine."""
    found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


@contextmanager
def with_threads(threads: int) -> Iterator[None]:
    """Let torch compute with this number of threads on the CPU: it is a setting of the process."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
