"""fornada batch: a file of requests handed in, how far they are, their answers, their end."""

import codecs
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Cli, line
from tests.unit.cli.fake_node import FakeNode, error, say

NAME = "@local/echo"
RUN = f"/client/v4/accounts/local/ai/run/{NAME}"
ID = "00000001-0000-4000-8000-000000000000"
JOB = f"/api/v1/jobs/{ID}"


def job(status: str = "running", **counts: int) -> dict[str, Any]:
    items = [{"index": index, "status": name} for index, name in enumerate(name for name, count in counts.items() for _ in range(count))]
    times = {"created_at": "2020-01-01T00:00:00Z", "started_at": None, "ended_at": None, "expires_at": None}
    return {"id": ID, "account": "local", "model": NAME, "status": status, "counts": counts, "items": items, **times}


def envelope(result: Any) -> dict[str, Any]:
    return {"result": result, "success": True, "errors": [], "messages": []}


@pytest.mark.parametrize(
    "text",
    ['{"n": 1}\n\n{"n": 2}\n', '[{"n": 1}, {"n": 2}]', '{"requests": [{"n": 1}, {"n": 2}]}'],
    ids=["lines", "array", "the API's body"],
)
def test_submit_hands_in_a_file_and_prints_the_id(cli: Cli, node: FakeNode, tmp_path: Path, text: str):
    node.on("POST", RUN, say(envelope({"status": "queued", "request_id": ID, "model": NAME})))
    (tmp_path / "in.jsonl").write_text(text)
    result = cli("batch", "submit", NAME, str(tmp_path / "in.jsonl"), "--key", "k")
    assert (result.exit_code, result.stdout) == (0, f"{ID}\n")
    asked = node.one("POST", RUN)
    assert asked.json == {"requests": [{"n": 1}, {"n": 2}]}
    assert asked.query == {"queueRequest": "true"}
    assert asked.headers["idempotency-key"] == "k"


@pytest.mark.parametrize("key", ["", "caf\u00e9", "a\nb", "x" * 256])
def test_a_key_that_no_header_can_have_is_refused_in_one_line(cli: Cli, key: str):
    result = cli("batch", "submit", NAME, "-", "--key", key, input='{"n": 1}')
    assert result.exit_code == 2 and "--key" in line(result)


def test_submit_reads_stdin(cli: Cli, node: FakeNode):
    node.on("POST", RUN, say(envelope({"status": "queued", "request_id": ID, "model": NAME})))
    assert json.loads(cli("batch", "submit", NAME, "-", "--json", input='{"n": 1}').stdout)["request_id"] == ID


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + b'{"n": "x"}\r\n{"n": "x"}',
        codecs.BOM_UTF16_LE + '{"n": "x"}\r\n{"n": "x"}\r\n'.encode("utf-16-le"),
        codecs.BOM_UTF8 + b'[{"n": "x"},\n {"n": "x"}]',
    ],
    ids=["UTF-8 with a mark", "UTF-16", "array with a mark"],
)
def test_submit_reads_what_editors_write(cli: Cli, node: FakeNode, tmp_path: Path, content: bytes):
    node.on("POST", RUN, say(envelope({"status": "queued", "request_id": ID, "model": NAME})))
    (tmp_path / "in.jsonl").write_bytes(content)
    assert cli("batch", "submit", NAME, str(tmp_path / "in.jsonl")).exit_code == 0
    assert node.one("POST", RUN).json == {"requests": [{"n": "x"}, {"n": "x"}]}


@pytest.mark.parametrize("text", ["\u2028", "\u0085", "\x7f"])
def test_a_line_ends_where_json_lines_end(cli: Cli, node: FakeNode, tmp_path: Path, text: str):
    node.on("POST", RUN, say(envelope({"status": "queued", "request_id": ID, "model": NAME})))
    (tmp_path / "in.jsonl").write_text(f'{{"n": "a{text}b"}}\n{{"n": 2}}\n')
    assert cli("batch", "submit", NAME, str(tmp_path / "in.jsonl")).exit_code == 0
    assert node.one("POST", RUN).json == {"requests": [{"n": f"a{text}b"}, {"n": 2}]}


def test_one_request_may_have_many_lines(cli: Cli, node: FakeNode, tmp_path: Path):
    node.on("POST", RUN, say(envelope({"status": "queued", "request_id": ID, "model": NAME})))
    (tmp_path / "in.json").write_text('{\n  "n": 1\n}\n')
    assert cli("batch", "submit", NAME, str(tmp_path / "in.json")).exit_code == 0
    assert node.one("POST", RUN).json == {"requests": [{"n": 1}]}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"n": 1}\n\n{"n"', "line 3 of "),
        (b'{"n": 1}\n{"n": NaN}', "line 2 of .*NaN"),
        (b'{"n": 1e999}', "1e999"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"n": 1}\n' + b'{"n":' * 100_000, "line 2 of .*nested too deeply"),
        (b'{"n": "caf\xe9"}', "no UTF-8"),
        (b'{"n": "\\ud800"}', "no UTF-8"),
        (b"\0\0\0", "no JSON|no UTF-8"),
    ],
)
def test_what_is_no_json_is_told_with_its_line(cli: Cli, tmp_path: Path, content: bytes, says: str):
    (tmp_path / "in.jsonl").write_bytes(content)
    result = cli("batch", "submit", NAME, str(tmp_path / "in.jsonl"))
    assert result.exit_code == 2 and re.search(says, line(result)), line(result)


@pytest.mark.parametrize("text", ["", "no json", "[]", "[1]", "5", '{"n": 1} {"n": 2}'])
def test_what_holds_no_requests_is_refused_before_anything_is_sent(cli: Cli, tmp_path: Path, text: str):
    (tmp_path / "in.jsonl").write_text(text)
    result = cli("batch", "submit", NAME, str(tmp_path / "in.jsonl"))
    assert result.exit_code == 2 and "in.jsonl" in line(result)


def test_status_counts(cli: Cli, node: FakeNode):
    node.on("GET", JOB, say(job(completed=2, queued=3)))
    shown = cli("batch", "status", ID).stdout
    assert "2 completed, 3 queued" in shown and "running" in shown
    assert json.loads(cli("batch", "status", ID, "--json").stdout) == job(completed=2, queued=3)


@pytest.mark.parametrize(("end", "code"), [("completed", 0), ("failed", 1), ("cancelled", 1), ("expired", 1)])
def test_wait_stays_until_it_has_ended_and_its_exit_code_says_how(cli: Cli, node: FakeNode, end: str, code: int):
    left = [job(running=1, queued=1), job(completed=1, running=1)]
    node.on("GET", JOB, lambda _: say(left.pop(0) if left else job(end, completed=2)))
    result = cli("batch", "status", ID, "--wait")
    assert result.exit_code == code and end in result.stdout
    assert "0 of 2" in result.stderr


def test_results_come_in_the_order_of_the_requests(cli: Cli, node: FakeNode, tmp_path: Path):
    node.on("GET", JOB, say(job("completed", completed=2)))
    responses = [{"id": 1, "result": "b", "success": True}, {"id": 0, "success": False, "error": "no"}]
    node.on("POST", RUN, say(envelope({"responses": responses, "usage": {}})))
    printed = [json.loads(each) for each in cli("batch", "result", ID).stdout.splitlines()]
    assert printed == [responses[1], responses[0]]
    assert node.one("POST", RUN).json == {"request_id": ID}
    out = tmp_path / "out.jsonl"
    assert cli("batch", "result", ID, "--out", str(out)).stdout == f"{out}: 2 answers\n"
    assert [json.loads(each) for each in out.read_text().splitlines()] == printed
    assert cli("batch", "result", ID, "--out", str(tmp_path / "no folder" / "x")).exit_code == 1


def test_a_job_without_answers_yet_says_how_to_wait(cli: Cli, node: FakeNode):
    node.on("GET", JOB, say(job(queued=2)))
    node.on("POST", RUN, say(envelope({"status": "queued", "request_id": ID, "model": NAME})))
    result = cli("batch", "result", ID)
    assert result.exit_code == 1 and f"fornada batch status {ID} --wait" in line(result)


def test_cancel_says_what_it_led_to(cli: Cli, node: FakeNode):
    node.on("POST", f"{JOB}/cancel", say(job("cancelled", completed=1, cancelled=1)))
    assert "1 completed, 1 cancelled" in cli("batch", "cancel", ID).stdout


def test_an_unknown_job_is_the_requests_fault(cli: Cli, node: FakeNode):
    node.on("GET", "/api/v1/jobs/none", error(404, 5012, "no such job 'none'"))
    result = cli("batch", "status", "none")
    assert result.exit_code == 1 and line(result).startswith("fornada: no such job 'none'")
    assert cli("batch", "status", "../x").exit_code == 2
