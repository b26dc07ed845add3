"""What model code is given beside its input: the instance's device, artifacts, settings and log, and the request at hand."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Callable

from fornada_sdk.api import OutOfDeviceMemory

if TYPE_CHECKING:
    from pathlib import Path  # it and tempfile take 8 ms to import, which most models need not spend

CURRENT: ContextVar[Context | None] = ContextVar("fornada_request", default=None)
"""The request that this thread or task works on: output is tied to it."""

LogSink = Callable[[str, str, Mapping[str, Any]], None]
ProgressSink = Callable[[str, "float | None"], None]
AllocateSink = Callable[[int, float], None]


class Device:
    """Where the instance runs. `id` is "cpu" or "cuda:N", `kind` cpu, fake or cuda; `memory_bytes` is what it may use there."""

    def __init__(self, id: str = "cpu", kind: str = "cpu", memory_bytes: int = 0, allocate: AllocateSink | None = None) -> None:
        self.id = id
        self.kind = kind
        self.memory_bytes = memory_bytes
        self._allocate = allocate

    def allocate(self, bytes: int, *, release_delay_s: float = 0.0) -> None:
        """Books memory on a fake device, until this process is gone and the device's delay (or `release_delay_s`) is over.

        Raises OutOfDeviceMemory. On a real device and outside of a node it does nothing: the driver keeps its own books.
        """
        if bytes < 0:
            raise ValueError("a negative number of bytes")
        if self._allocate is not None and self.kind == "fake":
            self._allocate(int(bytes), float(release_delay_s))


class Artifacts(Mapping[str, "Path"]):
    """The model's artifacts: the path in model.toml -> where the file lies."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, path: str) -> Path:
        from pathlib import Path

        if path not in self._places:
            raise KeyError(f"model.toml declares no artifact '{path}'; it has {', '.join(self._places) or 'none'}")
        return Path(self._places[path])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class Log:
    """The model's log: `context.log.info("index built", rows=3)`. Lines carry the id of the request at hand."""

    def __init__(self, sink: LogSink) -> None:
        self._sink = sink

    def debug(self, message: object, **fields: Any) -> None:
        self._sink("debug", str(message), fields)

    def info(self, message: object, **fields: Any) -> None:
        self._sink("info", str(message), fields)

    def warning(self, message: object, **fields: Any) -> None:
        self._sink("warning", str(message), fields)

    def error(self, message: object, **fields: Any) -> None:
        self._sink("error", str(message), fields)


def log_line(level: str, message: str, fields: Mapping[str, Any]) -> str:
    """A log entry as one line of text."""
    return " ".join([level, message, *(f"{name}={value}" for name, value in fields.items())])


def _log_to_stderr(level: str, message: str, fields: Mapping[str, Any]) -> None:
    sys.stderr.write(log_line(level, message, fields) + "\n")


def _no_progress(text: str, fraction: float | None) -> None:
    pass


class Instance:
    """What all contexts of one instance share."""

    def __init__(
        self,
        *,
        model: str = "",
        version: str = "",
        instance: str = "",
        device: Device | None = None,
        artifacts: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
        scratch: str = "",
        load_attempt: int = 1,
        load_count: int = 1,
        pid: int = 0,
        log: LogSink = _log_to_stderr,
        progress: ProgressSink = _no_progress,
    ) -> None:
        self.model = model
        self.version = version
        self.instance = instance
        self.device = device or Device()
        self.artifacts = Artifacts(artifacts or {})
        self.settings: dict[str, Any] = dict(settings or {})
        self.load_attempt = load_attempt
        self.load_count = load_count
        self.log = Log(log)
        self.progress = progress
        self.pid = pid or outer_pid()
        self.outputs: Sequence[Any] = ()
        """The tensors that the model answers (runner.engines.Tensor); set once it is loaded."""
        self.wait: Callable[[Any, Callable[[], bool]], None] | None = None
        """How the runner lets sync code wait for what comes later."""
        self._scratch = scratch

    def scratch(self) -> Path:
        from pathlib import Path

        if not self._scratch:
            import tempfile

            self._scratch = tempfile.mkdtemp(prefix="fornada-scratch-")
        place = Path(self._scratch)
        place.mkdir(mode=0o700, exist_ok=True)  # in a process that others share it is made for whoever asks
        return place


def outer_pid() -> int:
    """This process in the pid namespace that /proc shows, which is the operator's: os.getpid() may be 1."""
    try:
        return int(os.readlink("/proc/self"))
    except (OSError, ValueError):
        return os.getpid()


class Context:
    """Given to every method of a model. While loading there is no request: `request_id` is "" and `cancelled` is False."""

    _cancelled = False
    _usage: dict[str, Any] | None = None

    def __init__(self, instance: Instance) -> None:
        self._instance = instance

    @classmethod
    def inactive(
        cls,
        *,
        settings: Mapping[str, Any] | None = None,
        artifacts: Mapping[str, str] | None = None,
        scratch: str = "",
        model: str = "",
    ) -> Context:
        """A context outside of any server, to try model code with. Its log goes to stderr."""
        return Context(Instance(model=model, settings=settings, artifacts=artifacts, scratch=scratch))

    @property
    def cancelled(self) -> bool:
        """True once the caller has gone. Long work looks now and then and returns; what it returns is thrown away."""
        return self._cancelled

    @property
    def request_id(self) -> str:
        """The request's id, as the caller and every log line know it."""
        return ""

    @property
    def usage(self) -> dict[str, Any]:
        """What the request used, for its bill: set "input_tokens" and "output_tokens" where there are tokens."""
        if self._usage is None:
            self._usage = {}
        return self._usage

    @property
    def device(self) -> Device:
        return self._instance.device

    @property
    def artifacts(self) -> Artifacts:
        """`context.artifacts["weights/model.onnx"]` is a pathlib.Path."""
        return self._instance.artifacts

    @property
    def settings(self) -> dict[str, Any]:
        """[settings] of model.toml."""
        return self._instance.settings

    @property
    def log(self) -> Log:
        return self._instance.log

    @property
    def scratch(self) -> Path:
        """A directory to write to; it is emptied when the instance is gone."""
        return self._instance.scratch()

    @property
    def pid(self) -> int:
        """This process, as the operator's kill and /proc know it."""
        return self._instance.pid

    @property
    def model(self) -> str:
        return self._instance.model

    @property
    def version(self) -> str:
        return self._instance.version

    @property
    def instance(self) -> str:
        """The instance's id; a new process is a new one."""
        return self._instance.instance

    @property
    def load_attempt(self) -> int:
        """1 for the first try to load this model since it was registered or reset."""
        return self._instance.load_attempt

    @property
    def load_count(self) -> int:
        """1 for the first load of this model on this node since it was registered."""
        return self._instance.load_count

    def progress(self, text: str, fraction: float | None = None) -> None:
        """While loading: says how far it is, `fraction` from 0 to 1. It also keeps load_timeout_s from running out."""
        self._instance.progress(text, fraction)


__all__ = ["Artifacts", "Context", "Device", "Instance", "Log", "OutOfDeviceMemory"]
