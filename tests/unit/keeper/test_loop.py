"""What a callback raises costs what it was about, and nobody else anything, unless it comes again and again."""

import os
import signal
from collections.abc import Iterator

import pytest

from fornada.keeper import loop as module
from fornada.keeper.loop import FAULTS_MOST, Loop
from fornada.keeper.say import say_fault


class Closed(Loop):
    """One that ends before its process does: it had taken the wakeup descriptor and a handler."""

    def close(self) -> None:
        self._epoll.close()
        self._bell.close()
        self._wakeup.close()


@pytest.fixture
def told() -> list[Exception]:
    return []


@pytest.fixture
def loop(told: list[Exception]) -> Iterator[Loop]:
    handler, wakeup = signal.getsignal(signal.SIGUSR1), signal.set_wakeup_fd(-1)
    loop = Closed(failed=told.append)
    yield loop
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGUSR1, handler)
    loop.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def fail() -> None:
    raise LookupError("a bug")


def test_a_fault_is_told_and_the_rest_goes_on(loop: Loop, told: list[Exception], pipe: tuple[int, int]):
    ready, write = pipe
    os.write(write, b"x")

    def read() -> None:
        os.read(ready, 1)
        fail()

    loop.watch(ready, read)
    loop.later(0, fail)
    loop.later(0.01, loop.stop)
    loop.run()
    assert [str(error) for error in told] == ["a bug"] * 2


def test_what_a_signal_called_is_called_again(loop: Loop, told: list[Exception]):
    """Each time one thing less is left, as dead children are: no other signal may come for the rest."""
    left = [1, 2, 3]

    def take() -> None:
        while left:
            if left.pop() > 1:
                fail()
        loop.stop()

    loop.on_signal(signal.SIGUSR1, take)
    os.kill(os.getpid(), signal.SIGUSR1)
    loop.run()
    assert not left and len(told) == 2


def test_one_fault_after_the_other_is_raised(loop: Loop, told: list[Exception], pipe: tuple[int, int]):
    ready, write = pipe
    os.write(write, b"x")
    loop.watch(ready, fail)  # nobody reads, so that it is called again at once
    with pytest.raises(LookupError):
        loop.run()
    assert len(told) == FAULTS_MOST


def test_faults_now_and_then_are_not_one_after_the_other(loop: Loop, told: list[Exception], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "FAULTS_S", 0.0)
    for _ in range(FAULTS_MOST + 5):
        loop.later(0, fail)
    loop.later(0.01, loop.stop)
    loop.run()
    assert len(told) == FAULTS_MOST + 5


def test_a_fault_is_one_line_with_the_calls_that_led_to_it(loop: Loop, told: list[Exception], capfd: pytest.CaptureFixture[str]):
    loop.later(0, fail)
    loop.later(0.01, loop.stop)
    loop.run()
    say_fault(told[0])
    (line,) = capfd.readouterr().err.splitlines()
    assert "LookupError('a bug') in test_loop.py:" in line and "fail < loop.py:" in line
