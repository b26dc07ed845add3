"""Streams: items as they are made, as fast as the reader takes them, and an end that says how it went."""

import itertools
import json
import os
import time

import pytest

from fornada_sdk.wire.messages import STREAM_WINDOW, Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Start

SYNC = """
    import time
    from fornada_sdk import BadRequest
    def handle_request(request, context):
        keys = request.body.json
        if keys.get("bad"):
            raise BadRequest("no")
        for i in range(keys["steps"]):
            if i == keys.get("fail_at"):
                raise ValueError("broke")
            time.sleep(keys.get("step_s", 0))
            yield {"step": i, "pad": "x" * keys.get("pad", 0)}
"""
ASYNC = SYNC.replace("def handle", "async def handle").replace("import time", "import asyncio").replace("time.sleep", "await asyncio.sleep")
WAYS = [
    pytest.param(SYNC, {}, id="inline"),
    pytest.param(SYNC, {"concurrency": 2}, id="threads"),
    pytest.param(ASYNC, {"concurrency": 2}, id="async"),
]
ways = pytest.mark.parametrize(("code", "serving"), WAYS)


@ways
def test_a_stream_begins_has_items_in_order_and_ends(start: Start, code: str, serving: dict):
    plane = start(code, serving=serving).attach()
    assert plane.ready()["streaming"] is True
    id = plane.invoke({"steps": 5})
    end = plane.end_of(id)
    assert end.kind is Kind.END and end.json["status"] == "ok"
    assert [m.kind for m in plane.messages if m.id == id] == [Kind.STREAM, *[Kind.ITEM] * 5, Kind.END]
    assert [item.part for item in plane.items(id)] == [0, 1, 2, 3, 4]
    assert [json.loads(item.payload)["step"] for item in plane.items(id)] == [0, 1, 2, 3, 4]


@ways
def test_items_leave_as_they_are_made(start: Start, code: str, serving: dict):
    plane = start(code, serving=serving).attach()
    plane.ready()
    id = plane.invoke({"steps": 4, "step_s": 0.15})
    plane.end_of(id)
    times = [item.at for item in plane.items(id)]
    assert all(later - earlier > 0.1 for earlier, later in itertools.pairwise(times))


@ways
def test_an_error_before_the_first_item_is_an_ordinary_answer(start: Start, code: str, serving: dict):
    plane = start(code, serving=serving).attach()
    plane.ready()
    bad = plane.end_of(plane.invoke({"steps": 3, "bad": True}))
    assert bad.kind is Kind.ANSWER and bad.head["status"] == "bad_request"
    raised = plane.end_of(plane.invoke({"steps": 3, "fail_at": 0}))
    assert raised.kind is Kind.ANSWER and raised.head["status"] == "raised"


@ways
def test_an_error_after_it_is_in_the_end(start: Start, code: str, serving: dict):
    plane = start(code, serving=serving).attach()
    plane.ready()
    id = plane.invoke({"steps": 5, "fail_at": 2})
    end = plane.end_of(id)
    assert end.kind is Kind.END and end.json["status"] == "raised" and end.json["message"] == "ValueError: broke"
    assert len(plane.items(id)) == 2


@ways
def test_an_empty_stream_is_a_stream(start: Start, code: str, serving: dict):
    plane = start(code, serving=serving).attach()
    plane.ready()
    id = plane.invoke({"steps": 0})
    assert plane.end_of(id).json["status"] == "ok"
    assert [m.kind for m in plane.messages if m.id == id] == [Kind.STREAM, Kind.END]


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@ways
def test_a_slow_reader_costs_one_window(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"steps": 20_000, "pad": 10_000})
    item = len(plane.wait_items(id, 1)[0].payload)
    plane.wait_items(id, STREAM_WINDOW // (item + 4))
    time.sleep(0.3)  # what a runner without flow control would use to send on
    sent = sum(len(m.payload) for m in plane.items(id))
    assert sent <= STREAM_WINDOW
    before = resident_bytes(runner.pid)
    for _ in range(20):
        got = len(plane.items(id))
        plane.credit(id, STREAM_WINDOW // 2)
        plane.wait_items(id, got + STREAM_WINDOW // 2 // (item + 4) - 1)
    assert sum(len(m.payload) for m in plane.items(id)) <= STREAM_WINDOW * 11
    assert resident_bytes(runner.pid) - before < 4 * STREAM_WINDOW
    plane.cancel(id)
    assert plane.end_of(id).json["status"] == "cancelled"


@ways
def test_an_item_larger_than_the_window_goes_alone(start: Start, code: str, serving: dict):
    plane = start(code, serving=serving).attach()
    plane.ready()
    size = STREAM_WINDOW * 3
    id = plane.invoke({"steps": 3, "pad": size})
    for count in (1, 2, 3):
        items = plane.wait_items(id, count)
        assert len(items) == count and len(items[-1].payload) > size
        plane.credit(id, len(items[-1].payload))
    assert plane.end_of(id).json["status"] == "ok"


def test_other_requests_are_answered_while_a_stream_waits_for_credit(start: Start):
    plane = start(SYNC, serving={"concurrency": 2}).attach()
    plane.ready()
    stuck = plane.invoke({"steps": 1000, "pad": 10_000})
    plane.wait_items(stuck, 5)
    assert plane.end_of(plane.invoke({"steps": 1})).json["status"] == "ok"
    plane.cancel(stuck)
    plane.end_of(stuck)


def test_bytes_text_and_a_response_around_a_generator(start: Start):
    runner = start("""
        from fornada_sdk import Response
        def handle_request(request, context):
            kind = request.body.json
            if kind == "bytes":
                return (bytes([i]) for i in range(3))
            if kind == "text":
                return Response((c for c in "añb"), type="text/plain", headers={"x-a": "b"})
            return Response(iter([{"nan": float("nan")}]))
    """)
    plane = runner.attach()
    plane.ready()
    raw = plane.invoke("bytes")
    plane.end_of(raw)
    text = plane.invoke("text")
    plane.end_of(text)
    last = plane.invoke("json")
    end = plane.end_of(last)
    heads = {m.id: m.head for m in plane.messages if m.kind is Kind.STREAM}
    assert heads[raw] == {"type": "application/octet-stream"}
    assert [m.payload for m in plane.items(raw)] == [b"\0", b"\1", b"\2"]
    assert heads[text] == {"type": "text/plain", "headers": {"x-a": "b"}}
    assert b"".join(m.payload for m in plane.items(text)) == "añb".encode()
    assert plane.items(last)[0].payload == b'{"nan":null}' and end.json["nonfinite"] is True


def test_a_stream_past_its_deadline_ends(start: Start):
    plane = start(SYNC).attach()
    plane.ready()
    id = plane.invoke({"steps": 1000, "step_s": 0.05}, left_s=0.3)
    assert plane.end_of(id, 2).json["status"] == "cancelled"
    assert len(plane.items(id)) < 20


def test_many_items_a_second(start: Start):
    plane = start(SYNC).attach()
    plane.ready()
    id = plane.invoke({"steps": 5000})
    while plane.messages[-1].kind is not Kind.END:
        plane.credit(id, STREAM_WINDOW)
        plane.wait(lambda m: m.id == id and m.kind in (Kind.END, Kind.ITEM))
        time.sleep(0.01)
    assert len(plane.items(id)) == 5000
    assert plane.items(id)[-1].at - plane.items(id)[0].at < bound(5)


def test_what_several_streams_make_in_one_turn_shares_a_packet(start: Start):
    plane = start(
        """
        import asyncio
        async def handle_request(request, context):
            for step in range(50):
                await asyncio.sleep(0)
                yield {"step": step}
        """,
        serving={"concurrency": 8},
    ).attach()
    plane.ready()
    ids = [plane.next_id() for _ in range(8)]
    before = plane.packets
    plane.send([message for id in ids for message in plane.invocation(id)])
    for id in ids:
        assert plane.end_of(id).json["status"] == "ok"
        assert [json.loads(item.payload)["step"] for item in plane.items(id)] == list(range(50))
    assert plane.packets - before < 8 * 50 // 2


def test_an_item_does_not_wait_for_the_work_on_the_next_one(start: Start):
    plane = start(
        """
        import asyncio, time
        async def handle_request(request, context):
            while not context.cancelled and request.body.json.get("beside"):
                await asyncio.sleep(0.001)
                yield {}
            for step in range(4):
                yield {"step": step}
                time.sleep(0.3)
        """,
        serving={"concurrency": 2},
    ).attach()
    plane.ready()
    beside = plane.invoke({"beside": True})
    plane.wait_items(beside, 2)
    id = plane.invoke({})
    plane.end_of(id)
    times = [item.at for item in plane.items(id)]
    assert all(later - earlier > 0.2 for earlier, later in itertools.pairwise(times))
    plane.cancel(beside)
    assert plane.end_of(beside).json["status"] == "cancelled"
