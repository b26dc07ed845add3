"""Keeps what decided about memory and what was decided, for whom `fornada.simulate` is to show it again. Off unless the operator wants it."""

from collections.abc import Callable
from pathlib import Path

from fornada.core.names import Instant, ModelName
from fornada.core.policy.demand import hour_of
from fornada.core.policy.record import Came, Entry, Gone, Known, Learned, Ready, Slept, line
from fornada.core.resources import parse_size
from fornada.core.settings import NodeSettings
from fornada.node.worth import Asked, Worth
from fornada.telemetry.files import RotatingFile

NAME = "choices.log"


def recorder_of(settings: NodeSettings, folder: Path, *, wall: Callable[[], float]) -> "Recorder | None":
    """None: the operator doesn't want any."""
    kept_bytes = parse_size(settings.record_choices)
    return Recorder(folder / NAME, max_bytes=kept_bytes, wall=wall) if kept_bytes else None


class Recorder:
    """One file of a bounded size: what is older than its bound is lost."""

    def __init__(self, path: Path, *, max_bytes: int, wall: Callable[[], float]) -> None:
        self._file = RotatingFile(path, max_bytes=max_bytes)
        self._wall = wall
        self._closed = False

    def note(self, entry: Entry) -> None:
        if not self._closed:
            self._file.append(line(entry))

    def asked(self, model: ModelName, now: Instant) -> Asked:
        """Of a version, whose intakes count its requests."""
        self.note(Known(now, model, hour_of(self._wall())))
        return _Asked(self, model, now)

    def worth(self, model: ModelName, now: Instant) -> Worth:
        """Of an instance, which tells it what happens to it."""
        return _Worth(self, model, now)

    def close(self) -> None:
        """What still happens to instances isn't this control plane's."""
        self._closed = True
        self._file.close()


class _Asked(Asked):
    """Of one version."""

    def __init__(self, recorder: Recorder, model: ModelName, now: Instant) -> None:
        super().__init__(now)
        self._tell: Callable[[Instant], None] = lambda at: recorder.note(Came(at, model))

    def __setattr__(self, name: str, value: object) -> None:
        # Intakes only count, since they do so on the way of each request: here alone somebody wants to know of each.
        super().__setattr__(name, value)
        if name == "at" and isinstance(value, float) and hasattr(self, "_tell"):
            self._tell(Instant(value))


class _Worth(Worth):
    """Of one instance."""

    def __init__(self, recorder: Recorder, model: ModelName, now: Instant) -> None:
        super().__init__(now)
        self._recorder = recorder
        self._model = model

    def opened(self, now: Instant) -> None:
        super().opened(now)
        self._recorder.note(Ready(now, self._model, self.ladder))

    def offers_sleep(self, now: Instant, *, step_s: float, host_bytes: int) -> None:
        super().offers_sleep(now, step_s=step_s, host_bytes=host_bytes)
        self._recorder.note(Learned(now, self._model, self.ladder))

    def slept(self, now: Instant, *, answered_at: Instant, device_bytes: int, host_bytes: int) -> None:
        super().slept(now, answered_at=answered_at, device_bytes=device_bytes, host_bytes=host_bytes)
        self._recorder.note(Slept(now, self._model, self.ladder))

    def released(self, now: Instant, *, answered_at: Instant) -> None:
        super().released(now, answered_at=answered_at)
        self._recorder.note(Gone(now, self._model, self.ladder))
