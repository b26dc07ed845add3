"""Logs, metrics and traces: how a node says what it does.

In: named events with fields; numbers; what models print.
Out: lines on stderr and in DATA_DIR/logs, the text of `/metrics`.
May import: `core`, `fornada_sdk.wire`.
"""

from pathlib import Path

from fornada.core.names import ModelName
from fornada.core.ports import Clock
from fornada.telemetry.log import Level, Log
from fornada.telemetry.metrics import Metrics
from fornada.telemetry.output import Outputs

__all__ = ["AUDIT", "Level", "Log", "Metrics", "Outputs", "Telemetry"]


AUDIT = "logs/audit.log"
"""Below the data directory."""


class Telemetry:
    """A node's log, its numbers and the output of its models, under `data_dir`/logs."""

    def __init__(
        self,
        *,
        clock: Clock,
        data_dir: Path,
        log_bytes: int = 16 * 1024**2,
        stream: int | None = 2,
        stream_level: Level = Level.INFO,
    ) -> None:
        """`log_bytes` bounds the node's log, and each model's output. `stream` is the descriptor that repeats the log; None: no stream."""
        folder = data_dir / "logs"
        self.log = Log(clock=clock, stream=stream, stream_level=stream_level, file=folder / "node.log", max_bytes=log_bytes)
        self.audit = Log(clock=clock, file=data_dir / AUDIT, max_bytes=log_bytes)
        """What people have done to the node and to its keys."""
        self.metrics = Metrics()
        self.outputs = Outputs(folder / "models", wall=clock.wall, max_bytes=log_bytes)

    def forget(self, model: ModelName) -> None:
        """The model is gone from the catalogue: what it printed goes, and its numbers."""
        self.outputs.forget(model)
        self.metrics.forget(model)

    def close(self) -> None:
        self.log.close()
        self.audit.close()
        self.outputs.close()
