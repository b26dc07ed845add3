"""Test processes side by side (pytest-xdist): a file's tests stay together, and tests marked `alone` come last, with nothing beside them.

tests/conftest.py imports the hooks. Without `-n` nothing is different, but for the order.
"""

import json
import os
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

MOST = 4
"""More don't help: the tests that run alone take the same time, and each process has a node and loaded models of its own."""
BEYOND = 1
"""More processes than processors: nearly half of the time a test waits for something to start, to end or to be over."""
ALONE = "alone"
LIST = "tests_alone"
"""The file in which a test process tells the scheduler which tests are marked."""


class FilesThenAlone(LoadScopeScheduling):
    """Gives whole files to test processes in the order of the collection, and what must be alone to the last one left."""

    def __init__(self, config: pytest.Config, log: Producer | None, marked: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False  # the longest come first by our own order
        self._marked = marked
        self._alone: frozenset[str] = frozenset()

    def schedule(self) -> None:
        if not self._marked.exists():  # none of them got so far as to know its tests
            raise pytest.UsageError(_not_found(self.config.args))
        self._alone = frozenset(json.loads(self._marked.read_text()))
        super().schedule()

    def remove_node(self, node: WorkerController) -> str | None:
        """The test in which the process died, if it did: it counts as run, else the next process would die in it as well."""
        units = self.assigned_work.pop(node)
        died_in = next((nodeid for unit in units.values() for nodeid, done in unit.items() if not done), None)
        for scope, unit in units.items():
            left = {nodeid: done for nodeid, done in unit.items() if not done and nodeid != died_in}
            if left:
                self.workqueue[scope] = left
        for other in self.nodes:
            self._reschedule(other)
        return died_in

    def _split_scope(self, nodeid: str) -> str:
        return ALONE if nodeid in self._alone else nodeid.partition("::")[0]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if ALONE in self.workqueue:
            self.workqueue.move_to_end(ALONE)
            if len(self.workqueue) == 1 and len(self.nodes) > 1:
                # Whoever has nothing else to do goes, but for the last one. It is asked again when the others have ended.
                if any(other is not node and not other.shutting_down for other in self.nodes):
                    node.shutdown()
                return
        if not self.workqueue:  # short files: the ones before took all that there was
            return
        super()._assign_work_unit(node)
        if self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
            self._assign_work_unit(node)  # a process begins a test when it knows the next one


def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`."""
    return int(os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS") or min(MOST, len(os.sched_getaffinity(0)) + BEYOND))


def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput[LIST] = str(_list_of(node.config))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesThenAlone | None:
    """For `-n`; another `--dist` is left to pytest-xdist."""
    return FilesThenAlone(config, log, _list_of(config)) if config.option.dist == "load" else None


def put_in_order(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that none of them is begun when the others are through; tests marked `alone` last."""
    slow = {item.path for item in items if item.get_closest_marker("slow") and not item.get_closest_marker(ALONE)}
    items.sort(key=lambda item: (bool(item.get_closest_marker(ALONE)), item.path not in slow))
    told = getattr(config, "workerinput", {}).get(LIST)
    if told:
        # Each process writes the same list. What is read must be whole, whoever writes it again.
        mine = Path(f"{told}.{os.getpid()}")
        mine.write_text(json.dumps([item.nodeid for item in items if item.get_closest_marker(ALONE)]))
        mine.replace(told)


def _not_found(arguments: list[str]) -> str:
    """What pytest says without `-n`; pytest-xdist says nothing."""
    lost = [argument for argument in arguments if not Path(argument.partition("::")[0]).exists()]
    return f"file or directory not found: {', '.join(lost)}" if lost else f"not found: one of {', '.join(arguments)}"


def _list_of(config: pytest.Config) -> Path:
    factory: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return factory.getbasetemp() / LIST
