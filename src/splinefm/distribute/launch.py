"""Launch: start the ranks of one machine under torchrun, and start them again if one dies."""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

# How long ranks may write their last checkpoint after SIGTERM before they are killed.
SHUTDOWN_SECONDS = 300


def launch(arguments: Sequence[str], ranks: int, max_restarts: int = 0) -> int:
    """Run `python -m splinefm.distribute` with some arguments on every rank; return the exit code.

    It is what `torchrun --standalone --nproc-per-node RANKS --max-restarts N -m splinefm.distribute` does, without the
    report that torchrun adds to the message of a rank that failed.
    """
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=max_restarts,
        monitor_interval=0.2,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    command = [sys.executable, "-m", "splinefm.distribute", *arguments]
    try:
        elastic_launch(config, command[0])(*command[1:])
    except SignalException as stop:  # the ranks got the signal too, and have said what they leave
        return 128 + int(stop.sigval)
    except ChildFailedError as error:
        return max((failure.exitcode for failure in error.failures.values()), default=1) if error.failures else 1
    return 0
