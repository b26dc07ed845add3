"""A real node: `fornada serve` in a directory of its own, on a free port, ended with proof that nothing is left of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from tests.bounds import bound
from tests.harness.bundles import packed, write_probe
from tests.harness.client import Address, Closed, Connection, Events, Response
from tests.harness.metrics import Metrics
from tests.harness.processes import Process, alive, all_gone, descendants, marked
from tests.harness.recorder import through
from tests.harness.waiting import until
from tests.harness.walls import remove_groups

FORNADA = Path(sys.executable).parent / "fornada"
DEFAULT_CONFIG = "[node]\ndrain_s = 5\nkill_s = 2\n"
RUN = "/client/v4/accounts/local/ai/run/"
START_S = 20.0
"""Bound of a start; the promise of 3 s has a test of its own."""


class NodeFailed(AssertionError):
    """The node didn't do what every node must: start, answer, end."""


class Node:
    """One data directory and the `fornada serve` on it. It may be started again after it ended."""

    live: ClassVar[list["Node"]] = []
    """All that run now, so that a failing test can show what they said."""

    def __init__(
        self,
        directory: Path,
        *,
        config: str = DEFAULT_CONFIG,
        flags: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.directory = directory
        self.data_dir = directory / "data"
        self.flags = list(flags)
        self.prefix = list(prefix)
        """Words before `fornada`: a program that ends by executing the rest of its arguments."""
        self.deployed: list[str] = []
        self._environ = dict(environ or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._copies = 0
        directory.mkdir(parents=True, exist_ok=True)
        self.config = directory / "fornada.toml"
        self.config.write_text(with_cache(config))
        self.stderr = directory / "stderr"
        self.stdout = directory / "stdout"

    # ---- life -----------------------------------------------------------------------------------------------------------

    def spawn(self) -> "subprocess.Popen[bytes]":
        """`fornada serve` without waiting for anything."""
        assert self._process is None or self._process.poll() is not None, "it runs already"
        command = [
            *self.prefix,
            str(FORNADA),
            "serve",
            "--port",
            "0",
            "--data-dir",
            str(self.data_dir),
            "--config",
            str(self.config),
            *self.flags,
        ]
        (self.data_dir / "run/node.json").unlink(missing_ok=True)
        with self.stdout.open("ab") as out, self.stderr.open("ab") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=node_environ(self._environ), cwd=self.directory
            )
        Node.live.append(self)
        return self._process

    def start(self) -> "Node":
        """Starts it and waits until /health/ready says 200. Raises NodeFailed with what it wrote."""
        self.spawn()
        self.wait_ready()
        return self

    def wait_ready(self, *, within_s: float = START_S, ready: bool = True) -> None:
        limit = time.monotonic() + bound(within_s)
        while not (self._record() and self.ready() == ready):
            if self.process.poll() is not None:
                raise NodeFailed(f"fornada serve ended with {self.process.returncode} before it was ready\n{self.said()}")
            if time.monotonic() > limit:
                raise NodeFailed(f"/health/ready is not {200 if ready else 503} after {within_s} s\n{self.said()}")
            time.sleep(0.02)

    def wait_next_control_plane(self, *, after_pid: int, within_s: float = 10) -> None:
        """Waits until another control plane than `after_pid` is ready."""
        until(lambda: self.ready() and self.control_pid != after_pid, within_s=within_s, what="a new control plane is ready")

    def ready(self) -> bool:
        """Whether /health/ready says 200."""
        try:
            return self.fetch("GET", "/health/ready", timeout_s=2).status == 200
        except OSError:
            return False

    def stop(self) -> int:
        """SIGTERM, and the exit status. Nothing of the node may be left."""
        if self.process.poll() is None:
            tree = self.tree()
            self.process.send_signal(signal.SIGTERM)
            status = self.wait()
            all_gone(tree, within_s=3, what="processes left after the node had ended")
        else:
            status = self.wait()
        self.nothing_left()
        return status

    def kill(self) -> None:
        """SIGKILL to main; the tree must follow by itself."""
        tree = self.tree()
        self.process.kill()
        self.wait()
        all_gone(tree, within_s=3, what="processes left after main was killed")

    def wait(self, *, within_s: float = 20) -> int:
        """Waits for the end of `fornada serve`; its exit status."""
        try:
            status = self.process.wait(bound(within_s))
        except subprocess.TimeoutExpired:
            raise NodeFailed(f"fornada serve still runs after {within_s} s\n{self.said()}") from None
        if self in Node.live:
            Node.live.remove(self)
        return status

    def destroy(self) -> None:
        """Ends whatever is left, for the clean-up after a failed test. Never raises."""
        if self._process is None:
            return
        tree = descendants(self._process.pid) if self._process.poll() is None else []
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        left = [process for process in [*tree, *marked(str(self.data_dir))] if process.alive]
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            all_gone(left, within_s=3, what="what was left of the node")
        remove_groups(self.data_dir)
        if self in Node.live:
            Node.live.remove(self)

    def nothing_left(self) -> None:
        """No process that belongs to this data directory lives."""
        until(lambda: not marked(str(self.data_dir)), within_s=3, what=f"nothing left of the node: {marked(str(self.data_dir))}")

    # ---- what it is -------------------------------------------------------------------------------------------------------

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "it was never started"
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def record(self) -> dict[str, Any]:
        """run/node.json. Raises NodeFailed while there is none: before it is ready."""
        record = self._record()
        if not record:
            raise NodeFailed(f"no run/node.json\n{self.said()}")
        return record

    @property
    def files(self) -> Path:
        """The data directory as this process sees it: another path where the node has mounts of its own."""
        return Path(f"/proc/{self.process.pid}/root{self.data_dir}") if self.prefix else self.data_dir

    def _record(self) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads((self.files / "run/node.json").read_text())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return record

    @property
    def control_pid(self) -> int:
        return int(self.record["control_pid"])

    @property
    def keeper_pid(self) -> int:
        return int(self.record["keeper_pid"])

    @property
    def url(self) -> str:
        """Where clients ask it."""
        return through(str(self.record["url"]))

    def url_of(self, client: str) -> str:
        """Where a client asks it whose requests name no more than an HTTP library."""
        return through(str(self.record["url"]), client)

    @property
    def address(self) -> Address:
        parts = urlsplit(str(self.record["url"]))
        assert parts.hostname and parts.port
        return parts.hostname, parts.port

    def tree(self) -> list[Process]:
        """Everything below `fornada serve`."""
        return descendants(self.process.pid)

    def said(self, last: int = 25) -> str:
        """The last lines of stderr, stdout and the node's log."""
        parts = []
        for path in (self.stderr, self.stdout, self.data_dir / "logs/node.log"):
            if path.exists():
                lines = [line for line in path.read_text(errors="replace").splitlines() if '"level":"debug"' not in line][-last:]
                parts.append(f"--- {path}\n" + "\n".join(line[:1000] for line in lines))
        return "\n".join(parts)

    # ---- asking -----------------------------------------------------------------------------------------------------------

    def connect(self, *, timeout_s: float = 10, receive_buffer: int = 0) -> Connection:
        return Connection(self.address, timeout_s, receive_buffer)

    def fetch(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 30,
        chunked: bool = False,
    ) -> Response:
        """One request on a connection of its own. `payload` is sent as JSON."""
        fields = dict(headers or {})
        if payload is not None:
            body = json.dumps(payload).encode()
            fields.setdefault("content-type", "application/json")
        with self.connect(timeout_s=timeout_s) as connection:
            connection.send_request(method, target, body, fields, chunked=chunked)
            return connection.read_response(of=method)

    def run(self, model: str, payload: Any, *, headers: Mapping[str, str] | None = None, timeout_s: float = 30) -> Response:
        """POST ai/run."""
        return self.fetch("POST", run_path(model), payload=payload, headers=headers, timeout_s=timeout_s)

    def cut_off(self, model: str, payload: Any) -> None:
        """A run that must end with the node: with its connection, or with a word of why, where the control plane outlives the keeper for a
        moment and says that it has lost it."""
        try:
            answer = self.run(model, payload)
        except (Closed, ConnectionError):
            return
        if (answer.status, answer.code) == (503, 3100):
            return
        raise AssertionError(f"expected the connection to end, got {answer.status} {answer.body[:300]!r}")

    def ask(self, model: str, payload: Any, *, timeout_s: float = 30) -> Any:
        """`result` of a run that must succeed."""
        return self.run(model, payload, timeout_s=timeout_s).result

    def stream(self, model: str, payload: Mapping[str, Any], *, timeout_s: float = 30) -> Events:
        """A run with "stream": true, to its end."""
        with self.open_stream(model, payload, timeout_s=timeout_s) as connection:
            return connection.events_to_end()

    def open_stream(self, model: str, payload: Mapping[str, Any], *, timeout_s: float = 30, receive_buffer: int = 0) -> Connection:
        """The connection of a streaming run whose request was sent."""
        connection = self.connect(timeout_s=timeout_s, receive_buffer=receive_buffer)
        connection.send_request("POST", run_path(model), json.dumps({**payload, "stream": True}).encode())
        return connection

    # ---- models -----------------------------------------------------------------------------------------------------------

    def put(self, name: str, bundle: bytes, *, label: str = "", headers: Mapping[str, str] | None = None) -> Response:
        """PUT of a bundle, whatever comes of it."""
        query = f"?label={label}" if label else ""
        fields = {"content-type": "application/gzip", **(headers or {})}
        self.deployed.append(name)
        return self.fetch("PUT", f"/api/v1/models/{quote(name, safe='/@')}{query}", bundle, headers=fields, timeout_s=60)

    def deploy(self, name: str, bundle: bytes | Path, *, label: str = "") -> dict[str, Any]:
        """Deploys a bundle or a folder, which must succeed; {"name","version","state"}."""
        answer = self.put(name, packed(bundle) if isinstance(bundle, Path) else bundle, label=label)
        assert answer.status == 200, f"deploying {name}: {answer.status} {answer.body[:2000]!r}"
        body: dict[str, Any] = answer.json()
        return body

    def deploy_probe(
        self,
        name: str,
        *,
        settings: Mapping[str, Any] | None = None,
        serving: Mapping[str, Any] | None = None,
        resources: Mapping[str, Any] | None = None,
        label: str = "",
    ) -> dict[str, Any]:
        """Deploys a copy of the probe model."""
        self._copies += 1
        folder = self.directory / "probes" / str(self._copies)
        return self.deploy(name, write_probe(folder, name, settings=settings, serving=serving, resources=resources), label=label)

    def model(self, name: str) -> dict[str, Any]:
        """M of the model."""
        answer = self.fetch("GET", admin_path(name))
        assert answer.status == 200, f"{name}: {answer.status} {answer.body[:500]!r}"
        body: dict[str, Any] = answer.json()
        return body

    def state(self, name: str) -> str:
        return str(self.model(name)["state"])

    def pids(self, name: str) -> list[int]:
        """The pids of the model's live instances."""
        return [int(instance["pid"]) for instance in self.model(name)["instances"] if instance["pid"]]

    def wait_state(self, name: str, state: str, *, within_s: float = 15) -> dict[str, Any]:
        """M, once it is in `state`."""
        until(lambda: self.state(name) == state, within_s=within_s, what=f"{name} is {state}")
        return self.model(name)

    def act(self, name: str, verb: str, payload: Any = None, *, query: str = "", timeout_s: float = 60) -> Response:
        """POST of a verb: load, unload, reset, pin."""
        return self.fetch("POST", f"{admin_path(name)}/{verb}{query}", payload=payload, timeout_s=timeout_s)

    def load(self, name: str) -> dict[str, Any]:
        """Loads it, which must succeed; M."""
        answer = self.act(name, "load")
        assert answer.status == 200, f"loading {name}: {answer.status} {answer.body[:1000]!r}"
        return self.model(name)

    def unload(self, name: str, *, grace_s: float | None = None) -> Response:
        answer = self.act(name, "unload", query="" if grace_s is None else f"?grace={grace_s:g}")
        assert answer.status == 200, f"unloading {name}: {answer.status} {answer.body[:1000]!r}"
        return answer

    def remove(self, name: str) -> Response:
        return self.fetch("DELETE", admin_path(name))

    def log_lines(self, name: str) -> list[dict[str, Any]]:
        """The model's own output: {"time","stream","line","instance","request_id"} each."""
        answer = self.fetch("GET", f"{admin_path(name)}/logs")
        assert answer.status == 200, answer
        return [json.loads(line) for line in answer.body.decode().splitlines() if line.strip()]

    def probe_log(self, name: str) -> list[dict[str, Any]]:
        """The JSON lines that the probe wrote to its stdout."""
        found = []
        for line in self.log_lines(name):
            try:
                value = json.loads(line["line"])
            except ValueError:
                continue
            if isinstance(value, dict):
                found.append(value)
        return found

    def forget_models(self) -> None:
        """Removes what was deployed through this object, for a node that tests share."""
        for name in dict.fromkeys(self.deployed):
            try:
                self.fetch("DELETE", admin_path(name), timeout_s=20)
            except (OSError, Closed):
                break
        self.deployed.clear()

    # ---- numbers ------------------------------------------------------------------------------------------------------------

    def metrics(self) -> Metrics:
        answer = self.fetch("GET", "/metrics")
        assert answer.status == 200, answer
        return Metrics(answer.body.decode())

    def loads(self, name: str) -> int:
        """fornada_model_loads_total of the model, without the failed ones."""
        metrics = self.metrics()
        failed = metrics.total("fornada_model_loads_total", model=name, outcome="failed")
        return int(metrics.total("fornada_model_loads_total", model=name) - failed)

    def alive(self) -> bool:
        """Whether main, keeper and control plane live and the node answers."""
        return self.running and alive(self.keeper_pid) and self.ready()


def run_path(model: str) -> str:
    """Path of ai/run for a model, its name spelled as curl users do."""
    return RUN + quote(model, safe="/@:")


def admin_path(name: str) -> str:
    return f"/api/v1/models/{quote(name, safe='/@:')}"


def node_environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a node's process inherits: ours without FORNADA_*, which would change settings behind the test's back."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("FORNADA_", "PYTEST_", "COVERAGE_"))}
    return {**kept, **(extra or {})}


def with_cache(config: str) -> str:
    """`config` with a uv cache shared by all nodes of all tests, unless it names one."""
    if "cache_dir" in config:
        return config
    cache = os.environ.get("UV_CACHE_DIR") or str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uv")
    line = f"cache_dir = {json.dumps(cache)}"
    if "[provision]" in config:
        return config.replace("[provision]", f"[provision]\n{line}", 1)
    return f"{config}\n[provision]\n{line}\n"
