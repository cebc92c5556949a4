"""Cached properties: computed once, and never locked, so that a fork cannot wait for another thread."""

import os
import threading

import pytest

from splinefm._cached import cached_property


class Counted:
    def __init__(self):
        self.n_calls = 0

    @cached_property
    def value(self):
        """A value."""
        self.n_calls += 1
        return object()


def test_a_value_is_computed_once_and_kept_by_the_object():
    counted = Counted()
    assert counted.value is counted.value and counted.n_calls == 1
    assert vars(counted)["value"] is counted.value
    assert Counted.value.__doc__ == "A value."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_process_that_is_forked_while_a_thread_computes_can_compute_too():
    begun, done = threading.Event(), threading.Event()

    class Slow:
        @cached_property
        def value(self):
            if threading.current_thread() is not threading.main_thread():
                begun.set()
                done.wait(30)
            return 7

    thread = threading.Thread(target=lambda: Slow().value)
    thread.start()
    begun.wait(30)
    child = os.fork()
    if child == 0:  # with the lock of Python 3.11, no thread would ever release it here
        timer = threading.Timer(10, lambda: os._exit(1))
        timer.start()
        os._exit(0 if Slow().value == 7 else 2)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
