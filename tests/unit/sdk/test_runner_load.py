"""From ASSIGN to READY or FAILED."""

import signal
import time

import pytest

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Start

ECHO = """
def handle_request(request, context):
    return {"echo": request.body.json}
"""


def test_hello_comes_first_and_ready_after_the_load(start: Start):
    runner = start(ECHO)
    plane = runner.attach()
    ready = plane.ready()
    hello = plane.messages[0]
    assert hello.kind is Kind.HELLO
    assert hello.json["wire"] == 1 and hello.json["instance"] == "i-1" and hello.json["in_flight"] == []
    assert hello.json["pid"] == runner.pid
    assert ready["streaming"] is False and ready["pipelining"] == 64
    assert ready["tensors"] == {"inputs": [], "outputs": []}
    assert plane.call({"a": 1}) == {"echo": {"a": 1}}


def test_ready_is_said_again_to_whoever_attaches_later(start: Start):
    runner = start(ECHO)
    runner.attach().ready()
    hello = runner.attach().kind(Kind.HELLO).json
    assert hello["state"] == "ready" and "load_s" in hello and hello["pipelining"] == 64


def test_hello_comes_during_a_load_and_progress_is_told(start: Start):
    runner = start("""
        import time, fornada_sdk
        class Model(fornada_sdk.Model):
            def load(self, context):
                context.progress("half way", 0.5)
                time.sleep(1)
            def warmup(self, context):
                context.progress("nearly there", 0.9)
                time.sleep(0.5)
            def run(self, inputs, context):
                return {}
    """)
    plane = runner.attach()
    assert plane.kind(Kind.HELLO).json["state"] == "loading"
    loading = plane.wait(lambda m: m.kind is Kind.PROGRESS or "progress" in m.payload.decode()).json
    assert loading.get("progress", loading) == {"phase": "loading", "text": "half way", "fraction": 0.5}
    late = runner.attach()
    assert late.kind(Kind.HELLO, 0.9).json["progress"]["text"] == "half way"
    warming = plane.wait(lambda m: m.kind is Kind.PROGRESS and m.json["phase"] == "warming").json
    assert warming["text"] == "nearly there"
    facts = late.ready()
    assert facts["load_s"] >= 1 and facts["warmup_s"] >= 0.5


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("raise ValueError('no weights\\n  here')", "load", "ValueError: no weights here"),
        ("import sys; sys.exit(3)", "load", "SystemExit: model code called exit(3)"),
        ("import no_such_package", "load", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("x = 1", "load", "model.py has neither a class derived from fornada_sdk.Model nor a function handle_request(request, context)"),
        ("def f(:\n", "load", "SyntaxError: invalid syntax (model.py, line 1)"),
        ("raise MemoryError", "memory", "MemoryError"),
        ("raise type('OutOfMemoryError', (RuntimeError,), {})('CUDA out of memory')", "memory", "OutOfMemoryError: CUDA out of memory"),
        ("import fornada_sdk\nclass Mine(fornada_sdk.Model): pass", "load", "Mine has neither run nor run_batch"),
        (
            "import fornada_sdk\nclass M(fornada_sdk.Model):\n"
            " def run(self, i, c): pass\n def warmup(self, c): raise KeyError('cold')",
            "warmup",
            "KeyError: 'cold'",
        ),
    ],
)  # fmt: skip
def test_a_load_that_fails_says_why_and_exits_with_1(start: Start, code: str, kind: str, reason: str):
    runner = start(code)
    failed = runner.attach().wait(lambda m: m.kind is Kind.FAILED or '"failed"' in m.payload.decode()).json
    assert failed["reason"] == reason and failed["kind"] == kind
    assert runner.exit_code() == 1


def test_the_traceback_of_a_failed_load_is_in_the_output(start: Start):
    runner = start("def helper():\n    raise ValueError('no weights')\nhelper()\n")
    runner.attach().kind(Kind.FAILED)
    runner.wait_line(lambda line: "ValueError: no weights" in line)
    runner.wait_line(lambda line: "in helper" in line and '"stderr"' in line)


def test_an_unknown_engine_is_a_failed_load(start: Start):
    failed = start(ECHO, engine="abacus").attach().kind(Kind.FAILED).json
    assert failed["reason"] == "this release has no engine 'abacus'"


def test_a_failure_waits_for_somebody_to_tell(start: Start):
    runner = start("raise ValueError('soon')")
    runner.wait_line(lambda line: "soon" in line)
    assert runner.attach().wait(lambda m: b'"reason"' in m.payload).json["reason"] == "ValueError: soon"
    assert runner.exit_code() == 1


@pytest.mark.parametrize(
    ("name", "content", "seen"),
    [
        ("example/request.json", '{"warm": 1}', "{'warm': 1}"),
        ("example/request.txt", "warm words", "warm words"),
    ],
)
def test_the_request_example_warms_the_model_up(start: Start, name: str, content: str, seen: str):
    runner = start(
        """
        def handle_request(request, context):
            print("ran", request.body.json if request.body.type == "application/json" else request.body.text)
            return {}
        """,
        files={name: content},
    )
    runner.attach().ready()
    runner.wait_line(lambda line: seen in line)


def test_the_example_that_the_assignment_names_is_taken(start: Start, tmp_path):
    (tmp_path / "other.json").write_text('{"other": true}')
    runner = start("def handle_request(r, c): print(r.body.json)", example=str(tmp_path / "other.json"))
    runner.attach().ready()
    runner.wait_line(lambda line: "{'other': True}" in line)


def test_an_example_that_fails_is_a_failed_warm_up(start: Start):
    code = "import fornada_sdk\ndef handle_request(r, c): raise fornada_sdk.BadRequest('not like this')"
    failed = start(code, files={"example/request.json": "{}"}).attach().kind(Kind.FAILED).json
    assert failed["kind"] == "warmup" and failed["reason"] == "BadRequest: not like this"


def test_a_stream_is_warmed_up_to_its_first_item(start: Start):
    runner = start(
        """
        def handle_request(request, context):
            try:
                for i in range(1000):
                    print("item", i)
                    yield {"i": i}
            finally:
                print("closed")
        """,
        files={"example/request.json": "{}"},
    )
    assert runner.attach().ready()["streaming"] is True
    runner.wait_line(lambda line: "closed" in line)
    assert "item 2" not in [record["line"] for record in runner.records]


def test_without_example_and_warmup_the_model_is_ready_unwarmed(start: Start):
    runner = start("def handle_request(r, c): print('ran')")
    runner.attach().ready()
    assert not runner.records


def test_an_async_load_and_warmup_run_on_the_loop_that_serves(start: Start):
    runner = start("""
        import asyncio, fornada_sdk
        class Model(fornada_sdk.Model):
            async def load(self, context):
                self.loop = asyncio.get_running_loop()
                await asyncio.sleep(0.01)
            async def warmup(self, context):
                assert asyncio.get_running_loop() is self.loop
            async def run(self, request, context):
                return {"same": asyncio.get_running_loop() is self.loop}
    """)
    plane = runner.attach()
    plane.ready()
    assert plane.call() == {"same": True}


def test_the_context_holds_what_was_assigned(start: Start, tmp_path):
    weights = tmp_path / "w.bin"
    weights.write_bytes(b"abc")
    runner = start(
        """
        import os
        def handle_request(request, context):
            return {
                "settings": context.settings, "artifact": context.artifacts["w/w.bin"].read_bytes().decode(),
                "names": list(context.artifacts), "model": context.model, "version": context.version,
                "instance": context.instance, "pid": context.pid, "attempt": context.load_attempt, "count": context.load_count,
                "device": [context.device.id, context.device.kind, context.device.memory_bytes],
                "scratch": str(context.scratch), "request_id": context.request_id, "cancelled": context.cancelled,
                "threads": os.environ["OMP_NUM_THREADS"],
            }
        """,
        artifacts={"w/w.bin": str(weights)},
        settings={"k": [1, {"a": "b"}]},
        version="f" * 12,
        load_attempt=3,
        load_count=2,
        resources={"memory_bytes": 1 << 29, "threads": 2},
        device={"id": "cuda:0", "kind": "fake", "memory_bytes": 4096},
    )
    plane = runner.attach()
    plane.ready()
    got = plane.call()
    assert got == {
        "settings": {"k": [1, {"a": "b"}]}, "artifact": "abc", "names": ["w/w.bin"], "model": "@test/m", "version": "f" * 12,
        "instance": "i-1", "pid": runner.pid, "attempt": 3, "count": 2, "device": ["cuda:0", "fake", 4096],
        "scratch": got["scratch"], "request_id": "r-1", "cancelled": False, "threads": "2",
    }  # fmt: skip


def test_the_environment_s_own_thread_limits_stand(start: Start):
    runner = start("import os\ndef handle_request(r, c): return os.environ['OMP_NUM_THREADS']", env={"OMP_NUM_THREADS": "7"})
    plane = runner.attach()
    plane.ready()
    assert plane.call() == "7"


def test_a_model_imports_its_neighbours_and_never_itself_twice(start: Start):
    runner = start(
        "import neighbour\nVALUE = neighbour.VALUE\ndef handle_request(r, c):\n    import model\n    return [VALUE, model.VALUE is VALUE]",
        files={"neighbour.py": "VALUE = ['next door']"},
    )
    plane = runner.attach()
    plane.ready()
    assert plane.call() == [["next door"], True]


@pytest.mark.parametrize("ok", [True, False])
def test_booking_device_memory_waits_for_the_answer(start: Start, ok: bool):
    runner = start(
        """
        import fornada_sdk
        class Model(fornada_sdk.Model):
            def load(self, context):
                context.device.allocate(1000, release_delay_s=2)
            def run(self, request, context):
                return {}
        """,
        device={"id": "cuda:0", "kind": "fake", "memory_bytes": 4096},
    )
    plane = runner.attach()
    book = plane.kind(Kind.BOOK)
    assert book.json == {"device": "cuda:0", "bytes": 1000, "release_delay_s": 2.0}
    plane.booked(book.id, ok=ok, message="1000 asked, 10 left")
    if ok:
        plane.ready()
        assert runner.attach().kind(Kind.HELLO).json["booked"] == {"cuda:0": 1000}
    else:
        failed = plane.kind(Kind.FAILED).json
        assert failed["reason"] == "OutOfDeviceMemory: 1000 asked, 10 left" and failed["kind"] == "memory"


def test_a_booking_is_asked_again_of_a_successor(start: Start):
    runner = start(
        "def handle_request(r, c):\n    c.device.allocate(5)\n    return 'booked'",
        device={"id": "cuda:0", "kind": "fake", "memory_bytes": 4096},
    )
    plane = runner.attach()
    plane.ready()
    id = plane.invoke()
    plane.kind(Kind.BOOK)
    plane.close()
    successor = runner.attach()
    book = successor.kind(Kind.BOOK)
    successor.booked(book.id, ok=True)
    assert successor.answer(id) == "booked"


def test_stop_during_a_load_ends_the_process_at_once(start: Start):
    runner = start("import time\ntime.sleep(60)")
    plane = runner.attach()
    plane.kind(Kind.HELLO)
    began = time.monotonic()
    plane.stop(30)
    assert runner.exit_code() == 0
    assert time.monotonic() - began < bound(1)


def test_sigterm_during_a_load_ends_the_process_at_once(start: Start):
    runner = start("import time\nprint('loading')\ntime.sleep(60)")
    runner.wait_line(lambda line: "loading" in line)
    runner.signal(signal.SIGTERM)
    assert runner.exit_code(2) == 143


def test_the_keeper_gone_during_a_load_is_the_end(start: Start):
    runner = start("import time\nprint('loading')\ntime.sleep(60)")
    runner.wait_line(lambda line: "loading" in line)
    runner.keeper.close()
    assert runner.exit_code(2) == 70


def test_the_keeper_gone_before_assigning_is_the_end(start: Start):
    runner = start("", assign=False)
    runner.keeper.close()
    assert runner.exit_code() == 70
