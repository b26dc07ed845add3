"""Faults that have names: models that are the probe in everything, and do one thing wrong.

    SlowLoad(3).write(folder, name="@test/slow")       a model folder to deploy

Each says in its docstring what it does; a test that needs another fault gives it a name here.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fornada.testing.probe.writer import write_probe


class Fault:
    """What all of them share: a copy of the probe, with `settings`, and `code` around it where settings aren't enough."""

    def settings(self) -> dict[str, Any]:
        return {}

    def code(self) -> str:
        """Body of a class derived from the probe's Model; "" where the probe itself will do."""
        return ""

    def write(
        self, folder: Path, *, name: str = "", serving: Mapping[str, Any] | None = None, resources: Mapping[str, Any] | None = None
    ) -> Path:
        """Writes the model folder and returns it. Without a name it is called after the fault."""
        name = name or f"@test/{type(self).__name__.lower()}"
        write_probe(folder, name=name, settings=self.settings(), serving=serving, resources=resources)
        body = textwrap.dedent(self.code()).strip()
        if body:
            (folder / "model.py").rename(folder / "probe.py")
            (folder / "model.py").write_text(f"{_PROLOGUE}\n\nclass Model(probe.Model):\n{textwrap.indent(body, '    ')}\n")
        return folder


_PROLOGUE = "import atexit\nimport os\nimport sys\nimport time\n\nimport probe"


@dataclass(frozen=True)
class SlowLoad(Fault):
    """Takes `load_s` seconds to load, without a word unless `tells_progress`."""

    load_s: float
    tells_progress: bool = False

    def settings(self) -> dict[str, Any]:
        return {"load_s": self.load_s, "load_progress": self.tells_progress}


@dataclass(frozen=True)
class NeverReady(Fault):
    """Loads for ever, and tells no progress."""

    def code(self) -> str:
        return """
            def load(self, context):
                super().load(context)
                while True:
                    time.sleep(3600)
        """


@dataclass(frozen=True)
class FailsToLoad(Fault):
    """Raises while loading, the first `times` times; "inf" for always."""

    times: float | str = "inf"

    def settings(self) -> dict[str, Any]:
        return {"fail_load_n": self.times}


@dataclass(frozen=True)
class FailsToWarmUp(Fault):
    """Loads, and raises in its warm-up."""

    def code(self) -> str:
        return """
            def warmup(self, context):
                raise RuntimeError("cold for ever")
        """


@dataclass(frozen=True)
class DiesWhileLoading(Fault):
    """Exits with 9 in the middle of its load."""

    def code(self) -> str:
        return """
            def load(self, context):
                print("about to die", file=sys.stderr)
                os._exit(9)
        """


@dataclass(frozen=True)
class DiesAfter(Fault):
    """Answers `requests` requests and dies under the next one."""

    requests: int

    def code(self) -> str:
        return f"""
            def answer(self, keys, context, **more):
                if self.seq >= {self.requests}:
                    os._exit(9)
                return super().answer(keys, context, **more)
        """


@dataclass(frozen=True)
class IgnoresSigterm(Fault):
    """Neither a STOP nor SIGTERM ends it."""

    def settings(self) -> dict[str, Any]:
        return {"ignore_sigterm": True}


@dataclass(frozen=True)
class StopsSlowly(Fault):
    """Takes `stop_s` seconds to end once it was asked to."""

    stop_s: float

    def settings(self) -> dict[str, Any]:
        return {"stop_s": self.stop_s}


@dataclass(frozen=True)
class DeafToCancellation(Fault):
    """A request's `sleep_s` is slept to its end, whoever has gone."""

    def code(self) -> str:
        return """
            def answer(self, keys, context, **more):
                time.sleep(probe.number(keys, "sleep_s"))
                return super().answer({**keys, "sleep_s": 0}, context, **more)
        """


@dataclass(frozen=True)
class FloodsStdout(Fault):
    """Writes `megabytes` to stdout while loading and again for each request."""

    megabytes: float = 20

    def code(self) -> str:
        return f"""
            def load(self, context):
                super().load(context)
                probe.spam({self.megabytes})

            def answer(self, keys, context, **more):
                probe.spam({self.megabytes})
                return super().answer(keys, context, **more)
        """


@dataclass(frozen=True)
class LeaksMemory(Fault):
    """Keeps `mib` MiB more with each request."""

    mib: float

    def code(self) -> str:
        return f"""
            leaked = []

            def answer(self, keys, context, **more):
                self.leaked.append(b"\\1" * int({self.mib} * probe.MIB))
                return super().answer(keys, context, **more)
        """
