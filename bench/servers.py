"""The servers that are compared. Each can be started, says where a row's model is, and ends without a trace."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bench.clients import Target
from bench.yardstick.runner import start_runner

REPOSITORY = Path(__file__).parents[1]
MODELS = Path(__file__).parent / "models"
START_S = 60.0
PACKAGES_S = 600.0
"""An environment with numpy, on a slow line."""


class NotInstalled(Exception):
    """A peer that this machine doesn't have; the message says what is missing."""


class Server(Protocol):
    """One server with the models of all rows."""

    name: str
    rows: frozenset[str]
    """What it can serve."""

    def start(self, folders: dict[str, Path]) -> None:
        """Serves the model folder of each row. Raises NotInstalled."""

    def target(self, row: str, body: bytes) -> Target: ...

    def pids(self, row: str) -> list[int]:
        """Roots of the process trees that answer a row's requests."""

    def front(self, row: str) -> int:
        """The process that speaks HTTP."""

    def stop(self) -> None: ...


class Ours:
    """`fornada serve` with everything on, keys too."""

    name = "fornada"
    rows = frozenset({"echo", "mlp", "onnx", "stream"})
    isolation = "auto"
    locked = True

    def __init__(self, config: str = "[node]\n") -> None:
        """`config` is the beginning of fornada.toml, which ends in [node]."""
        self._config = config
        self._place = Path(tempfile.mkdtemp(prefix="fornada-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._names: dict[str, str] = {}
        self._token = "bench"

    def start(self, folders: dict[str, Path]) -> None:
        self.boot()
        for row, folder in folders.items():
            self.deploy(row, folder)
            self.load(row)

    def boot(self) -> float:
        """Seconds until it takes requests."""
        data = self._place / "data"
        cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache/uv")
        (self._place / "fornada.toml").write_text(f"{self._config}drain_s = 2\n[provision]\ncache_dir = {json.dumps(cache)}\n")
        program = Path(sys.executable).parent / "fornada"
        if self.locked and not data.exists():
            key = [program, "keys", "create", "--account", "local", "--role", "admin", "--data-dir", data, "--json"]
            done = subprocess.run([str(word) for word in key], capture_output=True, check=True)
            self._token = json.loads(done.stdout)["key"]
        command = [
            program,
            "serve",
            "--port",
            "0",
            "--data-dir",
            data,
            "--config",
            self._place / "fornada.toml",
            "--isolation",
            self.isolation,
        ]
        began = time.monotonic()
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._url = waited(lambda: json.loads((data / "run/node.json").read_text())["url"], "run/node.json")
        waited(lambda: urlopen(f"{self._url}/health/ready", timeout=5).status == 200, "/health/ready")
        return time.monotonic() - began

    def deploy(self, row: str, folder: Path) -> None:
        self._names[row] = f"@bench/{row}"
        self._call("PUT", f"/api/v1/models/@bench/{row}", _packed(folder))

    def know(self, row: str, model: str) -> None:
        """The row's model is one that the node has anyway."""
        self._names[row] = model

    def load(self, row: str) -> None:
        self._call("POST", f"/api/v1/models/{self._names[row]}/load", b"")

    def unload(self, row: str) -> None:
        self._call("POST", f"/api/v1/models/{self._names[row]}/unload", b"")

    def submit(self, row: str, requests: list[Any]) -> str:
        """A job of them; its id."""
        body = json.dumps({"requests": requests}).encode()
        answer = self._call("POST", f"/client/v4/accounts/local/ai/run/{self._names[row]}?queueRequest=true", body)
        return str(json.loads(answer)["result"]["request_id"])

    def job(self, id: str) -> dict[str, Any]:
        """As the node shows it."""
        return dict(json.loads(self._call("GET", f"/api/v1/jobs/{id}")))

    def cancel(self, id: str) -> None:
        self._call("POST", f"/api/v1/jobs/{id}/cancel", b"")

    def pid_of(self, row: str) -> int:
        """The process of the row's one instance."""
        return int(self.instance_of(row)["pid"])

    def instance_of(self, row: str) -> dict[str, Any]:
        """As the node shows it."""
        return dict(json.loads(self._call("GET", f"/api/v1/models/{self._names[row]}"))["instances"][0])

    def artifact_bytes(self, sha256: str) -> int:
        """Of what was fetched."""
        return (self._place / "data/artifacts" / sha256).stat().st_size

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the node's log has under that name, in order."""
        lines = map(json.loads, (self._place / "data/logs/node.log").read_text().splitlines())
        return [line for line in lines if line.get("event") == name]

    def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"content-type": "application/gzip", "authorization": f"Bearer {self._token}"}
        try:
            with urlopen(Request(self._url + path, data=body, method=method, headers=headers), timeout=PACKAGES_S) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()}") from None

    def target(self, row: str, body: bytes) -> Target:
        host, _, port = self._url.removeprefix("http://").partition(":")
        return Target(host, int(port), f"/client/v4/accounts/local/ai/run/{self._names[row]}", body, self._token)

    def pids(self, row: str) -> list[int]:
        return [self._process.pid] if self._process else []

    def front(self, row: str) -> int:
        return int(json.loads((self._place / "data/run/node.json").read_text())["control_pid"])

    def halt(self) -> None:
        """Its data stays, for another boot."""
        if self._process:
            end(self._process)
            self._process = None

    def stop(self) -> None:
        self.halt()
        shutil.rmtree(self._place, ignore_errors=True)


class Unconfined(Ours):
    """The same without isolation: what that costs a request."""

    name = "unconfined"
    rows = frozenset({"echo", "mlp"})
    isolation = "none"


class Unlocked(Ours):
    """The same in open mode: what keys cost a request."""

    name = "open mode"
    rows = frozenset({"echo", "mlp"})
    locked = False


class Yardstick:
    """bench/yardstick: one uvicorn front and one runner for each row."""

    name = "uvicorn"
    rows = frozenset({"echo", "mlp"})

    def __init__(self) -> None:
        self._running: dict[str, tuple[int, list[subprocess.Popen[bytes]], socket.socket]] = {}

    def start(self, folders: dict[str, Path]) -> None:
        for row in self.rows.intersection(folders):
            folder = folders[row]
            runner, keeper_end, front_end = start_runner(folder)
            port = free_port()
            with front_end:
                command = [sys.executable, "-m", "bench.yardstick.app", str(port), str(front_end.fileno())]
                front = subprocess.Popen(command, pass_fds=[front_end.fileno()], cwd=REPOSITORY, stdin=subprocess.DEVNULL)
            self._running[row] = (port, [front, runner], keeper_end)
            waited(lambda port=port: urlopen(f"http://127.0.0.1:{port}/", timeout=5).status == 200, "the yardstick")

    def target(self, row: str, body: bytes) -> Target:
        return Target("127.0.0.1", self._running[row][0], "/", body)

    def pids(self, row: str) -> list[int]:
        return [process.pid for process in self._running[row][1]]

    def front(self, row: str) -> int:
        return self._running[row][1][0].pid

    def stop(self) -> None:
        for _, processes, keeper_end in self._running.values():
            keeper_end.close()
            for process in processes:
                end(process)
        self._running.clear()


def end(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _packed(folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path in sorted(folder.glob("*.*")):
            archive.add(path, arcname=path.name)
    return out.getvalue()


def free_port() -> int:
    """One that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def waited(check, what: str, *, within_s: float = START_S):  # type: ignore[no-untyped-def]
    limit = time.monotonic() + within_s
    while True:
        try:
            if found := check():
                return found
        except (OSError, ValueError, KeyError):
            pass
        if time.monotonic() > limit:
            raise RuntimeError(f"no {what} after {within_s:g} s")
        time.sleep(0.002)
