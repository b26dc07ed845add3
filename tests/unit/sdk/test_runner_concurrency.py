"""concurrency > 1: as many requests at the same time as were granted, on threads or on a loop."""

import random
import time

import pytest

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound, count
from tests.unit.sdk.driver import Start

SYNC = """
    import threading, time
    here, most, lock = 0, 0, threading.Lock()
    def handle_request(request, context):
        global here, most
        with lock:
            here += 1
            most = max(most, here)
        time.sleep(request.body.json)
        with lock:
            here -= 1
        return most
"""
ASYNC = """
    import asyncio
    here = most = 0
    async def handle_request(request, context):
        global here, most
        here += 1
        most = max(most, here)
        await asyncio.sleep(request.body.json)
        here -= 1
        return most
"""
ways = pytest.mark.parametrize("code", [pytest.param(SYNC, id="threads"), pytest.param(ASYNC, id="async")])


@ways
def test_as_many_run_together_as_concurrency_says(start: Start, code: str):
    plane = start(code, serving={"concurrency": 4}).attach()
    assert plane.ready()["pipelining"] == 4
    began = time.monotonic()
    ids = [plane.invoke(0.2) for _ in range(8)]
    most = max(plane.answer(id) for id in ids)
    assert most == 4
    assert 0.35 < time.monotonic() - began < bound(1.5)


@ways
def test_a_short_request_overtakes_a_long_one(start: Start, code: str):
    plane = start(code, serving={"concurrency": 2}).attach()
    plane.ready()
    long = plane.invoke(0.5)
    short = plane.invoke(0.01)
    assert plane.end_of(short).at < plane.end_of(long).at


def test_async_code_with_concurrency_1_runs_one_after_the_other(start: Start):
    plane = start(ASYNC).attach()
    plane.ready()
    ids = [plane.invoke(0.05) for _ in range(4)]
    assert [plane.answer(id) for id in ids] == [1, 1, 1, 1]


def test_several_async_streams_interleave(start: Start):
    plane = start(
        """
        import asyncio
        async def handle_request(request, context):
            for i in range(5):
                await asyncio.sleep(0.05)
                yield {"i": i}
        """,
        serving={"concurrency": 8},
    ).attach()
    plane.ready()
    began = time.monotonic()
    ids = [plane.invoke() for _ in range(8)]
    for id in ids:
        assert plane.end_of(id).json["status"] == "ok"
    assert time.monotonic() - began < bound(1.2)
    assert len({m.id for m in [m for m in plane.messages if m.kind is Kind.ITEM][:8]}) == 8


def test_an_async_model_that_blocks_its_loop_still_hears_of_attach_and_cancel(start: Start):
    runner = start("""
        import time
        async def handle_request(request, context):
            print("began")
            end = time.monotonic() + 5
            while time.monotonic() < end and not context.cancelled:
                time.sleep(0.02)
            return {}
    """)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke()
    runner.wait_line(lambda line: "began" in line)
    assert runner.attach().kind(Kind.HELLO, 1).json["state"] == "ready"
    plane.cancel(id)
    assert plane.end_of(id, 1).head["status"] == "cancelled"


def test_async_steps_and_sync_steps_mix(start: Start):
    plane = start("""
        import asyncio, fornada_sdk
        class Model(fornada_sdk.Model):
            def preprocess(self, request, context):
                return request.body.json + 1
            async def run(self, inputs, context):
                await asyncio.sleep(0)
                return inputs * 10
            def postprocess(self, outputs, context):
                return {"n": outputs}
    """).attach()
    plane.ready()
    assert plane.call(1) == {"n": 20}


@ways
def test_hundreds_of_small_requests(start: Start, code: str):
    plane = start(code, serving={"concurrency": 8}).attach()
    plane.ready()
    ids = [plane.next_id() for _ in range(500)]
    plane.send([frame for id in ids for frame in plane.invocation(id, 0)])
    for id in ids:
        assert 1 <= plane.answer(id, 20) <= 8


@ways
def test_of_two_requests_close_together_neither_waits_for_a_third(start: Start, code: str):
    plane = start(code, serving={"concurrency": 64}).attach()
    plane.ready()
    chance = random.Random(count(1, long=int(time.time())))
    for _ in range(count(1000, long=20_000)):
        ids = [plane.next_id() for _ in range(2)]
        invocations = [plane.invocation(id, 0) for id in ids]
        until = time.perf_counter() + chance.random() * 300e-6
        plane.send(invocations[0])
        while time.perf_counter() < until:
            pass  # a sleep would be too long: the second is to come while the first one is taken
        plane.send(invocations[1])
        for id in ids:
            plane.answer(id, 5)
        plane.messages.clear()
