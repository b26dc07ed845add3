"""`queueRequest` in every shape that clients send it, and `/api/v1/jobs` (WORKERS_AI.md, 6)."""

import json
from typing import Any

import pytest

from fornada.core.errors import BadRequest, Busy, DiskFull, ModelRaised
from fornada.core.jobs import ItemRequest, JobId, Outcome, Status
from fornada.core.keys import KeyId
from fornada.core.names import AccountId
from fornada.core.requests import AnswerHead, Priority
from fornada.edge.job_items import ANSWER_BYTES
from tests.harness.client import Closed, Response
from tests.harness.waiting import until
from tests.http.edge_server.conftest import RUN, Served
from tests.unit.edge.fakes import Submitted

A = RUN + "@test/a"
JOBS = "/api/v1/jobs/"


def submit(edge: Served, requests: Any, *, target: str = A + "?queueRequest=true", headers: dict[str, str] | None = None) -> Response:
    return edge.fetch("POST", target, payload={"requests": requests}, headers=headers)


def accepted(edge: Served, *requests: Any) -> JobId:
    return JobId(submit(edge, list(requests)).result["request_id"])


def test_a_list_of_requests_is_queued_with_its_references(edge: Served):
    answer = submit(edge, [{"n": 1, "external_reference": "first"}, {"n": 2}, {"n": 3, "external_reference": None}])
    id = answer.result["request_id"]
    assert answer.json() == {
        "result": {"status": "queued", "request_id": id, "model": "@test/a"},
        "success": True,
        "errors": [],
        "messages": [],
    }
    order = edge.jobs.last
    assert [(ask.reference, json.loads(ask.body), ask.model) for ask in order.asks] == [
        ("first", {"n": 1}, "@test/a"),
        (None, {"n": 2}, "@test/a"),
        (None, {"n": 3}, "@test/a"),
    ]
    assert (order.account, order.target, order.key) == ("acc", A, None)
    assert edge.inference.requests == []


@pytest.mark.parametrize(
    ("target", "body"),
    [
        (A + "?queueRequest=true", {"requests": [{}]}),
        (A + "?queueRequest=TRUE&x=1", {"requests": [{}]}),
        (A.replace("@test/a", "@test%2Fa") + "?queueRequest=true", {"requests": [{}]}),
        (A, {"requests": [{}], "options": {"queueRequest": True}}),
        (A, {"requests": [{}], "options": {"queueRequest": "true"}}),
        (RUN.rstrip("/") + "?queueRequest=true", {"model": "@test/a", "input": {"requests": [{}]}}),
        (RUN.rstrip("/"), {"model": "@test/a", "input": {"requests": [{}]}, "options": {"queueRequest": True}}),
    ],
)
def test_every_way_to_ask_for_the_queue(edge: Served, target: str, body: Any):
    assert edge.fetch("POST", target, payload=body).result["status"] == "queued"
    assert len(edge.jobs.last.asks) == 1


def test_the_rest_of_the_query_belongs_to_each_request(edge: Served):
    submit(edge, [{}], target=A + "?x=a%20b&queueRequest=true")
    assert edge.jobs.last.target == A + "?x=a+b"


@pytest.mark.parametrize("target", [A, A + "?queueRequest=true", RUN + "@test%2Fa"])
@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING])
def test_a_poll_says_how_far_it_is(edge: Served, target: str, status: Status):
    id = accepted(edge, {"n": 1})
    edge.jobs.become(id, status)
    assert edge.fetch("POST", target, payload={"request_id": id}).result == {"status": status, "request_id": id, "model": "@test/a"}


def test_a_poll_by_the_universal_form(edge: Served):
    id = accepted(edge, {"n": 1})
    answer = edge.fetch("POST", RUN.rstrip("/"), payload={"model": "@test/a", "input": {"request_id": id}})
    assert answer.result["status"] == "queued"


def test_answers_come_by_number_with_their_references_and_what_they_used(edge: Served):
    id = accepted(edge, {"n": 1, "external_reference": "x"}, {"n": 2}, {"n": 3, "external_reference": "z"})
    used = b'{"result":{"response":"hi","usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5}},"success":true}'
    refused = b'{"result":{},"success":false,"errors":[{"code":5006,"message":"no"}],"messages":[]}'
    edge.jobs.outcomes[id] = {
        0: Outcome(Status.COMPLETED, 200, used, "r"),
        1: Outcome(Status.FAILED, 400, refused, "r"),
        2: Outcome(Status.COMPLETED, 200, b'{"result":[1,2],"success":true}', "r"),
    }
    edge.jobs.become(id, Status.COMPLETED)
    assert edge.fetch("POST", A, payload={"request_id": id}).result == {
        "responses": [
            {"id": 0, "result": json.loads(used)["result"], "success": True, "external_reference": "x"},
            {"id": 1, "success": False, "error": "no", "code": 5006, "external_reference": None},
            {"id": 2, "result": [1, 2], "success": True, "external_reference": "z"},
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5},
    }


@pytest.mark.parametrize("status", [Status.CANCELLED, Status.EXPIRED])
def test_a_job_that_was_stopped_still_tells_what_it_had_answered(edge: Served, status: Status):
    id = accepted(edge, {"n": 1}, {"n": 2})
    edge.jobs.outcomes[id] = {1: Outcome(Status.COMPLETED, 200, b'{"result":7,"success":true}', "r")}
    edge.jobs.become(id, status)
    found = edge.fetch("POST", A, payload={"request_id": id}).result
    assert (found["status"], [each["id"] for each in found["responses"]]) == (status, [1])


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED])
def test_answers_of_any_length_come_as_they_are_taken(edge: Served, status: Status):
    id = accepted(edge, *[{"n": number} for number in range(300)])
    large = b'{"result":"%b","success":true}' % (b"x" * 100_000)
    edge.jobs.outcomes[id] = {number: Outcome(Status.COMPLETED, 200, large, "r") for number in range(300)}
    edge.jobs.become(id, status)
    with edge.connect(receive_buffer=4096) as connection:
        connection.send_request("POST", A, json.dumps({"request_id": id}).encode())
        until(lambda: edge.jobs.read > 1, within_s=5, what="it is being read")
        edge.tell(lambda: None)
        answered = edge.fetch("POST", A, payload={"n": 1})  # others are served meanwhile
        assert answered.status == 200 and edge.jobs.read < 250, "it is read as a whole, however slowly it is taken"
        found = connection.read_response(of="POST").result
    assert [each["id"] for each in found["responses"]] == list(range(300))
    assert all(len(each["result"]) == 100_000 for each in found["responses"]) and "usage" in found


def test_an_answer_of_a_job_that_is_forgotten_meanwhile_does_not_pass_for_the_whole(edge: Served):
    id = accepted(edge, *[{"n": number} for number in range(300)])
    large = b'{"result":"%b","success":true}' % (b"x" * 100_000)
    edge.jobs.outcomes[id] = {number: Outcome(Status.COMPLETED, 200, large, "r") for number in range(300)}
    edge.jobs.become(id, Status.COMPLETED)
    with edge.connect(receive_buffer=4096) as connection:
        connection.send_request("POST", A, json.dumps({"request_id": id}).encode())
        until(lambda: edge.jobs.read > 1, within_s=5, what="it is being read")
        edge.tell(lambda: edge.jobs.jobs.pop(id))
        with pytest.raises(Closed):
            connection.read_response(of="POST")


def test_somebody_elses_job_is_no_job(edge: Served):
    id = accepted(edge, {"n": 1})
    other = A.replace("/acc/", "/other/")
    for target in (other, other + "?queueRequest=true"):
        refused = edge.fetch("POST", target, payload={"request_id": id})
        assert (refused.status, refused.code) == (404, 5012)
    assert edge.fetch("POST", A + "?queueRequest=true", payload={"request_id": "none"}).code == 5012


def test_a_models_own_input_of_that_name_is_left_alone(edge: Served):
    for payload in ({"request_id": "mine"}, {"request_id": 5}, {"request_id": "00000001-0000-4000-8000-000000000000", "n": 1}):
        assert edge.run(payload).status == 200
        assert json.loads(edge.inference.last.body) == payload


@pytest.mark.parametrize(
    "body",
    [{}, {"n": 1}, {"requests": []}, {"requests": {}}, {"requests": "x"}, {"requests": [1]}, {"requests": [{"external_reference": 5}]}, []],
)
def test_what_can_be_no_job_is_refused(edge: Served, body: Any):
    refused = edge.fetch("POST", A + "?queueRequest=true", payload=body)
    assert (refused.status, refused.code) == (400, 5006)
    assert edge.jobs.orders == {}


def test_a_job_may_be_larger_than_a_request_of_the_model_and_has_a_bound_of_its_own(edge: Served):
    edge.catalog.add("@test/small", serving={"max_body": "1KiB"})
    small = RUN + "@test/small?queueRequest=true"
    assert submit(edge, [{"x": "y" * 3000}] * 300, target=small).result["status"] == "queued"
    refused = submit(edge, [{"x": "y" * 10_100_000}], target=small)
    assert (refused.status, refused.code) == (413, 3006)


def test_the_same_idempotency_key_is_the_same_job(edge: Served):
    key = {"Idempotency-Key": "k-1"}
    first = submit(edge, [{"n": 1}], headers=key).result["request_id"]
    assert submit(edge, [{"n": 1}], headers=key).result["request_id"] == first
    other = submit(edge, [{"n": 2}], headers=key)
    assert (other.status, other.code) == (409, 5011)
    assert submit(edge, [{"n": 1}], headers={"Idempotency-Key": "x" * 256}).code == 5006


@pytest.mark.parametrize(("refusal", "status"), [(DiskFull("no space left on /x", retry_after_s=60), 507), (Busy("too many"), 429)])
def test_a_refusal_says_why(edge: Served, refusal: Any, status: int):
    edge.jobs.refusal = refusal
    refused = submit(edge, [{}])
    assert refused.status == status and refusal.message in refused.message and "retry-after" in refused.headers


def test_no_other_door_has_a_queue(edge: Served):
    edge.catalog.add("@test/texts", task="text-embeddings")
    refused = edge.fetch("POST", "/v1/embeddings", payload={"model": "@test/texts", "input": "x", "options": {"queueRequest": True}})
    assert (refused.status, refused.code) == (400, 5006)


def test_the_desk_of_jobs(edge: Served):
    id = accepted(edge, {"n": 1}, {"n": 2})
    edge.jobs.outcomes[id] = {0: Outcome(Status.COMPLETED, 200, b"{}", "r")}
    found = edge.fetch("GET", JOBS + id).json()
    assert found["items"] == [{"index": 0, "status": "completed"}, {"index": 1, "status": "queued"}]
    assert (found["id"], found["model"], found["status"], found["account"]) == (id, "@test/a", "queued", "acc")
    assert (found["created_at"], found["ended_at"], found["counts"]) == ("2023-11-14T22:13:20.000Z", None, {"completed": 1, "queued": 1})
    for _ in range(2):
        ended = edge.fetch("POST", f"{JOBS}{id}/cancel").json()
        assert (ended["status"], [item["status"] for item in ended["items"]]) == ("cancelled", ["completed", "cancelled"])
    for method, target in (("GET", JOBS + "none"), ("POST", JOBS + "none/cancel")):
        refused = edge.fetch(method, target)
        assert (refused.status, refused.code) == (404, 5012)


# ---- items, as the loop has them answered


def ask(edge: Served, body: bytes, *, target: str = A) -> list[Any]:
    told: list[Any] = []
    item = ItemRequest(account=AccountId("acc"), target=target, body=body, request_id="job-0")
    edge.tell(lambda: edge.server.items.ask(item, told.append))
    return told


def test_an_item_is_answered_as_a_request_would_be_behind_everybody_else(edge: Served):
    (outcome,) = ask(edge, b'{"n":1}')
    assert outcome.status is Status.COMPLETED and outcome.http_status == 200
    assert json.loads(outcome.body)["success"] is True
    sent = edge.inference.last.request
    assert (sent.priority, sent.account, sent.request_id, sent.deadline) == (Priority.JOB, "acc", "job-0", None)


def test_an_item_counts_for_the_key_that_its_job_came_with(edge: Served):
    told: list[Any] = []
    item = ItemRequest(account=AccountId("acc"), target=A, body=b"{}", request_id="job-0", caller=KeyId("k1"))
    edge.tell(lambda: edge.server.items.ask(item, told.append))
    assert (edge.inference.last.request.key, len(told)) == ("k1", 1)


def test_an_item_that_the_schema_rejects_is_the_callers_to_mend(edge: Served):
    edge.catalog.add("@test/texts", task="text-embeddings")
    (error,) = ask(edge, b'{"text": 5}', target=RUN + "@test/texts")
    assert isinstance(error, BadRequest)
    item = ItemRequest(account=AccountId("acc"), target=A, body=b"", request_id="job-0")
    refused = edge.server.items.refused(item, error)
    assert (refused.status, refused.http_status, json.loads(refused.body)["errors"][0]["code"]) == (Status.FAILED, 400, 5006)


def test_bytes_are_kept_as_base64(edge: Served):
    edge.inference.behaviour = lambda submitted: submitted.sink.answer(AnswerHead(type="image/png"), b"\x89PNG")
    (outcome,) = ask(edge, b"{}")
    assert json.loads(outcome.body) == {"content_type": "image/png", "base64": "iVBORw=="}


def test_an_item_can_not_stream_and_its_work_ends(edge: Served):
    def stream(submitted: Submitted) -> None:
        submitted.sink.stream_begins(AnswerHead())

    edge.inference.behaviour = stream
    (error,) = ask(edge, b'{"stream": true}')
    assert isinstance(error, BadRequest) and "stream" in error.message
    assert edge.inference.last.left


@pytest.mark.parametrize(
    ("body", "target"),
    [
        (b'{"request_id": "%b"}', A),
        (b'{"request_id": "%b", "options": {"queueRequest": true}}', A),
        (b'{"requests": [{}], "options": {"queueRequest": true}}', A),
        (b'{"model": "@test/a", "input": {"request_id": "%b"}}', RUN.rstrip("/")),
        (b'{"model": "@test/a", "input": {"requests": [{}]}, "options": {"queueRequest": true}}', RUN.rstrip("/")),
    ],
)
def test_an_item_can_neither_be_a_job_nor_ask_for_one(edge: Served, body: bytes, target: str):
    id = accepted(edge, {"n": 1})
    (error,) = ask(edge, body.replace(b"%b", id.encode()), target=target)
    assert isinstance(error, BadRequest) and "job" in error.message
    assert len(edge.jobs.orders) == 1


def test_an_answer_in_pieces_has_a_bound(edge: Served):
    def stream(submitted: Submitted) -> None:
        submitted.sink.stream_begins(AnswerHead(type="text/plain"))
        for _ in range(ANSWER_BYTES // len(piece) + 1):
            submitted.sink.item(piece)

    piece = bytes(1024 * 1024)
    edge.inference.behaviour = stream
    (error,) = ask(edge, b"{}")
    assert isinstance(error, ModelRaised) and "192 MiB" in error.message
    assert edge.inference.last.left


def test_items_of_a_stream_are_put_together_where_no_stream_was_asked_for(edge: Served):
    def stream(submitted: Submitted) -> None:
        submitted.sink.stream_begins(AnswerHead())
        submitted.sink.item(b"1")
        submitted.sink.item(b"2")
        submitted.sink.stream_ends(None)

    edge.inference.behaviour = stream
    (outcome,) = ask(edge, b"{}")
    assert json.loads(outcome.body)["result"] == {"items": [1, 2]}


def test_an_item_that_is_left_is_left_wherever_it_is(edge: Served):
    edge.inference.behaviour = lambda submitted: None
    told: list[Any] = []
    item = ItemRequest(account=AccountId("acc"), target=A, body=b"{}", request_id="job-0")
    edge.tell(lambda: edge.server.items.ask(item, told.append).leave())
    assert edge.inference.last.left
    edge.tell(lambda: edge.inference.last.sink.answer(AnswerHead(), b"1"))
    assert told == []
