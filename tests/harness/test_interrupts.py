"""What tests start can be interrupted, however the tests themselves were started."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.bounds import bound
from tests.harness.node import node_environ

REPOSITORY = Path(__file__).parents[2]
ASKS = """
import signal, subprocess, sys
def test_of_a_program():
    said = subprocess.run([sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"], capture_output=True)
    assert said.stdout.split() == [b"False"]
"""


def test_a_program_of_a_test_hears_ctrl_c_where_a_script_started_the_tests_in_the_background(tmp_path: Path):
    (tmp_path / "test_asks.py").write_text(ASKS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "tests.conftest", "-p", "no:cacheprovider", "--import-mode=importlib"]
    environ = {**node_environ(), "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [*command, "test_asks.py"],
        cwd=tmp_path,
        env=environ,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        timeout=bound(60),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
