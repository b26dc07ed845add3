"""Control planes that come, die and are replaced, while the model goes on."""

import time

import pytest

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Start

SYNC = """
    import time
    def handle_request(request, context):
        keys = request.body.json
        print("began", keys)
        if "steps" in keys:
            return ({"step": i} for i in range(keys["steps"]) if not time.sleep(keys["step_s"]))
        time.sleep(keys.get("sleep_s", 0))
        return {"n": keys.get("n"), "pad": "x" * keys.get("pad", 0)}
"""
ASYNC = """
    import asyncio
    def stream(keys):
        async def steps():
            for i in range(keys["steps"]):
                await asyncio.sleep(keys["step_s"])
                yield {"step": i}
        return steps()
    async def handle_request(request, context):
        keys = request.body.json
        print("began", keys)
        if "steps" in keys:
            return stream(keys)
        await asyncio.sleep(keys.get("sleep_s", 0))
        return {"n": keys.get("n"), "pad": "x" * keys.get("pad", 0)}
"""
WAYS = [
    pytest.param(SYNC, {}, id="inline"),
    pytest.param(SYNC, {"concurrency": 3}, id="threads"),
    pytest.param(ASYNC, {"concurrency": 3}, id="async"),
]
ways = pytest.mark.parametrize(("code", "serving"), WAYS)


@ways
def test_a_successor_attaches_in_the_middle_of_a_long_call(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    old = runner.attach()
    old.ready()
    id = old.invoke({"n": 1, "sleep_s": 2})
    runner.wait_line(lambda line: "began" in line)
    old.close()
    began = time.monotonic()
    new = runner.attach()
    hello = new.kind(Kind.HELLO).json
    assert time.monotonic() - began < bound(0.5)
    assert hello["state"] == "ready" and hello["in_flight"] == [id] and hello["pid"] == runner.pid
    assert new.answer(id, 4)["n"] == 1
    assert new.call({"n": 2})["n"] == 2


@ways
def test_answers_that_nobody_acknowledged_come_again_until_somebody_does(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    first = runner.attach(acknowledge=False)
    first.ready()
    ids = [first.invoke({"n": n}) for n in range(5)]
    for id in ids:
        first.end_of(id)
    first.ack(ids[1], ids[3])
    first.call({"n": "so that the ACK was read"})
    first.close()
    second = runner.attach(acknowledge=False)
    expected = [ids[0], ids[2], ids[4]]
    assert set(expected) <= set(second.kind(Kind.HELLO).json["in_flight"])
    assert [second.answer(id)["n"] for id in expected] == [0, 2, 4]
    second.close()
    third = runner.attach()
    assert [third.answer(id)["n"] for id in expected] == [0, 2, 4]
    assert third.call({"n": 9})["n"] == 9
    third.close()
    assert runner.attach().kind(Kind.HELLO).json["in_flight"] == []


@ways
def test_streams_die_with_their_control_plane_and_other_requests_do_not(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    old = runner.attach()
    old.ready()
    stream = old.invoke({"steps": 1000, "step_s": 0.05})
    old.wait_items(stream, 2)
    plain = old.invoke({"n": 7, "sleep_s": 0.2})
    time.sleep(0.1)
    old.close()
    new = runner.attach()
    assert set(new.kind(Kind.HELLO).json["in_flight"]) == {stream, plain}
    end = new.end_of(stream, 2)
    assert end.kind is Kind.END and end.json["status"] == "cancelled"
    assert new.answer(plain)["n"] == 7
    assert not new.items(stream)


@ways
def test_two_control_planes_at_once_get_each_its_own(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    old = runner.attach()
    old.ready()
    slow = old.invoke({"n": 1, "sleep_s": 0.4})
    new = runner.attach()
    assert new.kind(Kind.HELLO).json["in_flight"] == []
    other = new.invoke({"n": 2})
    assert old.answer(slow)["n"] == 1
    assert new.answer(other)["n"] == 2
    assert not [m for m in old.messages if m.id == other] and not [m for m in new.messages if m.id == slow]
    assert old.call({"n": 3})["n"] == 3


def test_what_the_old_one_leaves_goes_to_the_one_that_is_still_attached(start: Start):
    runner = start(SYNC)
    old, new = runner.attach(), runner.attach()
    new.ready()
    id = old.invoke({"n": 1, "sleep_s": 0.5})
    runner.wait_line(lambda line: "began" in line)
    old.close()
    assert new.answer(id)["n"] == 1


def test_a_control_plane_that_dies_with_unread_answers_is_replaced_without_loss(start: Start):
    runner = start(SYNC)
    old = runner.attach(reading=False)
    ids = [old.invoke({"n": n, "pad": 30_000}) for n in range(40)]
    runner.wait_line(lambda line: "'n': 5" in line)
    old.close()
    new = runner.attach()
    hello = new.kind(Kind.HELLO).json
    for id in hello["in_flight"]:
        new.end_of(id)
    assert new.call({"n": "fine"})["n"] == "fine"
    assert set(hello["in_flight"]) <= set(ids)


def test_a_reader_that_stops_reading_holds_the_runner_within_bounds(start: Start):
    runner = start(SYNC)
    plane = runner.attach(reading=False)
    for n in range(60):
        plane.invoke({"n": n, "pad": 1_000_000})
    runner.wait_line(lambda line: "'n': 3" in line)
    time.sleep(0.5)
    began = sum("began" in line for line in runner.lines)
    assert began < 20, "it goes on although nobody takes the answers"
    plane.start_reading()
    plane.wait(lambda m: m.kind is Kind.ANSWER and m.head.get("status", "ok") == "ok" and m.answer["n"] == 59, 20)


def test_kept_answers_are_bounded_and_the_oldest_go(start: Start):
    runner = start(SYNC)
    plane = runner.attach(acknowledge=False)
    plane.ready()
    ids = []
    for n in range(20):
        ids.append(plane.invoke({"n": n, "pad": 5_000_000}))
        plane.end_of(ids[-1])
    runner.wait_line(lambda line: "forgot the answer" in line)
    plane.close()
    kept = runner.attach().kind(Kind.HELLO).json["in_flight"]
    assert ids[-1] in kept and ids[0] not in kept and len(kept) <= 13


def test_nothing_wakes_an_idle_runner(start: Start):
    runner = start(SYNC)
    plane = runner.attach()
    plane.ready()
    plane.call({"n": 1, "sleep_s": 0.05})
    time.sleep(0.3)

    def switches() -> int:
        total = 0
        for task in (f"/proc/{runner.pid}/task/{tid}" for tid in __import__("os").listdir(f"/proc/{runner.pid}/task")):
            with open(f"{task}/status") as file:
                total += sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
        return total

    before = switches()
    time.sleep(1)
    assert switches() == before
