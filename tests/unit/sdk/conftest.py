"""Real runner processes for the tests of the SDK."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.sdk.driver import Start, starter


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts runner processes; see `driver.starter`."""
    with starter(tmp_path) as start:
        yield start
