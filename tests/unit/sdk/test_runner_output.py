"""What model code prints, logs and leaves on descriptors 1 and 2."""

import json
import os
import re
import signal
import time

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import Start


def test_lines_carry_stream_time_and_the_request_s_id(start: Start):
    runner = start("""
        import sys
        print("at import")
        def handle_request(request, context):
            print("to stdout", 1, 2)
            sys.stderr.write("to stderr\\nand more\\n")
            context.log.warning("to the log", rows=3)
            sys.stdout.buffer.write(b"raw \\xff bytes\\n")
            return {}
    """)
    plane = runner.attach()
    plane.ready()
    plane.answer(plane.invoke(request_id="mine"))
    runner.wait_line(lambda line: "raw" in line)
    seen = [(r["stream"], r["line"], r["request_id"]) for r in runner.records]
    assert seen == [
        ("stdout", "at import", ""),
        ("stdout", "to stdout 1 2", "mine"),
        ("stderr", "to stderr", "mine"),
        ("stderr", "and more", "mine"),
        ("log", "warning to the log rows=3", "mine"),
        ("stdout", "raw \ufffd bytes", "mine"),
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", r["time"]) for r in runner.records)
    assert [r["level"] for r in runner.records if r["stream"] == "log"] == ["warning"]


def test_a_traceback_is_tied_to_its_request(start: Start):
    runner = start("def handle_request(r, c):\n    raise ValueError('inside')")
    plane = runner.attach()
    plane.ready()
    plane.end_of(plane.invoke(request_id="mine"))
    runner.wait_line(lambda line: "ValueError: inside" in line)
    lines = [r for r in runner.records if r["request_id"] == "mine" and r["stream"] == "stderr"]
    assert lines[0]["line"] == "Traceback (most recent call last):"
    assert "model.py" in lines[1]["line"], "the runner's own frames are left out"


def test_an_unfinished_line_belongs_to_the_request_that_wrote_it(start: Start):
    runner = start("""
        def handle_request(request, context):
            print("half", request.body.json, end="")
            return {}
    """)
    plane = runner.attach()
    plane.ready()
    for n in (1, 2):
        plane.answer(plane.invoke(n, request_id=f"id{n}"))
    runner.wait_line(lambda line: "half 2" in line)
    assert [(r["line"], r["request_id"]) for r in runner.records] == [("half 1", "id1"), ("half 2", "id2")]


def test_threads_and_tasks_have_their_own_lines_and_ids(start: Start):
    for code, serving in (
        ("import time\ndef handle_request(r, c):\n    for i in range(5):\n        print(r.body.json, i)\n        time.sleep(0.01)", 4),
        (
            "import asyncio\nasync def handle_request(r, c):\n    for i in range(5):\n"
            "        print(r.body.json, i)\n        await asyncio.sleep(0.01)",
            4,
        ),
    ):
        runner = start(code, serving={"concurrency": serving})
        plane = runner.attach()
        plane.ready()
        ids = [plane.invoke(f"r{n}", request_id=f"r{n}") for n in range(4)]
        for id in ids:
            plane.answer(id)
        runner.wait_line(lambda line: "r3 4" in line)
        assert len(runner.records) == 20
        assert all(r["line"].split()[0] == r["request_id"] for r in runner.records)


def test_raw_writes_of_c_code_come_as_plain_lines(start: Start):
    runner = start("""
        import os
        def handle_request(request, context):
            os.write(1, b"raw one\\n")
            os.write(2, b"raw two\\n")
            return {}
    """)
    plane = runner.attach()
    plane.ready()
    plane.call()
    runner.wait_line(lambda line: line == "raw two")
    assert runner.lines == ["raw one", "raw two"]


def test_a_long_line_is_cut_and_one_without_end_does_not_fill_the_memory(start: Start):
    runner = start("""
        import sys
        def handle_request(request, context):
            print("x" * 100_000)
            for _ in range(1000):
                sys.stdout.write("y" * 100_000)
            print()
            return {}
    """)
    plane = runner.attach()
    plane.ready()
    plane.call()
    runner.wait_line(lambda line: '"y' in line)
    assert [(r["line"][0], len(r["line"])) for r in runner.records] == [("x", 16384), ("y", 16384)]


def test_print_to_a_closed_pipe_harms_nobody(start: Start):
    runner = start("def handle_request(r, c):\n    print('x' * 1000)\n    return 'fine'", reading_output=False)
    plane = runner.attach()
    plane.ready()
    runner.close_output()
    assert plane.call() == "fine"


def test_output_that_nobody_reads_is_dropped_after_a_while_and_counted(start: Start):
    runner = start(
        """
        def handle_request(request, context):
            for i in range(request.body.json):
                print(i, "x" * 1000)
            return "done"
        """,
        reading_output=False,
    )
    plane = runner.attach()
    plane.ready()
    began = time.monotonic()
    assert plane.call(10_000) == "done"
    assert time.monotonic() - began < bound(4)
    runner.read_output()
    runner.wait_line(lambda line: "0 x" in line)
    plane.call(1)
    note = runner.wait_line(lambda line: "lines dropped" in line)
    assert int(re.search(r"(\d+) lines dropped", note).group(1)) > 1000  # type: ignore[union-attr]
    for line in runner.lines:
        assert line.startswith("\x1e") and json.loads(line[1:])


def test_a_flood_with_a_reader_loses_nothing(start: Start):
    runner = start("""
        def handle_request(request, context):
            for i in range(20_000):
                print(i, "x" * 200)
            return "done"
    """)
    plane = runner.attach()
    plane.ready()
    assert plane.call(seconds=20) == "done"
    runner.wait_line(lambda line: "19999 x" in line)
    assert [int(r["line"].split()[0]) for r in runner.records] == list(range(20_000))


def test_output_before_a_death_is_not_lost(start: Start):
    runner = start("""
        import os
        def handle_request(request, context):
            print("last words")
            os._exit(9)
    """)
    plane = runner.attach()
    plane.ready()
    plane.invoke()
    assert runner.exit_code() == 9
    runner.wait_line(lambda line: "last words" in line)


def test_the_log_and_print_survive_a_fork(start: Start):
    runner = start("""
        import os
        def handle_request(request, context):
            child = os.fork()
            if child == 0:
                print("from the child")
                os._exit(0)
            os.waitpid(child, 0)
            return {}
    """)
    plane = runner.attach()
    plane.ready()
    plane.call()
    runner.wait_line(lambda line: "from the child" in line)
    assert plane.messages[-1].kind is Kind.ANSWER


def test_python_s_logging_is_captured(start: Start):
    runner = start("""
        import logging
        def handle_request(request, context):
            logging.getLogger("lib").warning("by logging")
            return {}
    """)
    plane = runner.attach()
    plane.ready()
    plane.answer(plane.invoke(request_id="mine"))
    line = runner.wait_line(lambda line: "by logging" in line)
    assert json.loads(line[1:])["request_id"] == "mine"


def test_signals_do_not_tear_lines(start: Start):
    runner = start("""
        import signal, sys
        signal.signal(signal.SIGWINCH, lambda *_: print("signal", file=sys.stderr))
        def handle_request(request, context):
            for i in range(3000):
                print(i)
            return os.getpid()
        import os
    """)
    plane = runner.attach()
    plane.ready()
    id = plane.invoke()
    for _ in range(200):
        runner.signal(signal.SIGWINCH)
    plane.answer(id)
    runner.wait_line(lambda line: '"2999"' in line)
    assert [int(r["line"]) for r in runner.records if r["stream"] == "stdout"] == list(range(3000))
    assert os.path.exists(f"/proc/{runner.pid}")
