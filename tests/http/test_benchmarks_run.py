"""`make bench` works: tiny durations, no judgement of the figures, which a busy machine would make meaningless."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import LONG, bound
from tests.harness.node import node_environ

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_short_run_compares_us_with_the_yardstick_and_writes_its_table(tmp_path: Path):
    out = tmp_path / "bench.json"
    command = [
        sys.executable,
        "-m",
        "bench",
        "--rounds",
        "1",
        "--seconds",
        "0.3",
        "--warm",
        "0",
        "--connections",
        "1,8",
        "--rows",
        "echo,mlp",  # the peers' rows fetch a few hundred MB
        "--plain",
        "--json",
        str(out),
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=bound(100), env=node_environ(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "uvicorn" in done.stdout
    found = json.loads(out.read_text())
    assert {(s["row"], s["connections"]) for s in found["summaries"]} == {(row, number) for row in ("echo", "mlp") for number in (1, 8)}
    for summary in found["summaries"]:
        assert summary["errors"] == 0
        assert summary["ours"] > 0 and summary["theirs"] > 0 and summary["ours_cpu_us"] > 0


@pytest.mark.packages
@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="a real model's environment and half a minute of traffic; runs in make test-long")
def test_the_row_of_batches_says_what_they_cost_those_who_wait(tmp_path: Path):
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "bench", "--rows", "beside", "--rounds", "1", "--seconds", "0.25", "--json", str(out)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=bound(100), env=node_environ(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the batch raises p99 by a factor of" in done.stdout
    found = json.loads(out.read_text())["beside"]
    (pair,) = found["pairs"]
    assert pair["requests"] > 0 and 0 < pair["p50_s"] <= pair["p99_s"] and found["items_per_s"] > 0


@pytest.mark.packages
@pytest.mark.slow
def test_the_row_of_shared_processes_says_what_a_further_model_costs(tmp_path: Path):
    out = tmp_path / "bench.json"
    command = [sys.executable, "-m", "bench", "--rows", "packed", "--rounds", "0", "--members", "4", "--json", str(out)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=bound(100), env=node_environ(), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "packed 4 members: each further one" in done.stdout
    found = json.loads(out.read_text())["packed"]
    assert 0 < found["own_bytes"] < found["process_bytes"] and 0 < found["load_s"] < found["whole_load_s"]
