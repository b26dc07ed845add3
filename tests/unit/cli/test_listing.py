"""models, versions, ps, why, nodes: what they print, for people and for programs."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fornada.cli.output import ago
from tests.unit.cli.conftest import Cli
from tests.unit.cli.fake_node import FakeNode, Said, model, say

DIGEST = "3f1c0a9b2d4e" + "0" * 52


MIB = 1024**2


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


FAILED: dict[str, Any] = {
    "model": "@a/b",
    "version": "ab" * 32,
    "state": "failed",
    "step": "failed",
    "summary": "It failed (exit code 1). It is tried again in 4 s at the earliest; a reset lets it try at once.",
    "pinned": False,
    "unloaded_by_operator": False,
    "progress": {"phase": "loading", "text": "", "fraction": None},
    "queue": {"waiting": 2, "in_flight": 0, "bound": 64, "oldest_s": 3.25},
    "waits_for": "",
    "last_failure": {
        "kind": "load",
        "reason": "exit code 1",
        "last_line": "ImportError: x",
        "failures": 3,
        "crashes": 0,
        "retry_in_s": 4.2,
    },
    "incoming": None,
    "loads": 3,
    "load_attempts": 3,
    "residents": [
        {"model": "@a/c", "state": "ready", "device": "cpu", "calls": 0, "kept": True, "idle_s": 30.2},
        {"model": "@a/d", "state": "ready", "device": "cuda:0", "calls": 1, "kept": False, "idle_s": 0.0},
    ],
    "devices": [
        {"id": "cpu", "total_bytes": 4 * 1024**3, "reserved_bytes": 1024**3, "used_bytes": 5, "foreign_bytes": 0, "state": "ok"},
        {"id": "cuda:0", "total_bytes": 8 * 1024**3, "reserved_bytes": 0, "used_bytes": 0, "foreign_bytes": 1024**3, "state": "fenced"},
    ],
    "story": ["Wanted → building", "Built → spawning"],
}


def test_why_says_what_happened_what_comes_next_and_what_one_can_do(cli: Cli, node: FakeNode):
    node.on("GET", "/api/v1/models/@a/b/why", say(FAILED))
    result = cli("why", "@a/b")
    assert result.stdout.splitlines() == [
        "@a/b (failed): It failed (exit code 1). It is tried again in 4 s at the earliest; a reset lets it try at once.",
        "went wrong  3 loads failed in a row",
        "            its last words: ImportError: x",
        "comes next  in 4 s at the earliest it is tried again, once somebody asks for it; requests are refused until then",
        "you can     fornada logs @a/b      what it printed",
        "            fornada reset @a/b     try at once, after mending the cause",
        "            fornada versions @a/b  which versions there are",
        "requests    0 being answered, 2 waiting (at most 64 may), the first of them for 3.2 s",
        "memory      cpu: 1 GiB of 4 GiB is promised to models",
        "            cuda:0: nothing of 8 GiB is promised to models, 1 GiB taken by other programs; fenced: nothing is placed on it",
        "beside it   @a/c is ready on cpu, idle for 30 s, kept loaded",
        "            @a/d is ready on cuda:0, 1 request",
    ]
    assert json.loads(cli("why", "@a/b", "--json").stdout) == FAILED


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"last_failure": {**FAILED["last_failure"], "retry_in_s": None}}, "isn't tried again by itself"),
        ({"last_failure": {**FAILED["last_failure"], "crashes": 2}}, "it ended by itself 2 times in a row without an answer"),
        ({"state": "ready", "summary": "It is ready."}, "went wrong  exit code 1"),
        ({"state": "ready", "last_failure": {**FAILED["last_failure"], "past": True}}, "past: it has been ready since"),
        ({"last_failure": {**FAILED["last_failure"], "time": "2026-01-02T03:04:05Z"}}, "2026-01-02T03:04:05Z ("),
        ({"state": "ready", "last_failure": None}, "it stops when nobody has asked for it for a while"),
        ({"state": "ready", "last_failure": None, "pinned": True}, "it stays loaded: it is pinned"),
        ({"state": "ready", "last_failure": None, "since": "2026-01-02T03:04:05Z"}, "since"),
        ({"state": "stopped", "last_failure": None}, "the next request brings it back"),
        ({"state": "stopped", "last_failure": None, "unloaded_by_operator": True}, "min_instances neither"),
        ({"state": "pending", "progress": {"phase": "building", "text": "numpy", "fraction": 0.5}}, "doing       building 50%: numpy"),
        ({"state": "pending", "waits_for": "2 GiB on cuda:0, held by @a/c"}, "who holds the memory"),
        ({"incoming": {"version": "cd" * 32, "state": "pending"}}, "version cdcdcdcdcdcd is pending, and takes over when it is ready"),
    ],
)
def test_why_speaks_of_each_state(cli: Cli, node: FakeNode, changed: dict[str, object], said: str):
    node.on("GET", "/api/v1/models/@a/b/why", say({**FAILED, **changed}))
    assert said in cli("why", "@a/b").stdout


def test_why_counts_no_row_where_it_ended_once_and_says_nothing_of_what_it_did_then(cli: Cli, node: FakeNode):
    node.on("GET", "/api/v1/models/@a/b/why", say({**FAILED, "last_failure": {**FAILED["last_failure"], "crashes": 1}}))
    said = cli("why", "@a/b").stdout
    assert "by itself" not in said and "while it worked" not in said


@pytest.mark.parametrize(
    "found", [{"state": "failed"}, {"state": "strange", "queue": 0, "devices": {}, "residents": [1], "last_failure": "x"}]
)
def test_why_says_what_it_can_of_an_answer_of_another_release(cli: Cli, node: FakeNode, found: dict[str, object]):
    node.on("GET", "/api/v1/models/@a/b/why", say(found))
    assert cli("why", "@a/b").stdout.startswith(f"@a/b ({found['state']}): no more is known")


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


@pytest.mark.parametrize(
    ("charge", "said"),
    [
        (
            {"bytes": 964 * MIB, "because": "declared", "slack_bytes": 64 * MIB},
            "964 MiB of cuda:0: 900 MiB as declared, until it has been measured, and 64 MiB of slack",
        ),
        ({"bytes": 50 * MIB, "because": "learned"}, "50 MiB of cuda:0: 50 MiB as measured (900 MiB were declared)"),
        ({"bytes": 80 * MIB, "because": "live"}, "80 MiB of cuda:0: 80 MiB that it holds now, more than was expected"),
    ],
    ids=["declared", "learned", "live"],
)
def test_why_says_what_a_place_costs_and_what_that_number_rests_on(cli: Cli, node: FakeNode, charge: dict[str, object], said: str):
    numbers = {"declared_bytes": 900 * MIB, "learned_bytes": 50 * MIB, "live_bytes": 80 * MIB, "slack_bytes": 0}
    memory = {"device": "cuda:0", "expected": {}, "charged": {"device": {**numbers, **charge}, "host": {"bytes": 0}}}
    fenced = {"id": "cuda:1", "total_bytes": 8 * MIB, "state": "fenced", "fence": "XID 79", "lingering_bytes": MIB}
    node.on("GET", "/api/v1/models/@a/b/why", say({"model": "@a/b", "state": "ready", "memory": memory, "devices": [fenced]}))
    shown = " ".join(cli("why", "@a/b").stdout.split())
    assert said in shown
    assert "cuda:1: nothing of 8 MiB is promised to models, 1 MiB of processes that are gone not back yet; fenced (XID 79)" in shown


def test_why_says_what_will_be_planned_for_a_model_without_a_place(cli: Cli, node: FakeNode):
    expected = {
        "device": {"declared_bytes": 900 * MIB, "learned_bytes": 50 * MIB},
        "host": {"declared_bytes": 512 * MIB, "learned_bytes": 0},
    }
    found = {"model": "@a/b", "state": "stopped", "memory": {"device": "", "expected": expected, "charged": None}}
    node.on("GET", "/api/v1/models/@a/b/why", say(found))
    shown = " ".join(cli("why", "@a/b").stdout.split())
    assert "50 MiB of a device will be planned for it, as measured (900 MiB were declared)" in shown
    assert "512 MiB of the host will be planned for it, as declared; nothing has been measured yet" in shown


def test_a_device_is_unfenced(cli: Cli, node: FakeNode):
    node.on("PATCH", "/api/v1/devices/cuda:0", say({"id": "cuda:0", "state": "ok"}))
    assert cli("unfence", "cuda:0").stdout == "cuda:0: ok\n"
    assert json.loads(cli("unfence", "cuda:0", "--json").stdout) == {"id": "cuda:0", "state": "ok"}
