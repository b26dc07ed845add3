"""Waiting with a bound, and doing things at the same moment. A wait that fails says what it waited for."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from tests.bounds import bound

T = TypeVar("T")


def until(check: Callable[[], T], *, within_s: float, what: str, every_s: float = 0.02) -> T:
    """The first true answer of `check`. Raises TimeoutError, naming `what` and the last answer, after bound(within_s)."""
    limit = time.monotonic() + bound(within_s)
    while True:
        answer = check()
        if answer:
            return answer
        if time.monotonic() > limit:
            raise TimeoutError(f"after {bound(within_s):g} s still not so: {what} (last answer: {answer!r})")
        time.sleep(every_s)


def stays(check: Callable[[], object], *, for_s: float, what: str, every_s: float = 0.05) -> None:
    """Asserts that `check` stays true for `for_s` seconds."""
    limit = time.monotonic() + for_s
    while time.monotonic() < limit:
        assert check(), f"no longer so: {what}"
        time.sleep(every_s)


def at_once(calls: Sequence[Callable[[], T]], *, within_s: float = 30) -> list[T]:
    """What `calls` return, in their order, all started at the same moment. The first exception among them is raised."""
    barrier = threading.Barrier(len(calls))

    def started(call: Callable[[], T]) -> T:
        barrier.wait(bound(10))
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(started, call) for call in calls]
        return [future.result(timeout=bound(within_s)) for future in futures]


class Background:
    """Threads for calls that run beside the test; leaving the `with` block waits for all of them."""

    def __init__(self, threads: int = 32) -> None:
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> "Background":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._pool.shutdown(wait=True)

    def start(self, call: Callable[[], T]) -> "Future[T]":
        """Runs `call` in a thread now."""
        return self._pool.submit(call)
