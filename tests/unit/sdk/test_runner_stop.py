"""STOP, SIGTERM, crashes: how an instance ends."""

import signal
import time

import pytest

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Start

SYNC = """
    import atexit, os, time, ctypes, signal
    atexit.register(print, "exit hook")
    def handle_request(request, context):
        keys = request.body.json
        print("began", keys.get("n"))
        if keys.get("ignore"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if keys.get("die"):
            os._exit(9)
        if keys.get("segv"):
            ctypes.string_at(0)
        if "steps" in keys:
            return stream(keys["steps"])
        end = time.monotonic() + keys.get("sleep_s", 0)
        while time.monotonic() < end and not context.cancelled:
            time.sleep(0.02)
        time.sleep(keys.get("deaf_s", 0))
        return {"n": keys.get("n")}
    def stream(steps):
        for i in range(steps):
            time.sleep(0.05)
            yield {"step": i}
"""
ASYNC = """
    import atexit, asyncio
    atexit.register(print, "exit hook")
    async def handle_request(request, context):
        keys = request.body.json
        print("began", keys.get("n"))
        await asyncio.sleep(keys.get("sleep_s", 0))
        return {"n": keys.get("n")}
"""
WAYS = [
    pytest.param(SYNC, {}, id="inline"),
    pytest.param(SYNC, {"concurrency": 3}, id="threads"),
    pytest.param(ASYNC, {"concurrency": 3}, id="async"),
]
ways = pytest.mark.parametrize(("code", "serving"), WAYS)


@ways
def test_an_idle_runner_stops_at_once(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    began = time.monotonic()
    plane.stop(30)
    assert runner.exit_code() == 0
    assert time.monotonic() - began < bound(0.5)
    runner.wait_line(lambda line: "exit hook" in line)


@ways
def test_what_runs_is_finished_and_nothing_new_begins(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"n": 1, "sleep_s": 0.6})
    runner.wait_line(lambda line: "began 1" in line)
    plane.stop(10)
    late = plane.invoke({"n": 2})
    refused = plane.end_of(late)
    assert refused.head == {"status": "cancelled", "message": "the runner is stopping"}
    assert plane.answer(id) == {"n": 1}
    assert runner.exit_code() == 0
    plane.wait_closed()


@ways
def test_at_the_end_of_the_grace_what_still_runs_is_cancelled(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"n": 1, "sleep_s": 30})
    runner.wait_line(lambda line: "began 1" in line)
    began = time.monotonic()
    plane.stop(0.3)
    assert plane.end_of(id).head["status"] == "cancelled"
    assert runner.exit_code() == 0
    assert 0.25 < time.monotonic() - began < bound(1.5)


@ways
def test_requests_that_wait_here_are_still_answered_within_the_grace(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    ids = [plane.invoke({"n": n, "sleep_s": 0.05}) for n in range(6)]
    plane.stop(10)
    assert [plane.answer(id)["n"] for id in ids] == list(range(6))
    assert runner.exit_code() == 0


@ways
def test_sigterm_is_a_stop(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"n": 1, "sleep_s": 0.5})
    runner.wait_line(lambda line: "began 1" in line)
    runner.signal(signal.SIGTERM)
    assert plane.answer(id) == {"n": 1}
    assert runner.exit_code() == 0


def test_sigterm_ends_an_idle_runner(start: Start):
    runner = start(SYNC)
    runner.attach().ready()
    runner.signal(signal.SIGTERM)
    assert runner.exit_code() == 0


def test_a_model_may_ignore_sigterm(start: Start):
    runner = start(SYNC)
    plane = runner.attach()
    plane.ready()
    plane.call({"ignore": True})
    runner.signal(signal.SIGTERM)
    assert plane.call({"n": 5}) == {"n": 5}


def test_a_stream_ends_within_the_grace_or_is_cancelled(start: Start):
    runner = start(SYNC)
    plane = runner.attach()
    plane.ready()
    short = plane.invoke({"steps": 4})
    plane.wait_items(short, 1)
    plane.stop(10)
    assert plane.end_of(short).json["status"] == "ok"
    assert runner.exit_code() == 0
    other = start(SYNC)
    plane = other.attach()
    plane.ready()
    endless = plane.invoke({"steps": 10_000})
    plane.wait_items(endless, 1)
    plane.stop(0.2)
    assert plane.end_of(endless, 2).json["status"] == "cancelled"
    assert other.exit_code() == 0


def test_a_second_stop_can_only_shorten_the_grace(start: Start):
    runner = start(SYNC)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"n": 1, "sleep_s": 30})
    runner.wait_line(lambda line: "began 1" in line)
    plane.stop(20)
    plane.stop(0)
    assert plane.end_of(id, 2).head["status"] == "cancelled"
    assert runner.exit_code() == 0


def test_a_successor_is_told_that_this_is_stopping(start: Start):
    runner = start(SYNC)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke({"n": 1, "sleep_s": 1})
    runner.wait_line(lambda line: "began 1" in line)
    plane.stop(10)
    plane.close()
    successor = runner.attach()
    hello = successor.kind(Kind.HELLO).json
    assert hello["state"] == "stopping" and hello["in_flight"] == [id]
    assert successor.answer(id) == {"n": 1}
    assert runner.exit_code() == 0


@ways
def test_the_keeper_gone_is_the_end_even_in_a_long_call(start: Start, code: str, serving: dict):
    runner = start(code, serving=serving)
    plane = runner.attach()
    plane.ready()
    plane.invoke({"n": 1, "sleep_s": 30})
    runner.wait_line(lambda line: "began 1" in line)
    runner.keeper.close()
    assert runner.exit_code(2) == 70


@pytest.mark.parametrize(("how", "code"), [("die", 9), ("segv", -signal.SIGSEGV)])
def test_a_crash_leaves_its_mark(start: Start, how: str, code: int):
    runner = start(SYNC)
    plane = runner.attach()
    plane.ready()
    first = plane.call({"n": 1})
    plane.invoke({how: True})
    assert runner.exit_code() == code
    plane.wait_closed()
    assert first == {"n": 1}
    if how == "segv":
        runner.wait_line(lambda line: line.startswith("Fatal Python error: Segmentation fault"))


def test_items_before_a_death_arrive(start: Start):
    runner = start("""
        import os
        def handle_request(request, context):
            for i in range(5):
                yield {"step": i}
            os._exit(9)
    """)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke()
    assert len(plane.wait_items(id, 5)) == 5
    assert runner.exit_code() == 9


def test_a_forked_child_holds_none_of_the_runner_s_sockets(start: Start):
    runner = start("""
        import os, time
        def handle_request(request, context):
            child = os.fork()
            if child == 0:
                print("child")
                time.sleep(30)
                os._exit(0)
            return child
    """)
    plane = runner.attach()
    plane.ready()
    child = plane.call()
    runner.wait_line(lambda line: "child" in line)
    assert plane.call() != child
    runner.signal(signal.SIGKILL)
    assert runner.exit_code() == -signal.SIGKILL
    plane.wait_closed(1)


def test_sigterm_for_a_forked_child_is_its_own(start: Start):
    runner = start("""
        import os, signal, time
        def handle_request(request, context):
            child = os.fork()
            if child == 0:
                print("child")
                time.sleep(30)
                os._exit(0)
            time.sleep(0.1)
            os.kill(child, signal.SIGTERM)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    """)
    plane = runner.attach()
    plane.ready()
    assert plane.call() == -signal.SIGTERM
    assert plane.call() == -signal.SIGTERM


def test_a_pool_of_forked_workers_works(start: Start):
    runner = start("""
        import multiprocessing
        def square(n):
            return n * n
        def handle_request(request, context):
            with multiprocessing.get_context("fork").Pool(2) as pool:
                return pool.map(square, range(5))
    """)
    plane = runner.attach()
    plane.ready()
    assert plane.call() == [0, 1, 4, 9, 16]
    plane.stop(5)
    assert runner.exit_code() == 0
