"""What holds for every test: the same examples on every run, a bound on each test, no settings from the developer's shell."""

import os
import signal

import hypothesis
import pytest

from fornada.keeper.cgroups import place, tree
from tests.bounds import LONG, SCALE, bound, count
from tests.harness import alone, second_try

TEST_TIMEOUT_S = count(300, long=1800)  # the first is `timeout` in pyproject.toml, which can't be scaled

# No deadline for one example: a loaded machine would fail tests that have nothing to do with time.
hypothesis.settings.register_profile("usual", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.register_profile("long", deadline=None, max_examples=2000, print_blob=True)
hypothesis.settings.load_profile("long" if LONG else "usual")

pytest_configure_node = alone.pytest_configure_node
pytest_xdist_auto_num_workers = alone.pytest_xdist_auto_num_workers
pytest_xdist_make_scheduler = alone.pytest_xdist_make_scheduler


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell without job control starts what runs beside it deaf to Ctrl-C, and every program that a test starts would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    kept = ("FORNADA_TEST_", "FORNADA_MIRROR")
    for name in [name for name in os.environ if name.startswith("FORNADA_") and not name.startswith(kept)]:
        del os.environ[name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    alone.put_in_order(config, items)
    second_try.allow(config, items)
    for item in items:
        if item.get_closest_marker("long") and not LONG:
            item.add_marker(pytest.mark.skip(reason="full counts: make test-long"))
        if (LONG or SCALE != 1) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(bound(TEST_TIMEOUT_S)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    second_try.tell(terminalreporter)


def pytest_sessionfinish() -> None:
    """A node that a test has killed leaves groups behind, which go at the next start of any node: there is none after the last test."""
    found = place.find("fornada-node-none")
    if isinstance(found, place.Place):
        tree.remove_dead(found)
