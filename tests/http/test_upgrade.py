"""`fornada serve --upgrade` from a second checkout, under callers: nobody notices but who asks for the version."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fornada
from tests.bounds import bound, count
from tests.harness.client import Closed
from tests.harness.fixtures import StartNode
from tests.harness.node import Node, node_environ, run_path
from tests.harness.processes import Process, alive, descriptors, kill, seen
from tests.harness.waiting import Background, until

CALLERS = 16
CONFIG = "[node]\ndrain_s = 60\nkill_s = 2\n"
COMMAND = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fornada.cli.main import main; main()"


def checkout(folder: Path, version: str, change: Callable[[Path], None] = lambda source: None) -> Path:
    """A copy of the source that calls itself `version`; the interpreter and its packages are ours.

    What is compiled comes along, as it is in an installation: each copy took seconds of a processor for it otherwise.
    """
    source = folder / version / "src"
    shutil.copytree(Path(fornada.__file__).parents[1], source, ignore=shutil.ignore_patterns("*.egg-info"))
    init = source / "fornada/__init__.py"
    init.write_text(re.sub(r'__version__ = "[^"]*"', f'__version__ = "{version}"', init.read_text()))
    change(source)
    return source


def upgrade(node: Node, source: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", "-c", COMMAND, str(source), "serve", "--upgrade", "--data-dir", str(node.data_dir)]
    return subprocess.run(
        [*command, "--config", str(node.config)], capture_output=True, text=True, timeout=bound(90), env=node_environ(), check=False
    )


def version(node: Node) -> str:
    (one,) = node.fetch("GET", "/api/v1/nodes").json()["nodes"]
    return str(one["version"])


def is_gone(process: Process) -> bool:
    return not process.alive


class Callers:
    """They ask again and again, and remember everything that wasn't the answer."""

    LONG = "x" * 300_000

    def __init__(self, node: Node, model: str) -> None:
        self._node = node
        self._model = model
        self._over = threading.Event()
        self.answers: list[int] = []
        self.slowest_s = [0.0] * CALLERS
        self.trouble: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CALLERS)]

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(bound(30))

    def went_on(self, since: int) -> bool:
        """Whether there were a hundred answers since, or none will come."""
        return len(self.answers) > since + 100 or bool(self.trouble)

    def _run(self, number: int) -> None:
        """Even ones keep their connection, odd ones open one for each request; of four one asks for a stream, one sends much."""
        count = 0
        while not self._over.is_set():
            try:
                with self._node.connect(timeout_s=bound(15)) as connection:
                    while not self._over.is_set():
                        count += 1
                        began = time.monotonic()
                        if number % 4 == 3:
                            self._stream(connection)
                        else:
                            self._ask(connection, f"{number} {count} {self.LONG if number % 4 == 2 else ''}")
                        self.slowest_s[number] = max(self.slowest_s[number], time.monotonic() - began)
                        self.answers.append(number)
                        if number % 2:
                            break
            except (Closed, OSError, AssertionError) as error:
                self.trouble.append(f"caller {number}, request {count}: {type(error).__name__} {error}")
                return

    def _ask(self, connection: Any, echo: str) -> None:
        connection.send_request("POST", run_path(self._model), json.dumps({"echo": echo}).encode())
        answer = connection.read_response()
        assert answer.status == 200, (answer.status, answer.body[:300])
        body = answer.json()
        assert body.get("result", body)["echo"] == echo

    def _stream(self, connection: Any) -> None:
        connection.send_request("POST", run_path(self._model), json.dumps({"steps": 4, "step_s": 0.05, "stream": True}).encode())
        head = connection.read_head()
        assert head.status == 200, head
        stream = connection.rest_of_events(head)
        events = [event.data for event in stream.events]
        assert stream.complete and len(events) == 5 and events[-1] == "[DONE]", events


def test_callers_notice_nothing_twice_in_a_row(new_node: StartNode, tmp_path: Path):
    node = new_node(config=CONFIG).start()
    model, other = "@test/busy", "@test/idle"
    node.deploy_probe(model, serving={"concurrency": CALLERS, "queue": 200})
    node.deploy_probe(other)
    before = {name: node.load(name)["instances"][0] for name in (model, other)}
    keeper = node.keeper_pid
    sources = {name: checkout(tmp_path, name) for name in ("9.1.0", "9.2.0")}
    with Callers(node, model) as callers:
        until(lambda: len(callers.answers) > 200, within_s=20, what="callers at work")
        for name, source in sources.items():
            old, asked = seen(node.control_pid), len(callers.answers)
            done = upgrade(node, source)
            assert done.returncode == 0, done.stderr + node.said()
            assert len(done.stdout.splitlines()) == 4, done.stdout
            assert node.control_pid != old.pid
            assert version(node) == node.record["version"] == name
            until(partial(is_gone, old), within_s=10, what=f"the old one's end\n{node.said()}")
            until(partial(callers.went_on, asked), within_s=20, what="callers go on")
    assert not callers.trouble, "\n".join([*callers.trouble, node.said()])
    assert set(callers.answers[-500:]) == set(range(CALLERS))
    assert node.ready()
    assert node.keeper_pid == keeper
    for name, instance in before.items():
        answer = node.ask(name, {"echo": "still here"})
        assert (answer["pid"], answer["instance"], answer["load_count"]) == (instance["pid"], instance["id"], 1)
    assert [line for line in node.stderr.read_text().splitlines() if line.startswith("fornada: ") and "serves now" not in line] == []

    old_pid = node.control_pid
    kill(old_pid)
    node.wait_next_control_plane(after_pid=old_pid)
    assert version(node) == "9.2.0", "what was killed comes back as what it was"
    assert node.ask(model, {"echo": 1})["pid"] == before[model]["pid"]
    assert node.stop() == 0


def test_a_long_request_and_a_long_stream_end_where_they_began(new_node: StartNode, tmp_path: Path):
    node = new_node(config=CONFIG).start()
    model = "@test/long"
    node.deploy_probe(model, serving={"concurrency": 4, "idle_timeout_s": 3})
    pid = node.load(model)["instances"][0]["pid"]
    source = checkout(tmp_path, "9.1.0")
    with Background() as background, node.open_stream(model, {"steps": 100, "step_s": 0.1}) as stream:
        long = background.start(lambda: node.ask(model, {"sleep_s": 10, "echo": "at last"}, timeout_s=20))
        head = stream.read_head()
        old = seen(node.control_pid)
        assert upgrade(node, source).returncode == 0
        assert old.alive, "it still has something to answer"
        assert node.ask(model, {"echo": "new"})["pid"] == pid
        rest = stream.rest_of_events(head)
        assert rest.complete and [event.data for event in rest.events][-1] == "[DONE]"
        assert long.result()["echo"] == "at last"
    until(lambda: not old.alive, within_s=5, what="the old one's end")
    assert node.model(model)["instances"][0]["pid"] == pid, "it was at work for the old one, and not idle"
    until(lambda: not alive(pid), within_s=10, what="idle since nobody uses it: the new one decides")
    assert node.stop() == 0


def test_a_stop_while_the_old_one_still_answers_lets_it_finish(new_node: StartNode, tmp_path: Path):
    node = new_node(config=CONFIG).start()
    model = "@test/long"
    node.deploy_probe(model, serving={"concurrency": 2})
    node.load(model)
    source = checkout(tmp_path, "9.1.0")
    with node.open_stream(model, {"steps": 100, "step_s": 0.1}) as stream:
        head = stream.read_head()
        assert upgrade(node, source).returncode == 0
        tree = node.tree()
        node.process.send_signal(signal.SIGTERM)
        rest = stream.rest_of_events(head)
        assert rest.complete and [event.data for event in rest.events][-1] == "[DONE]"
    assert node.wait() == 0
    assert not [process for process in tree if process.alive]


def test_either_may_be_killed_while_both_are_there(new_node: StartNode, tmp_path: Path):
    node = new_node(config=CONFIG).start()
    model = "@test/long"
    node.deploy_probe(model, serving={"concurrency": 2})
    pid = node.load(model)["instances"][0]["pid"]
    source = checkout(tmp_path, "9.1.0")
    with node.open_stream(model, {"steps": 2000, "step_s": 0.1}) as stream:
        head = stream.read_head()
        old = seen(node.control_pid)
        assert upgrade(node, source).returncode == 0
        assert "still finishes its answers" in upgrade(node, source).stderr
        new = node.control_pid
        kill(new)
        node.wait_next_control_plane(after_pid=new)
        assert version(node) == "9.1.0" and old.alive
        assert node.ask(model, {"echo": 1})["pid"] == pid
        next(iter(stream.read_events()))
        assert head.status == 200
        kill(old.pid)
        with pytest.raises((Closed, ConnectionResetError)):
            list(stream.read_chunks())
    assert node.ask(model, {"echo": 2})["pid"] == pid
    assert upgrade(node, checkout(tmp_path, "9.2.0")).returncode == 0
    assert version(node) == "9.2.0"
    assert node.ask(model, {"echo": 3})["pid"] == pid
    assert node.stop() == 0


def changed(path: Path, old: str, new: str) -> None:
    """A release in which `old` is `new`. It must be there: a release that is the same one is taken, and shows nothing."""
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} in {path}"
    path.write_text(text.replace(old, new))


def broken(source: Path) -> None:
    (source / "fornada/app/control.py").write_text("raise SystemExit(3)\n")


def breaks_late(source: Path) -> None:
    changed(source / "fornada/app/wiring.py", "        await self._provision.start()\n", '        raise RuntimeError("late")\n')


def newer_store(source: Path) -> None:
    with (source / "fornada/store/schema.py").open("a") as file:
        file.write('MIGRATIONS += ("CREATE TABLE further (x) STRICT;",)\n')


def another_wire(source: Path) -> None:
    changed(source / "fornada_sdk/wire/messages.py", "WIRE_VERSION = ", "WIRE_VERSION = 1000 + ")


@pytest.mark.parametrize(
    ("change", "reason"),
    [(broken, "exited with code 3"), (breaks_late, "before it served"), (newer_store, "stop the node"), (another_wire, "version 100")],
)
def test_what_can_not_be_leaves_everything_as_it_was(new_node: StartNode, tmp_path: Path, change: Callable[[Path], None], reason: str):
    node = new_node(config=CONFIG).start()
    model = "@test/stays"
    node.deploy_probe(model, serving={"concurrency": CALLERS, "queue": 200})
    instance = node.load(model)["instances"][0]
    control = node.control_pid
    with Callers(node, model) as callers:
        until(lambda: len(callers.answers) > 50, within_s=20, what="callers at work")
        before = descriptors(control)
        for _ in range(count(1, long=3)):
            done = upgrade(node, checkout(tmp_path, "9.1.0", change))
            assert done.returncode == 1
            assert len(done.stderr.splitlines()) == 1 and reason in done.stderr, done.stderr
            shutil.rmtree(tmp_path / "9.1.0")
        asked = len(callers.answers)
        until(lambda: len(callers.answers) > asked + 100 or callers.trouble, within_s=20, what="callers go on")
    assert not callers.trouble, "\n".join([*callers.trouble, node.said()])
    assert node.control_pid == control and alive(control)
    assert version(node) == fornada.__version__
    answer = node.ask(model, {"echo": 1})
    assert (answer["pid"], answer["load_count"]) == (instance["pid"], 1)
    until(lambda: descriptors(control) <= before + 2, within_s=5, what=f"no descriptor is left over beside {before}")
    second = "@test/second"
    node.deploy_probe(second)
    assert node.ask(second, {"echo": 2})["load_count"] == 1, "it decides about processes again"
    until(lambda: node.probe_log(model)[-1].get("seq") == answer["seq"], within_s=5, what="what models print is read again")
    assert node.stop() == 0


def test_an_upgrade_waits_for_a_load_and_is_refused_without_a_node(new_node: StartNode, tmp_path: Path):
    node = new_node(config=CONFIG)
    source = checkout(tmp_path, "9.1.0")
    nobody = upgrade(node, source)
    assert nobody.returncode == 1 and "no node runs" in nobody.stderr
    node.start()
    model = "@test/slow"
    node.deploy_probe(model, settings={"load_s": 3})
    with Background() as background:
        first = background.start(lambda: node.ask(model, {"echo": 1}, timeout_s=30))
        until(lambda: node.state(model) == "pending", within_s=5, what="the load")
        done = upgrade(node, source)
        assert done.returncode == 0, done.stderr
        assert first.result()["load_count"] == 1
    assert node.ask(model, {"echo": 2})["load_count"] == 1
    assert version(node) == "9.1.0"
    assert node.stop() == 0
