"""A real main and a real keeper over the fake control plane, and what their processes say."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bounds import bound
from tests.harness.processes import Process, all_gone, descendants, marked, seen
from tests.harness.waiting import until
from tests.harness.walls import remove_groups

HERE = Path(__file__).parent
FAKE_CONTROL = [sys.executable, "-I", str(HERE / "fake_control.py")]
SERVE = """
import sys, json, msgspec
from fornada.app.serve import serve
from fornada.core.settings import Settings
given = json.loads(sys.argv[1])
sys.exit(serve(msgspec.convert(given["settings"], Settings), control=given["control"], nested=given["nested"]))
"""
GONE_S = 3.0
"""The promise: after this, nothing is left of a killed tree."""


class Tree:
    """One data directory and the tree of processes over it."""

    def __init__(
        self,
        folder: Path,
        *,
        nested: bool,
        node: dict[str, Any] | None = None,
        plan: dict[str, str] | None = None,
        control: Sequence[str] = FAKE_CONTROL,
        command: Sequence[str] = (sys.executable, "-I"),
        port: int = 0,
        environ: dict[str, str] | None = None,
        isolation: str = "none",
    ) -> None:
        """Without walls unless a test is about them: what the fakes are and look at lies anywhere on the machine."""
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir(exist_ok=True)
        self.plan(plan or {})
        settings = {"node": {"drain_s": 5, "kill_s": 1, **(node or {})}, "data_dir": str(self.data), "port": port, "isolation": isolation}
        self.nested = nested
        self.errors = folder / "stderr"
        self._known: dict[int, Process] = {}
        with self.errors.open("ab") as errors:
            self.main = subprocess.Popen(
                [*command, "-c", SERVE, json.dumps({"settings": settings, "control": list(control), "nested": nested})],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                cwd=self.data,  # and so of keeper and control planes: those that lost their parent are found by it
                start_new_session=True,
                env={**os.environ, **(environ or {})},
            )

    # ---- asking

    def plan(self, plan: dict[str, str]) -> None:
        """What control planes do from now on."""
        (self.data / "plan.json").write_text(json.dumps(plan))

    @property
    def port(self) -> int:
        return int(until(lambda: (self.data / "port").exists() and (self.data / "port").read_text(), within_s=15, what=self.said()))

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=bound(20))
        return connection

    def ask(self, do: str, **order: Any) -> Any:
        """What the control plane answers."""
        with self.connect() as connection:
            return self.ask_on(connection, do, **order)

    def ask_on(self, connection: socket.socket, do: str, **order: Any) -> Any:
        connection.sendall(json.dumps({"do": do, **order}).encode() + b"\n")
        text = b""
        while piece := connection.recv(1 << 20):
            text += piece
        if not text:
            raise ConnectionError("closed without an answer")
        return json.loads(text)

    def state(self) -> Any:
        return self.ask("state")

    def spawn(self, instance: str, **order: Any) -> int:
        """The new runner's pid."""
        answer = self.ask("spawn", instance=instance, **order)
        assert "pid" in answer, answer
        return int(answer["pid"])

    def facts(self, instance: str, **order: Any) -> Any:
        return self.ask("ask", instance=instance, order=order)

    def said(self) -> str:
        """All that came on stderr and stdout so far."""
        return self.errors.read_text()

    def lines(self) -> list[str]:
        return [line for line in self.said().splitlines() if line.startswith("fornada: ")]

    # ---- processes

    def all(self) -> list[Process]:
        """Main and all below it, with everything that was seen there before."""
        for process in descendants(self.main.pid):
            self._known[process.pid] = process
        return list(self._known.values())

    def keeper_pid(self) -> int:
        return int(self.state()["keeper_pid"])

    def kill_control(self) -> tuple[int, int]:
        """kill -9, and the wait for the next. (old pid, new pid)"""
        old = int(self.state()["pid"])
        process = seen(old)
        os.kill(old, signal.SIGKILL)
        all_gone([process], within_s=2, what="the killed control plane")
        return old, int(until(self.answers, within_s=10, what="an answer of the next control plane")["pid"])

    def answers(self) -> Any:
        """The state, None while nobody answers."""
        try:
            return self.state()
        except ConnectionError:
            return None

    def signal(self, number: int) -> None:
        os.kill(self.main.pid, number)

    def wait(self, *, within_s: float) -> int:
        """Main's exit code."""
        return self.main.wait(bound(within_s))

    def nothing_left(self, *, within_s: float = GONE_S) -> None:
        """Asserts that no process that ever was seen below main is alive, within the promise itself."""
        limit = time.monotonic() + within_s
        left = [*self.all(), *marked(str(self.data))]
        while left := [process for process in left if process.alive]:
            assert time.monotonic() < limit, f"after {within_s} s there still are {left}"
            time.sleep(0.01)

    def end(self) -> None:
        """Whatever state it is in: gone afterwards."""
        self.all()
        if self.main.poll() is None:
            self.main.kill()
            self.main.wait(bound(5))
        for process in self._known.values():
            if process.alive:
                with contextlib.suppress(ProcessLookupError):  # it may end by itself meanwhile
                    os.kill(process.pid, signal.SIGKILL)
        all_gone(list(self._known.values()), within_s=5, what="the tree after its end")
        remove_groups(self.data)
