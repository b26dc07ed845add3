"""kill -9 of the node itself while it fetches and builds (case 24)."""

import hashlib
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.bounds import bound, count

REPOSITORY = Path(__file__).parents[3]
CONTENT = bytes(range(256)) * 20_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def importer(data, index, web):
    argv = [sys.executable, "-m", "tests.unit.provision.importer", str(data), str(index), f"{web.url}/w", SHA256]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=REPOSITORY)


def check_what_carries_a_final_name(data):
    stored = data / "artifacts" / SHA256
    assert not stored.exists() or stored.read_bytes() == CONTENT
    for environment in data.glob("environments/[!.]*"):
        done = subprocess.run([environment / "bin/python", "-I", "-c", "import tiny; print(tiny.VERSION)"], capture_output=True, text=True)
        assert done.stdout == "1.0\n", done.stderr


@pytest.mark.slow
def test_an_importer_killed_at_random_moments_never_leaves_a_bad_file_and_goes_on(tmp_path, index, web):
    data = tmp_path / "data"
    web.files["/w"] = CONTENT
    web.pause_s = 0.005
    chance = random.Random(24)
    for _ in range(count(8, long=60)):
        process = importer(data, index, web)
        # From the first sign of life on: before that there is nothing to kill.
        wanted = chance.randrange(1, 12)
        killer = threading.Timer(bound(20), process.kill)
        killer.start()
        for number, _line in enumerate(process.stdout or (), start=1):
            if number >= wanted:
                break
        process.kill()
        process.communicate()
        killer.cancel()
        check_what_carries_a_final_name(data)
    web.pause_s = 0.0
    process = importer(data, index, web)
    output, _ = process.communicate(timeout=bound(60))
    word, environment, artifact = output.strip().splitlines()[-1].split(" ")
    assert word == "done", output
    assert Path(artifact).read_bytes() == CONTENT
    check_what_carries_a_final_name(data)
    assert os.path.isdir(environment)
    assert any("range" in asked.headers for asked in web.asked), "no try went on where another had stopped"
    left = list(data.glob("environments/.tmp-*"))
    assert left == []
