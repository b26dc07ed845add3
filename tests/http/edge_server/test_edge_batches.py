"""`/v1/files` and `/v1/batches` over a desk in memory: every shape, every refusal."""

import codecs
import json
import re
from typing import Any

import pytest

from fornada.core.jobs import JobId, Outcome, Status
from tests.harness.client import Response
from tests.http.edge_server.conftest import Served

TEXTS = "@test/texts"
FORM = {"content-type": "multipart/form-data; boundary=XX"}
ACCOUNTS = "/client/v4/accounts/acc/ai"


def form(content: bytes, *, purpose: str = "batch", name: str = "in.jsonl") -> bytes:
    head = f'--XX\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n{purpose}\r\n'
    file = f'--XX\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    return head.encode() + file.encode() + content + b"\r\n--XX--\r\n"


def upload(edge: Served, content: bytes, *, base: str = "", **more: str) -> Response:
    return edge.fetch("POST", base + "/v1/files", form(content, **more), headers=FORM)


def lines(*asked: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in asked)


def line(id: str = "one", **more: Any) -> dict[str, Any]:
    body = {"model": TEXTS, "input": "x"}
    return {"custom_id": id, "method": "POST", "url": "/v1/embeddings", "body": body, **more}


def create(edge: Served, content: bytes, **more: Any) -> Response:
    if TEXTS not in edge.catalog.models:
        edge.catalog.add(TEXTS, task="text-embeddings")
    file = upload(edge, content).json()["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h", **more}
    return edge.fetch("POST", "/v1/batches", payload=asked)


def test_a_file_is_kept_and_given_back(edge: Served):
    put = upload(edge, b"some lines\n" * 500, name="my file.jsonl")
    file = put.json()
    assert file == {
        "id": file["id"],
        "object": "file",
        "bytes": 5500,
        "created_at": 1700000000,
        "filename": "my file.jsonl",
        "purpose": "batch",
        "status": "processed",
    }
    assert edge.fetch("GET", f"/v1/files/{file['id']}").json() == file
    assert edge.fetch("GET", f"/v1/files/{file['id']}/content").body == b"some lines\n" * 500
    assert edge.fetch("GET", "/v1/files").json()["data"] == [file]
    assert edge.fetch("GET", "/v1/files?purpose=vision").json()["data"] == []
    assert edge.fetch("DELETE", f"/v1/files/{file['id']}").json() == {"id": file["id"], "object": "file", "deleted": True}
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        refused = edge.fetch(method, f"/v1/files/{file['id']}{path}")
        assert (refused.status, refused.code) == (404, 5013)


def test_a_file_of_an_account_is_no_file_of_another(edge: Served):
    id = upload(edge, b"x", base=ACCOUNTS).json()["id"]
    assert edge.fetch("GET", f"{ACCOUNTS}/v1/files/{id}").status == 200
    assert edge.fetch("GET", f"/v1/files/{id}").status == 404
    assert edge.fetch("GET", "/v1/files").json()["data"] == []


@pytest.mark.parametrize(
    ("body", "headers"),
    [(form(b"x", purpose="fun"), FORM), (b"--XX--\r\n", FORM), (b"x", {"content-type": "text/plain"}), (b"x", FORM)],
)
def test_what_is_no_upload_is_refused(edge: Served, body: bytes, headers: dict[str, str]):
    assert edge.fetch("POST", "/v1/files", body, headers=headers).code == 5006


def test_a_batch_is_a_job_of_its_lines(edge: Served):
    asked = lines(line("one"), line("two", body={"model": TEXTS, "input": "y", "dimensions": 2})) + b"\n"
    batch = create(edge, asked, metadata={"team": "a"}).json()
    assert batch["id"].startswith("batch_") and batch["metadata"] == {"team": "a"}
    assert (batch["object"], batch["status"], batch["endpoint"]) == ("batch", "validating", "/v1/embeddings")
    assert batch["request_counts"] == {"total": 2, "completed": 0, "failed": 0}
    order = edge.jobs.last
    assert [(ask.reference, ask.model, json.loads(ask.body)) for ask in order.asks] == [
        ("one", TEXTS, {"model": TEXTS, "input": "x"}),
        ("two", TEXTS, {"model": TEXTS, "input": "y", "dimensions": 2}),
    ]
    assert (order.target, order.expires_s, order.account) == ("/client/v4/accounts/local/ai/v1/embeddings", 86400.0, "local")
    assert edge.fetch("GET", f"/v1/batches/{batch['id']}").json() == batch
    assert edge.fetch("GET", f"/api/v1/jobs/{batch['id']}").json()["status"] == "queued"


@pytest.mark.parametrize(
    "content",
    [
        lines(line("one"), line("two")).replace(b"\n", b"\r\n"),
        lines(line("one"), line("two")).removesuffix(b"\n"),
        codecs.BOM_UTF8 + lines(line("one"), line("two")),
        b"\n \n" + lines(line("one"), line("two")).replace(b"\n", b"\n\n"),
    ],
    ids=["crlf", "no last end", "mark of UTF-8", "blank lines"],
)
def test_lines_end_as_editors_end_them(edge: Served, content: bytes):
    assert create(edge, content).status == 200
    assert [ask.reference for ask in edge.jobs.last.asks] == ["one", "two"]


def test_a_batch_ends_with_a_file_of_answers_and_one_of_errors(edge: Served):
    id = JobId(create(edge, lines(line("one"), line("two"), line("three"))).json()["id"])
    edge.jobs.outcomes[id] = {
        0: Outcome(Status.COMPLETED, 200, b'{"data":[1]}', "r0"),
        1: Outcome(Status.FAILED, 400, b'{"error":{"message":"no"}}', "r1"),
    }
    assert edge.fetch("GET", f"/v1/batches/{id}").json()["output_file_id"] is None
    edge.jobs.become(id, Status.EXPIRED)
    batch = edge.fetch("GET", f"/v1/batches/{id}").json()
    assert (batch["status"], batch["request_counts"]) == ("expired", {"total": 3, "completed": 1, "failed": 1})
    assert batch["expired_at"] and not batch["completed_at"]
    contents = {}
    for name in ("output_file_id", "error_file_id"):
        file = edge.fetch("GET", f"/v1/files/{batch[name]}").json()
        content = edge.fetch("GET", f"/v1/files/{batch[name]}/content").body
        assert (file["bytes"], file["purpose"]) == (len(content), "batch_output")
        contents[name] = [json.loads(each) for each in content.splitlines()]
    (answer,) = contents["output_file_id"]
    assert (answer["custom_id"], answer["error"]) == ("one", None)
    assert answer["response"] == {"status_code": 200, "request_id": "r0", "body": {"data": [1]}}
    refused, undone = contents["error_file_id"]
    assert (refused["custom_id"], refused["response"]["status_code"], refused["response"]["body"]["error"]["message"]) == ("two", 400, "no")
    assert (undone["custom_id"], undone["response"], undone["error"]["code"]) == ("three", None, "batch_expired")
    assert edge.fetch("DELETE", f"/v1/files/{batch['output_file_id']}").status == 400


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        (Status.QUEUED, "validating"),
        (Status.RUNNING, "in_progress"),
        (Status.COMPLETED, "completed"),
        (Status.FAILED, "completed"),
        (Status.CANCELLED, "cancelled"),
        (Status.EXPIRED, "expired"),
    ],
)
def test_statuses_in_openai_s_words(edge: Served, status: Status, shown: str):
    id = JobId(create(edge, lines(line())).json()["id"])
    edge.jobs.become(id, status)
    assert edge.fetch("GET", f"/v1/batches/{id}").json()["status"] == shown


def test_a_batch_is_cancelled(edge: Served):
    id = create(edge, lines(line())).json()["id"]
    assert edge.fetch("POST", f"/v1/batches/{id}/cancel").json()["status"] == "cancelled"
    batch = edge.fetch("GET", f"/v1/batches/{id}").json()
    content = edge.fetch("GET", f"/v1/files/{batch['error_file_id']}/content").body
    assert json.loads(content)["error"]["code"] == "batch_cancelled"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no requests"),
        (b"\n \n", "no requests"),
        (b"no json\n", "line 1 "),
        (lines(line()) + b"[]\n", "line 2 "),
        (lines(line()) + b"\n" * 200_000, "more than 100000 lines"),
        (lines(*[line(f"{number}") for number in range(50_001)]), "more than 50000 requests"),
        (lines(line("")), "custom_id"),
        (lines(line(), line()), "line 2 .*before"),
        (lines(line(method="GET")), "POST"),
        (lines(line(url="/v1/chat/completions")), "/v1/embeddings"),
        (lines(line(body={"input": "x"})), "model"),
        (lines(line(body={"model": "@no/such"})), "line 1 .*not|line 1 .*no"),
        (lines({"custom_id": "x", "method": "POST", "url": "/v1/embeddings"}), "line 1 "),
    ],
)
def test_a_file_that_can_be_no_batch_is_refused_with_its_line(edge: Served, content: bytes, says: str):
    refused = create(edge, content)
    assert (refused.status, refused.code) == (400, 5006)

    assert re.search(says, refused.message), refused.message
    assert edge.jobs.orders == {}


@pytest.mark.parametrize(
    "more",
    [
        {"endpoint": "/v1/images"},
        {"completion_window": "soon"},
        {"completion_window": "31d"},
        {"metadata": {"x": "y" * 513}},
        {"metadata": {"x": 1}},
        {"input_file_id": 5},
    ],
)
def test_what_is_asked_wrongly_is_refused(edge: Served, more: dict[str, Any]):
    assert create(edge, lines(line()), **more).code == 5006


def test_a_file_that_is_not_there_or_for_something_else_makes_no_batch(edge: Served):
    assert create(edge, lines(line()), input_file_id="file-none").status == 404
    other = upload(edge, lines(line()), purpose="vision").json()["id"]
    assert create(edge, lines(line()), input_file_id=other).code == 5006


def test_batches_are_listed_in_pages_the_newest_first(edge: Served):
    ids = [create(edge, lines(line())).json()["id"] for _ in range(3)]
    first = edge.fetch("GET", "/v1/batches?limit=2").json()
    assert ([each["id"] for each in first["data"]], first["has_more"]) == ([ids[2], ids[1]], True)
    second = edge.fetch("GET", f"/v1/batches?limit=2&after={first['last_id']}").json()
    assert ([each["id"] for each in second["data"]], second["has_more"]) == ([ids[0]], False)
    assert edge.fetch("GET", f"/v1/batches?after={ids[0]}").json()["data"] == []
    for limit in ("0", "-1", "1.5", "10001", "9" * 5000, "%EF%BC%95"):
        assert edge.fetch("GET", f"/v1/batches?limit={limit}").status == 400, limit


def test_batches_beyond_the_page_are_not_counted(edge: Served):
    ids = [create(edge, lines(line())).json()["id"] for _ in range(5)]
    edge.jobs.counted.clear()
    edge.fetch("GET", "/v1/batches?limit=2")
    assert edge.jobs.counted == [ids[4], ids[3]]


def test_a_job_of_the_other_api_is_no_batch(edge: Served):
    queued = edge.fetch("POST", "/client/v4/accounts/local/ai/run/@test/a?queueRequest=true", payload={"requests": [{}]})
    id = queued.result["request_id"]
    assert edge.fetch("GET", f"/v1/batches/{id}").code == 5012
    assert edge.fetch("GET", f"/v1/files/file-output-{id}/content").code == 5013
    batch = create(edge, lines(line())).json()["id"]
    refused = edge.fetch("POST", "/client/v4/accounts/local/ai/run/@test/a?queueRequest=true", payload={"request_id": batch})
    assert refused.code == 5012
