"""Each model has its own dependencies: numpy 1.26 and numpy 2 at the same time."""

import sys
from pathlib import Path

import pytest

from tests.models.conftest import StartRunner

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="numpy 1.26 has wheels up to Python 3.12")
def test_two_runners_with_two_numpys_live_side_by_side(start: StartRunner) -> None:
    old, new = start(HERE / "numpy-1.26"), start(HERE / "numpy-2")
    for _ in range(2):
        first, second = old.ask({"values": [1, 2, 6]}).json, new.ask({"values": [1, 2, 6]}).json
        assert (first["numpy"], first["has_float_"], first["mean"]) == ("1.26.4", True, 3)
        assert (second["numpy"], second["has_float_"], second["mean"]) == ("2.4.6", False, 3)
        assert first["pid"] == old.pid != second["pid"] == new.pid
