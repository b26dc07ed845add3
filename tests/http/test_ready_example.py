"""What `make serve` promises: the curl line that it prints works when a shell runs it, and the picture is what it shows."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.fixtures import StartNode
from tests.harness.waiting import until

REPOSITORY = Path(__file__).parents[2]
LABELS = re.compile(r"espresso|cup|astronaut|space|mortarboard|suit", re.IGNORECASE)


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which("curl"), reason="curl isn't installed")
def test_the_printed_curl_line_works_in_a_shell(new_node: StartNode):
    node = new_node(flags=["--ready-example"]).start()
    said = until(lambda: example_said(node.stdout), within_s=400, what="the line to paste is printed", every_s=0.2)
    line = next((line for line in said.splitlines() if line.startswith("curl ")), "")
    if not line:
        pytest.skip(f"packages can't be reached: {said.splitlines()[-1]}")
    assert node.url in said and f"{node.url}/docs" in said
    assert re.search(r"account\s+local", said) and "token" in said
    picture = next(word.removeprefix("@") for word in shlex.split(line) if word.startswith("@") and not word.startswith("@cf"))
    assert (node.directory / picture).exists()
    done = subprocess.run(["sh", "-c", line], cwd=node.directory, capture_output=True, text=True, timeout=bound(60), check=True)
    answer = json.loads(done.stdout)
    assert answer["success"] is True
    best = answer["result"][0]
    assert LABELS.search(best["label"]), answer["result"]
    assert 0 < best["score"] <= 1
    assert node.stop() == 0


def example_said(stdout: Path) -> str:
    text = stdout.read_text()
    return text if "\ncurl " in text or "can't be prepared" in text else ""
