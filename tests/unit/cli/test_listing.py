"""models, versions, ps, why, nodes: what they print, for people and for programs."""

import json
from datetime import UTC, datetime

from fornada.cli.output import ago
from tests.unit.cli.conftest import Cli
from tests.unit.cli.fake_node import FakeNode, Said, model, say

DIGEST = "3f1c0a9b2d4e" + "0" * 52


def test_models_lists_name_task_engine_version_state_memory_and_last_use(cli: Cli, node: FakeNode):
    listed = [
        model(),
        model("@cf/a/b", state="stopped", peak_bytes=0, instances=[], pinned=True, task="image-classification", engine="tensorflow"),
    ]
    node.on("GET", "/api/v1/models", say({"models": listed}))
    result = cli("models")
    assert result.exit_code == 0
    head, first, second = result.stdout.splitlines()
    assert head.split() == ["NAME", "TASK", "ENGINE", "VERSION", "STATE", "MEMORY", "LAST", "USED"]
    assert first.split() == ["@local/echo", "custom", "python", "3f1c0a9b2d4e", "ready", "48", "MiB", "never"]
    assert second.startswith("@cf/a/b (pinned)  image-classification  tensorflow") and "≤512 MiB" in second


def test_models_json_is_what_the_api_answers(cli: Cli, node: FakeNode):
    node.on("GET", "/api/v1/models", say({"models": [model()]}))
    assert json.loads(cli("models", "--json").stdout) == {"models": [model()]}


def test_no_models_is_said(cli: Cli, node: FakeNode):
    node.on("GET", "/api/v1/models", say({"models": []}))
    assert cli("models").stdout == "no models yet; 'fornada deploy DIR' adds one\n"


def test_one_model_is_shown_in_full(cli: Cli, node: FakeNode):
    found = model("@a/ü b", state="failed", why="exit code 1: ImportError: x", aliases=["@x/y"], description="One line.")
    node.on("GET", "/api/v1/models/@a/ü b", say(found))
    result = cli("models", "@a/ü b")
    assert result.exit_code == 0
    for part in ("@x/y", "One line.", DIGEST, "failed (exit code 1: ImportError: x)", "512 MiB declared, 48 MiB at most seen"):
        assert part in result.stdout
    assert json.loads(cli("models", "@a/ü b", "--json").stdout) == found


def test_one_model_says_what_it_takes(cli: Cli, node: FakeNode):
    schema = {"properties": {"text": {}, "pooling": {}}, "required": ["text"]}
    node.on("GET", "/api/v1/models/@a/b", say(model("@a/b")))
    node.on("GET", "/client/v4/accounts/local/ai/models/schema", say({"result": {"input": schema}, "success": True}))
    assert "input       text (required), pooling\n" in cli("models", "@a/b").stdout
    assert node.asked[-1].query == {"model": "@a/b"}
    node.on("GET", "/client/v4/accounts/local/ai/models/schema", say({"result": {"input": {"description": "A text"}}, "success": True}))
    assert "input       A text\n" in cli("models", "@a/b").stdout


def test_versions_show_what_they_are_labelled(cli: Cli, node: FakeNode):
    old = "ab" * 32
    found = model(versions=[*model()["versions"], {"version": old, "labels": [], "state": "stopped", "why": "", "created": None}])
    node.on("GET", "/api/v1/models/@local/echo", say(found))
    result = cli("versions", "@local/echo")
    assert result.stdout.splitlines()[1].split()[:3] == ["3f1c0a9b2d4e", "stable", "ready"]
    assert result.stdout.splitlines()[2].split() == ["abababababab", "-", "stopped", "-"]
    assert json.loads(cli("versions", "@local/echo", "--json").stdout) == {"name": "@local/echo", "versions": found["versions"]}


METRICS = """\
# TYPE fornada_requests_total counter
fornada_requests_total{model="@local/echo",outcome="ok"} %d
fornada_requests_total{model="@local/echo",outcome="busy"} 1
# TYPE fornada_request_seconds histogram
fornada_request_seconds_bucket{model="@local/echo",stage="total",le="0.01"} %d
fornada_request_seconds_bucket{model="@local/echo",stage="total",le="0.1"} %d
fornada_request_seconds_bucket{model="@local/echo",stage="total",le="+Inf"} %d
"""


def scripted_metrics(node: FakeNode) -> None:
    readings = iter([METRICS % (10, 5, 10, 10), METRICS % (30, 25, 30, 30)])
    node.on("GET", "/metrics", lambda _: Said(next(readings).encode(), type="text/plain"))
    node.on("GET", "/api/v1/models", say({"models": [model(), model("@a/idle", instances=[], state="stopped")]}))


def test_ps_shows_each_instance_with_its_memory_queue_and_speed(cli: Cli, node: FakeNode):
    scripted_metrics(node)
    result = cli("ps")
    assert result.exit_code == 0, result.stderr
    head, row = result.stdout.splitlines()
    assert head.split()[:6] == ["MODEL", "PID", "STATE", "DEVICE", "DECLARED", "MEASURED"]
    assert row.split()[:8] == ["@local/echo", "4711", "ready", "cpu", "512", "MiB", "48", "MiB"]
    assert row.endswith("5 ms  9.9 ms")


def test_ps_json_adds_rates_to_the_instances(cli: Cli, node: FakeNode):
    scripted_metrics(node)
    (instance,) = json.loads(cli("ps", "--json").stdout)["instances"]
    assert instance["pid"] == 4711 and instance["model"] == "@local/echo"
    assert 0 < instance["rps"] <= 40  # 20 requests in half a second or a little more
    assert instance["p50_s"] == 0.005


def test_ps_says_when_nothing_runs(cli: Cli, node: FakeNode):
    node.on("GET", "/metrics", Said(b"", type="text/plain"))
    node.on("GET", "/api/v1/models", say({"models": []}))
    assert cli("ps").stdout == "nothing runs; 'fornada models' shows what could\n"


def test_why_begins_with_the_reason_and_goes_on_with_all_that_is_known(cli: Cli, node: FakeNode):
    found = {
        "model": "@a/b",
        "state": "failed",
        "summary": "the last load failed; it tries again in 4 s",
        "queue": 0,
        "last_failure": {"reason": "exit code 1", "last_line": "ImportError: x", "at": None},
        "devices": [{"id": "cpu", "total_bytes": 1024**3, "reserved_bytes": 0}],
        "residents": [],
    }
    node.on("GET", "/api/v1/models/@a/b/why", say(found))
    result = cli("why", "@a/b")
    assert result.stdout.splitlines() == [
        "@a/b (failed): the last load failed; it tries again in 4 s",
        "queue: 0",
        "last failure: reason exit code 1, last line ImportError: x",
        "devices:",
        "  - id cpu, total 1 GiB",
    ]
    assert json.loads(cli("why", "@a/b", "--json").stdout) == found


def test_nodes_shows_processes_and_isolation(cli: Cli, node: FakeNode):
    one = {"main_pid": 1, "keeper_pid": 2, "control_pid": 3, "url": "http://h", "account": "local", "isolation": "none", "version": "0.1.0"}
    node.on("GET", "/api/v1/nodes", say({"nodes": [one]}))
    assert cli("nodes").stdout.splitlines()[1].split() == ["http://h", "0.1.0", "none", "local", "1", "2", "3"]
    assert json.loads(cli("nodes", "--json").stdout) == {"nodes": [one]}


def test_times_are_told_as_distances():
    now = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
    assert ago(None, now=now) == "never"
    assert ago("2026-01-02T11:59:30Z", now=now) == "30 s ago"
    assert ago("2026-01-02T11:50:00.123+00:00", now=now) == "9 min ago"
    assert ago("2026-01-02T02:00:00Z", now=now) == "10 h ago"
    assert ago("2025-12-30T12:00:00Z", now=now) == "3 d ago"
    assert ago("2026-01-02T12:00:05Z", now=now) == "0 s ago"  # the node's clock is ahead
    assert ago("yesterday", now=now) == "yesterday"
