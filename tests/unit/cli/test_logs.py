"""`fornada logs`: once, followed, as JSON."""

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, Said, error, events

PATH = "/api/v1/models/@a/b/logs"
LINES: list[dict[str, Any]] = [
    {"time": "2026-01-02T03:04:05.678Z", "stream": "stdout", "line": "loaded ü", "instance": "i-1"},
    {"time": "2026-01-02T03:04:06.000Z", "stream": "stderr", "line": "  odd", "instance": "i-1", "request_id": "0123456789abcdef"},
    {"time": "2026-01-02T03:04:07.000Z", "stream": "log", "line": "said", "instance": "i-1", "request_id": "abc"},
]
SHOWN = [
    "2026-01-02T03:04:05.678Z            loaded ü",
    "2026-01-02T03:04:06.000Z 89abcdef !   odd",
    "2026-01-02T03:04:07.000Z abc      · said",
]


def as_lines(*lines: dict[str, Any]) -> Said:
    return Said("".join(json.dumps(line) + "\n" for line in lines).encode(), type="application/x-ndjson")


def test_lines_are_shown_with_time_request_and_stream(cli: Cli, node: FakeNode):
    node.on("GET", PATH, as_lines(*LINES))
    result = cli("logs", "@a/b")
    assert (result.exit_code, result.stdout.splitlines()) == (0, SHOWN)


def test_json_is_a_line_per_line(cli: Cli, node: FakeNode):
    node.on("GET", PATH, as_lines(*LINES))
    assert [json.loads(text) for text in cli("logs", "@a/b", "--json").stdout.splitlines()] == LINES


def test_the_last_lines_may_be_asked_for(cli: Cli, node: FakeNode):
    node.on("GET", PATH, as_lines(LINES[-1]))
    assert cli("logs", "@a/b", "-n", "1").exit_code == 0
    assert node.one("GET", PATH).query == {"last": "1"}


@pytest.mark.parametrize("flag", ["-f", "--follow"])
def test_following_shows_lines_as_they_come_and_says_when_the_node_ends_it(cli: Cli, node: FakeNode, flag: str):
    node.on("GET", PATH, events(*(json.dumps(one) for one in LINES)))
    result = cli("logs", "@a/b", flag)
    assert result.stdout.splitlines() == SHOWN
    assert result.exit_code == 1
    assert "ended the log" in line(result)
    assert node.one("GET", PATH).query == {"follow": "true"}


def test_an_unknown_model_is_told(cli: Cli, node: FakeNode):
    node.on("GET", PATH, error(404, 5007, "No such model @a/b or task"))
    result = cli("logs", "@a/b")
    assert result.exit_code == 1
    assert line(result).startswith("fornada: No such model @a/b or task [5007, the request's fault]; 'fornada models' lists")
