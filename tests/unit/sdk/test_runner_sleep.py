"""SLEEP and WAKE, in each way in which a runner runs its model."""

import time
from typing import Any

import pytest

from fornada_sdk.wire.framing import frame
from fornada_sdk.wire.messages import Kind, encode
from tests.bounds import bound
from tests.unit.sdk.driver import Message, Plane, Runner, Start

SYNC = """
    import threading
    import fornada_sdk
    class Model(fornada_sdk.Model):
        def load(self, context):
            self.weights, self.awake = [1, 2, 3], 0
            self.fails = context.settings.get("fails", "")
            context.device.allocate(1000)
        def run(self, request, context):
            return {"sum": sum(self.weights), "woken": self.awake, "n": request.body.json.get("n")}
        def sleep(self, context):
            if self.fails == "sleep":
                raise RuntimeError("no bed")
            self.kept, self.weights = list(self.weights), None
        def wake(self, context):
            if self.fails == "wake":
                raise RuntimeError("no coffee")
            self.weights, self.awake = self.kept, self.awake + 1
"""
ASYNC = SYNC.replace("        def run(", "        async def run(").replace("        def sleep(", "        async def sleep(")
NEITHER = """
    def handle_request(request, context):
        return {}
"""
FAKE = {"device": {"id": "cuda:0", "kind": "fake", "memory_bytes": 4000}}
WAYS = [
    pytest.param(SYNC, {}, id="inline"),
    pytest.param(SYNC, {"concurrency": 3}, id="threads"),
    pytest.param(SYNC, {"max_batch": 1, "concurrency": 2}, id="two threads"),
    pytest.param(ASYNC, {"concurrency": 3}, id="async"),
]
ways = pytest.mark.parametrize(("code", "serving"), WAYS)


def begun(start: Start, code: str, serving: dict, **settings: str) -> tuple[Runner, Plane]:
    """Ready, with what it wants of its device."""
    runner = start(code, serving=serving, settings=settings, **FAKE)
    plane = runner.attach()
    plane.booked(plane.kind(Kind.BOOK).id, ok=True)
    assert plane.ready()["sleeps"] is True
    return runner, plane


def tell(plane: Plane, kind: Kind) -> None:
    plane.send([frame(kind, 0, encode({}))])


def fall_asleep(plane: Plane) -> None:
    tell(plane, Kind.SLEEP)
    plane.kind(Kind.SLEPT)


def bookings(plane: Plane) -> list[int]:
    return [message.id for message in plane.messages if message.kind is Kind.BOOK]


def come(plane: Plane, kind: Kind, count: int) -> dict[str, Any]:
    """The fields of the last of so many messages."""

    def all_there(message: Message) -> bool:
        return len([each for each in plane.messages if each.kind is kind]) >= count

    plane.wait(all_there)
    found: dict[str, Any] = [each for each in plane.messages if each.kind is kind][count - 1].json
    return found


@ways
def test_it_gives_its_memory_back_and_answers_as_before_when_it_has_it_again(start: Start, code: str, serving: dict):
    _, plane = begun(start, code, serving)
    before = plane.call({"n": 1})
    for turn in (1, 2):
        tell(plane, Kind.SLEEP)
        slept = come(plane, Kind.SLEPT, turn)
        assert slept["sleep_s"] >= 0 and "failed" not in slept
        tell(plane, Kind.WAKE)
        come(plane, Kind.BOOK, 1 + turn)
        assert sum(m.kind is Kind.WOKEN for m in plane.messages) == turn - 1, "not before the device has said yes"
        plane.booked(bookings(plane)[-1], ok=True)
        come(plane, Kind.WOKEN, turn)
        assert plane.call({"n": 1}) == {**before, "woken": turn}


@ways
@pytest.mark.parametrize("step", ["sleep", "wake"])
def test_what_fails_on_the_way_is_told_and_is_the_end(start: Start, code: str, serving: dict, step: str):
    runner, plane = begun(start, code, serving, fails=step)
    tell(plane, Kind.SLEEP)
    if step == "sleep":
        assert "no bed" in plane.kind(Kind.SLEPT).json["failed"]
    else:
        plane.kind(Kind.SLEPT)
        tell(plane, Kind.WAKE)
        assert "no coffee" in plane.kind(Kind.WOKEN).json["failed"]
    assert runner.exit_code() is not None


@ways
def test_a_device_that_has_no_room_any_more_is_the_end_of_a_waking(start: Start, code: str, serving: dict):
    runner, plane = begun(start, code, serving)
    fall_asleep(plane)
    tell(plane, Kind.WAKE)
    come(plane, Kind.BOOK, 2)
    plane.booked(bookings(plane)[-1], ok=False, message="cuda:0 is full")
    assert "cuda:0 is full" in plane.kind(Kind.WOKEN).json["failed"]
    assert runner.exit_code() is not None


@ways
def test_a_sleeper_ends_when_it_is_told_to(start: Start, code: str, serving: dict):
    runner, plane = begun(start, code, serving)
    fall_asleep(plane)
    began = time.monotonic()
    plane.stop(5)
    assert runner.exit_code() == 0
    assert time.monotonic() - began < bound(5)


@ways
def test_a_successor_is_told_that_it_sleeps_and_can_wake_it(start: Start, code: str, serving: dict):
    runner, plane = begun(start, code, serving)
    fall_asleep(plane)
    plane.close()
    successor = runner.attach()
    assert successor.kind(Kind.HELLO).json["state"] == "asleep"
    tell(successor, Kind.WAKE)
    successor.booked(successor.kind(Kind.BOOK).id, ok=True)
    successor.kind(Kind.WOKEN)
    assert successor.call({"n": 2})["n"] == 2


def test_who_has_no_sleep_says_so(start: Start):
    plane = start(NEITHER).attach()
    assert not plane.ready().get("sleeps")
