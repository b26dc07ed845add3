"""Each named fault does what its docstring says."""

import signal
import time
from pathlib import Path

import pytest

from fornada.core.specs import read_spec
from fornada.testing.faults import (
    DeafToCancellation,
    DiesAfter,
    DiesWhileLoading,
    FailsToLoad,
    FailsToWarmUp,
    Fault,
    FloodsStdout,
    IgnoresSigterm,
    LeaksMemory,
    NeverReady,
    SlowLoad,
    StopsSlowly,
)
from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.harness.waiting import until
from tests.unit.sdk.driver import Plane, Runner, Start


@pytest.fixture
def broken(start: Start, tmp_path: Path):
    """Starts a runner of a fault, with the settings that its model.toml holds."""

    def begin(fault: Fault) -> tuple[Runner, Plane]:
        folder = fault.write(tmp_path / "fault")
        spec = read_spec((folder / "model.toml").read_text())
        runner = start(folder=folder, settings=spec.settings, model=spec.name)
        return runner, runner.attach()

    return begin


def test_slow_load(broken):
    _, plane = broken(SlowLoad(0.5))
    assert plane.ready()["load_s"] >= 0.5
    assert not [m for m in plane.messages if m.kind is Kind.PROGRESS]


def test_never_ready(broken):
    runner, plane = broken(NeverReady())
    runner.wait_line(lambda line: "loaded" in line)
    time.sleep(0.3)
    assert [m.kind for m in plane.messages] == [Kind.HELLO] and runner.alive


@pytest.mark.parametrize(("fault", "kind"), [(FailsToLoad(), "load"), (FailsToWarmUp(), "warmup")])
def test_fails_to_load_or_warm_up(broken, fault: Fault, kind: str):
    runner, plane = broken(fault)
    assert plane.kind(Kind.FAILED).json["kind"] == kind
    assert runner.exit_code() == 1


def test_dies_while_loading(broken):
    runner, _ = broken(DiesWhileLoading())
    assert runner.exit_code() == 9


def test_dies_after(broken):
    runner, plane = broken(DiesAfter(3))
    plane.ready()
    assert [plane.call({"echo": n})["seq"] for n in range(3)] == [1, 2, 3]
    plane.invoke({"echo": 4})
    assert runner.exit_code() == 9


def test_ignores_sigterm_and_stops_slowly(broken):
    runner, plane = broken(IgnoresSigterm())
    plane.ready()
    runner.signal(signal.SIGTERM)
    plane.stop(0)
    time.sleep(0.3)
    assert runner.alive


def test_stops_slowly(broken):
    runner, plane = broken(StopsSlowly(0.5))
    plane.ready()
    began = time.monotonic()
    plane.stop(0)
    assert runner.exit_code() == 0
    assert 0.5 <= time.monotonic() - began < bound(2)


def test_deaf_to_cancellation(broken):
    _, plane = broken(DeafToCancellation())
    plane.ready()
    id = plane.invoke({"sleep_s": 0.6})
    time.sleep(0.1)
    plane.cancel(id)
    with pytest.raises(AssertionError):
        plane.end_of(id, 0.2)
    assert plane.end_of(id).head["status"] == "cancelled"


def test_floods_stdout(broken):
    runner, plane = broken(FloodsStdout(0.2))
    plane.ready()
    plane.call({})
    until(lambda: sum("spam" in line for line in runner.lines) > 300, within_s=10, what="300 lines of it were read")


def test_leaks_memory(broken):
    runner, plane = broken(LeaksMemory(5))
    plane.ready()

    def resident() -> int:
        return int(Path(f"/proc/{runner.pid}/statm").read_text().split()[1]) * 4096

    plane.call({})
    before = resident()
    for _ in range(4):
        plane.call({})
    assert resident() - before >= 4 * 5 * 1024 * 1024
