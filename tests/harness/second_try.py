"""A test that starts real processes and fails is run once more, and the report says so (docs/decisions/0016).

tests/conftest.py calls these. Tests of pure code, of loops on virtual time and of the tree itself never get a second try: what fails there
once is wrong.
"""

import os

import pytest

WITH_PROCESSES = ("http", "models", "process", "security", "unit/sdk")
"""Folders of tests/. What they start shares the machine with whatever else runs there."""
TRIES = 0 if os.environ.get("FORNADA_TEST_LONG", "") not in ("", "0") else int(os.environ.get("FORNADA_TEST_SECOND_TRY", "1"))
"""How often such a test is run again. None in `make test-long`, which is where races are looked for."""


def allow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks the tests that may fail once."""
    for item in items:
        within = item.path.relative_to(config.rootpath / "tests") if item.path.is_relative_to(config.rootpath / "tests") else item.path
        if TRIES and any(within.is_relative_to(folder) for folder in WITH_PROCESSES):
            item.add_marker(pytest.mark.flaky(reruns=TRIES))


def tell(reporter: pytest.TerminalReporter) -> None:
    """Why each test that needed a second try had failed: it hangs together with time, which is a fault of the test's or of ours."""
    failed_once = reporter.stats.get("rerun", [])
    if not failed_once:
        return
    reporter.section(f"FAILED AT FIRST: {len(failed_once)} to be looked into, passed the second time unless listed below", red=True)
    for report in failed_once:
        reporter.section(report.nodeid, sep="-")
        reporter.write_line(report.longreprtext)
        for title, content in report.sections:
            reporter.section(title, sep="-")
            reporter.write_line(content[-4000:])
