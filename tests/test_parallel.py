"""Work in other threads: prefetching and cancellation."""

import threading
import time

import pytest

from splinefm._parallel import Cancellation, Cancelled, prefetch


def test_the_next_item_is_made_in_the_background():
    made, main = [], threading.get_ident()

    def items():
        for number in range(3):
            assert threading.get_ident() != main
            made.append(number)
            yield number

    reader = prefetch(items())
    assert next(reader) == 0
    deadline = time.monotonic() + 5
    while len(made) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert made == [0, 1]  # one ahead, and no more
    assert list(reader) == [1, 2]


def test_errors_of_the_background_come_through():
    def items():
        yield 1
        raise ValueError("no more")

    reader = prefetch(items())
    assert next(reader) == 1
    with pytest.raises(ValueError, match="no more"):
        next(reader)


def test_an_abandoned_reader_closes_its_source():
    closed = []

    def items():
        try:
            yield from range(100)
        finally:
            closed.append(True)

    reader = prefetch(items())
    next(reader)
    reader.close()
    assert closed == [True]


@pytest.mark.parametrize("depth", [1, 3])
def test_not_more_items_are_made_than_asked_for(depth):
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    reader = prefetch(items(), depth)
    for number in range(20):
        assert next(reader) == number
        assert len(made) <= number + 1 + depth
    assert next(reader, "the end") == "the end"


def test_nothing_to_prefetch():
    assert list(prefetch([])) == [] and list(prefetch([None, 0], depth=5)) == [None, 0]


def test_work_goes_on_until_it_is_cancelled():
    cancellation = Cancellation()
    cancellation.check()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        cancellation.check()


def test_work_ends_at_its_deadline():
    Cancellation(deadline=time.monotonic() + 60.0).check()
    with pytest.raises(Cancelled):
        Cancellation(deadline=time.monotonic()).check()
