"""The peers: servers that others have written, each in an environment from its own lock, with the same network and the same stream.

In: which rows to serve.
Out: servers as bench.servers has them; a reason where there is none.
May import: bench; never what a peer installs.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path

from bench import network
from bench.clients import Target
from bench.peers.environments import CACHE, LOCKS, environment
from bench.servers import NotInstalled, free_port

NETWORK = CACHE / "network.onnx"
START_S = 60.0
STOP_S = 10.0
STREAM_BODY = b'{"x": [0.5]}'
ABSENT = ("Ray Serve", "KServe SDK", "TorchServe", "Triton")


class Peer:
    """One server of another project. It serves what it can; `rows` says what that is."""

    name = ""
    folder = ""
    """Below bench/peers: its lock and its code."""
    rows: frozenset[str] = frozenset({"onnx", "stream"})
    why_not: Mapping[str, str] = {}
    """Rows that it can't serve, with the reason."""

    def __init__(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="fornada-peer-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._port = free_port()

    def command(self, programs: Path, port: int) -> list[str]:
        """What starts it."""
        raise NotImplementedError

    def environ(self, port: int) -> dict[str, str]:
        return {}

    def path(self, row: str) -> str:
        return "/mlp" if row == "onnx" else "/stream"

    def body(self, row: str, body: bytes) -> bytes:
        """Our request, as it wants it."""
        return STREAM_BODY if row == "stream" else body

    def start(self, folders: Mapping[str, Path]) -> None:
        """Serves. Raises NotInstalled where it can't be installed or doesn't answer."""
        programs = environment(self.folder)
        network.write(NETWORK)
        environ = {"BENCH_NETWORK": str(NETWORK), "PYTHONPATH": str(LOCKS / self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        with (self._place / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self.command(programs, self._port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=LOCKS / self.folder,
                env={**os.environ, **environ, "PATH": path, "HOME": str(self._place), **self.environ(self._port)},
                start_new_session=True,
            )
        limit = time.monotonic() + START_S
        for row in self.rows.intersection(folders):
            while not self._answers(row):
                if self._process.poll() is not None or time.monotonic() > limit:
                    raise NotInstalled(f"doesn't answer at {self.path(row)}: {self._last_words()}")
                time.sleep(0.1)

    def _answers(self, row: str) -> bool:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            sample = json.dumps({"x": [0.5] * 784}).encode()
            connection.request("POST", self.path(row), self.body(row, sample), {"content-type": "application/json"})
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _last_words(self) -> str:
        lines = [line.strip() for line in (self._place / "log").read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "it said nothing"

    def target(self, row: str, body: bytes) -> Target:
        return Target("127.0.0.1", self._port, self.path(row), self.body(row, body))

    def pids(self, row: str) -> list[int]:
        return [self._process.pid] if self._process else []

    def front(self, row: str) -> int:
        """Unknown: which of its processes speaks HTTP is its own business."""
        return 0

    def stop(self) -> None:
        if self._process:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(self._process.pid, signal.SIGKILL)  # workers that outlive their parent
            except ProcessLookupError:
                pass
            self._process.wait()
        shutil.rmtree(self._place, ignore_errors=True)


class LitServe(Peer):
    name, folder = "LitServe", "litserve"

    def command(self, programs: Path, port: int) -> list[str]:
        return [str(programs / "python"), "server.py", str(port), str(NETWORK)]


class BentoML(Peer):
    name, folder = "BentoML", "bentoml"

    def command(self, programs: Path, port: int) -> list[str]:
        return [str(programs / "bentoml"), "serve", "service:Bench", "--host", "127.0.0.1", "--port", str(port)]

    def environ(self, port: int) -> dict[str, str]:
        return {"BENTOML_HOME": str(self._place), "BENTOML_DO_NOT_TRACK": "True"}


class MLServer(Peer):
    """With its models in the process that speaks HTTP."""

    name, folder = "MLServer in-process", "mlserver"
    workers = 0

    def command(self, programs: Path, port: int) -> list[str]:
        return [str(programs / "mlserver"), "start", "."]

    def environ(self, port: int) -> dict[str, str]:
        ports = {f"MLSERVER_{name}_PORT": str(free_port()) for name in ("GRPC", "METRICS")}
        return {
            **ports,
            "MLSERVER_HOST": "127.0.0.1",
            "MLSERVER_HTTP_PORT": str(port),
            "MLSERVER_PARALLEL_WORKERS": str(self.workers),
            "MLSERVER_GZIP_ENABLED": "false",  # a stream would wait in it
            "MLSERVER_DEBUG": "false",
        }

    def path(self, row: str) -> str:
        return "/v2/models/mlp/infer" if row == "onnx" else "/v2/models/stream/infer_stream"

    def body(self, row: str, body: bytes) -> bytes:
        numbers = json.loads(body)["x"]
        return json.dumps({"inputs": [{"name": "x", "shape": [1, len(numbers)], "datatype": "FP32", "data": numbers}]}).encode()


class MLServerWorkers(MLServer):
    """With one worker process beside it."""

    name = "MLServer with workers"
    workers = 1
    rows = frozenset({"onnx"})
    why_not: Mapping[str, str] = {"stream": "doesn't stream out of a worker"}


PEERS: tuple[type[Peer], ...] = (LitServe, BentoML, MLServer, MLServerWorkers)


def not_served(rows: Sequence[str]) -> list[str]:
    """One line for what isn't measured here, with the reason."""
    lines = [f"{kind.name}: no row {row}: it {why}" for kind in PEERS for row, why in kind.why_not.items() if row in rows]
    return [*lines, f"{', '.join(ABSENT)}: not measured: bench has no server for them"]
