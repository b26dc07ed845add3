"""CANCEL wherever a request may be; exactly one last word each time."""

import time

import pytest

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Plane, Start

SYNC = """
    import time
    from fornada_sdk import BadRequest
    def handle_request(request, context):
        keys = request.body.json
        print("began", keys.get("n"))
        if "steps" in keys:
            return stream(keys)
        end = time.monotonic() + keys.get("sleep_s", 0)
        while time.monotonic() < end and not context.cancelled:
            time.sleep(0.05)
        print("left", keys.get("n"), context.cancelled)
        return {"n": keys.get("n")}
    def stream(keys):
        step = 0
        try:
            for step in range(keys["steps"]):
                time.sleep(keys.get("step_s", 0))
                yield {"step": step, "pad": "x" * keys.get("pad", 0)}
        finally:
            print("closed at", step)
"""
ASYNC = """
    import asyncio
    def handle_request(request, context):
        keys = request.body.json
        return stream(keys) if "steps" in keys else plain(keys, context)
    async def plain(keys, context):
        print("began", keys.get("n"))
        try:
            await asyncio.sleep(keys.get("sleep_s", 0))
        finally:
            print("left", keys.get("n"), context.cancelled)
        return {"n": keys.get("n")}
    async def stream(keys):
        step = 0
        try:
            for step in range(keys["steps"]):
                await asyncio.sleep(keys.get("step_s", 0))
                yield {"step": step, "pad": "x" * keys.get("pad", 0)}
        finally:
            print("closed at", step)
    class Handle:
        async def __call__(self, request, context):
            result = plainly(request, context)
            return result if hasattr(result, "__anext__") else await result
    plainly = handle_request
    handle_request = Handle()
"""
WAYS = [
    pytest.param(SYNC, {}, id="inline"),
    pytest.param(SYNC, {"concurrency": 2}, id="threads"),
    pytest.param(ASYNC, {"concurrency": 2}, id="async"),
]
ways = pytest.mark.parametrize(("code", "serving"), WAYS)


def ends(plane: Plane, id: int) -> list[Kind]:
    return [m.kind for m in plane.messages if m.id == id and m.kind in (Kind.ANSWER, Kind.END)]


@ways
def test_a_running_request_hears_of_it_within_a_step(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"n": 1, "sleep_s": 30})
    runner.wait_line(lambda line: "began 1" in line)
    cancelled_at = time.monotonic()
    plane.cancel(id)
    end = plane.end_of(id, 2)
    assert end.kind is Kind.ANSWER and end.head["status"] == "cancelled"
    assert end.at - cancelled_at < bound(0.2)
    runner.wait_line(lambda line: "left 1 True" in line)
    assert plane.call({"n": 2}) == {"n": 2}
    assert ends(plane, id) == [Kind.ANSWER]


@ways
def test_a_queued_request_is_never_run(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    running = [plane.invoke({"n": n, "sleep_s": 1}) for n in range(serving.get("concurrency", 1))]
    runner.wait_line(lambda line: f"began {len(running) - 1}" in line)
    queued = plane.invoke({"n": 77})
    kept = plane.invoke({"n": 78})
    plane.cancel(queued)
    end = plane.end_of(queued, 0.5)
    assert end.head["status"] == "cancelled"
    assert plane.answer(kept) == {"n": 78}
    assert not any("began 77" in line for line in runner.lines)
    assert ends(plane, queued) == [Kind.ANSWER]


@ways
def test_a_stream_is_closed_within_two_steps(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"steps": 100, "step_s": 0.1})
    plane.wait_items(id, 3)
    plane.cancel(id)
    end = plane.end_of(id, 2)
    assert end.kind is Kind.END and end.json["status"] == "cancelled"
    runner.wait_line(lambda line: "closed at" in line)
    (closed,) = [record["line"] for record in runner.records if "closed at" in record["line"]]
    assert int(closed.split()[-1]) <= 5
    count = len(plane.items(id))
    assert plane.call({"n": 1}) == {"n": 1}
    assert len(plane.items(id)) == count


@ways
def test_a_stream_that_waits_for_credit_is_cancelled_at_once(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"steps": 1000, "pad": 100_000})
    plane.wait_items(id, 2)
    time.sleep(0.1)
    plane.cancel(id)
    assert plane.end_of(id, 0.5).json["status"] == "cancelled"
    assert plane.call({"n": 1}) == {"n": 1}


@ways
def test_cancelling_what_is_over_or_unknown_changes_nothing(start: Start, code: str, serving: dict):
    plane = start(code, serving=serving).attach()
    plane.ready()
    id = plane.invoke({"n": 1})
    assert plane.answer(id) == {"n": 1}
    plane.cancel(id)
    plane.cancel(12345)
    assert plane.call({"n": 2}) == {"n": 2}
    assert ends(plane, id) == [Kind.ANSWER]


def test_cancel_in_the_same_packet_as_its_request(start: Start):
    runner = start(SYNC)
    plane = runner.attach()
    plane.ready()
    id = plane.next_id()
    plane.send([*plane.invocation(id, {"n": 9}), plane.cancellation(id)])
    assert plane.end_of(id).head["status"] == "cancelled"
    assert not any("began 9" in line for line in runner.lines)


@ways
def test_many_cancels_at_all_times_lose_no_last_word(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    ids = []
    for round in range(60):
        id = plane.invoke({"n": round, "sleep_s": 0.003 * (round % 10)} if round % 2 else {"steps": 5, "step_s": 0.002})
        ids.append(id)
        time.sleep(0.0015 * (round % 7))
        plane.cancel(id)
    assert plane.call({"n": "last"}) == {"n": "last"}
    for id in ids:
        plane.end_of(id)
        assert len(ends(plane, id)) == 1


def test_a_generator_that_will_not_close_fails_alone(start: Start):
    runner = start("""
        import time
        def handle_request(request, context):
            while True:
                try:
                    time.sleep(0.02)
                    yield {}
                except GeneratorExit:
                    yield {"still": "here"}
    """)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke()
    plane.wait_items(id, 2)
    plane.cancel(id)
    assert plane.end_of(id).json["status"] == "cancelled"
    runner.wait_line(lambda line: "generator ignored GeneratorExit" in line)
    other = plane.invoke()
    plane.wait_items(other, 1)
