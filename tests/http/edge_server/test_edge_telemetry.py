"""What the edge counts and logs, and what it never does."""

import gc
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fornada.core.errors import Busy, RunnerDied
from fornada.core.names import Instant
from fornada.core.requests import AnswerHead
from fornada.core.settings import GatewaysSettings
from fornada.edge.server.exchange import HotExchange
from fornada.telemetry import Telemetry
from tests.harness.metrics import Metrics
from tests.http.edge_server.conftest import RUN, Served
from tests.unit.edge.fakes import answer, items, refuse, stay_silent, until

A = RUN + "@test/a"


class Clock:
    def now(self) -> Instant:
        return Instant(time.monotonic())

    def wall(self) -> float:
        return time.time()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Served]:
    telemetry = Telemetry(clock=Clock(), data_dir=tmp_path, stream=None)
    served = Served(telemetry=telemetry, gateways=GatewaysSettings())
    served.start()
    yield served
    served.close()
    telemetry.close()


def counts(edge: Served) -> dict[str, int]:
    metrics = Metrics(edge.fetch("GET", "/metrics").body.decode())
    outcomes = ("ok", "busy", "left", "runner_died", "bad_request", "refused_by_model")
    found = {outcome: int(metrics.total("fornada_requests_total", model="@test/a", outcome=outcome)) for outcome in outcomes}
    return {outcome: number for outcome, number in found.items() if number}


def test_every_request_is_counted_once_by_what_became_of_it(told: Served):
    told.run({})
    told.inference.behaviour = answer(b"{}", http_status=422)
    told.run({})
    told.inference.behaviour = refuse(Busy("full"))
    told.run({})
    told.inference.behaviour = items(b"{}", b"{}")
    told.run({"stream": True})
    told.inference.behaviour = items(b"{}", error=RunnerDied("x"))
    with told.connect() as connection:
        connection.send_request("POST", A, b'{"stream":true}')
        connection.events_to_end()
    told.run({"options": 5})
    told.inference.behaviour = stay_silent
    with told.connect() as connection:
        connection.send_request("POST", A, b"{}")
        until(lambda: len(told.inference.requests) == 6)
        connection.half_close()
        until(lambda: told.inference.last.left)
    assert counts(told) == {"ok": 2, "refused_by_model": 1, "busy": 1, "runner_died": 1, "bad_request": 1, "left": 1}
    told.run({}, model="@no/such")
    metrics = Metrics(told.fetch("GET", "/metrics").body.decode())
    assert metrics.total("fornada_requests_total", model="", outcome="unknown_model") == 1
    assert metrics.total("fornada_requests_total", model="@no/such") == 0, "names that callers invent make no series"
    assert metrics.total("fornada_request_seconds_count", model="@test/a", stage="total") == 7
    assert metrics.total("fornada_request_seconds_count", model="@test/a", stage="first_item") == 2


def test_run_time_is_told_apart(told: Served):
    told.inference.behaviour = answer(b"{}", run_s=0.25)
    told.run({})
    metrics = Metrics(told.fetch("GET", "/metrics").body.decode())
    assert metrics.total("fornada_request_seconds_sum", model="@test/a", stage="run") == 0.25


def test_logs_hold_ids_and_never_inputs_outputs_or_keys(told: Served, tmp_path: Path):
    secret = {"authorization": "Bearer sesame", "cookie": "sesame", "x-request-id": "mine-1"}
    told.inference.behaviour = answer(b'"sesame"')
    told.run({"text": "sesame"}, headers=secret)
    told.run({"options": "sesame"}, headers=secret)
    told.fetch("POST", f"{A}?text=sesame&tags=s*s", b"sesame", headers=secret)
    told.inference.behaviour = refuse(RunnerDied("signal 9"))
    told.run({"text": "sesame"}, headers=secret)
    told.catalog.add("@test/broken")
    told.fetch("POST", "/api/v1/models/@test/broken/reset?x=sesame", b"sesame", headers=secret)

    def bug(_submitted: object) -> None:
        raise ZeroDivisionError("sesame")

    told.inference.behaviour = bug
    told.run({"text": "sesame"}, headers=secret)
    text = (tmp_path / "logs/node.log").read_text()
    assert "sesame" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    refused = [line for line in lines if line.get("event") == "http.answered" and line["code"] == 3101]
    assert refused[0]["request_id"] == "mine-1" and refused[0]["status"] == 502 and refused[0]["route"] == "@test/a"
    failed = [line for line in lines if line["event"] == "http.failed"]
    assert {line["error"] for line in failed} == {"ZeroDivisionError"} and all(line["places"] for line in failed)


def test_a_watcher_that_doesn_t_read_stops_the_flood(told: Served):
    told.operations.floods = True
    with told.connect(receive_buffer=4096) as connection:
        connection.send_request("GET", "/api/v1/events")
        connection.read_head()
        seen = 0

        def still() -> bool:
            nonlocal seen
            before, seen = seen, told.operations.flooded
            time.sleep(0.05)  # the case itself: nobody reads
            return seen > 0 and seen == before

        until(still, what="the events wait for their reader")
        assert told.operations.flooded < 10_000
        assert told.fetch("GET", "/health/live").status == 200
        connection.reset()
    told.operations.floods = False


def test_answers_leave_nothing_for_the_collector(edge: Served):
    """A request, its sink and its ticket must not keep one another alive."""
    edge.inference.behaviour = stay_silent
    gc.collect()
    before = exchanges()
    gc.disable()
    try:
        with edge.connect() as connection:
            for _ in range(20):
                connection.send_request("POST", A, b"{}")
                until(lambda: edge.inference.requests)
                submitted = edge.inference.requests.pop()
                edge.tell(submitted.sink.answer, AnswerHead(), b"1")
                connection.read_response()
        del submitted
        assert exchanges() <= before + 2
    finally:
        gc.enable()


def exchanges() -> int:
    return sum(isinstance(thing, HotExchange) for thing in gc.get_objects())


def test_each_look_for_an_answer_that_a_gateway_keeps_is_counted(told: Served):
    def lookups() -> tuple[int, int]:
        metrics = Metrics(told.fetch("GET", "/metrics").body.decode())
        hits, misses = (int(metrics.total("fornada_gateway_lookups_total", outcome=outcome)) for outcome in ("hit", "miss"))
        return hits, misses

    assert lookups() == (0, 0)
    kept, skipped = {"cf-aig-cache-ttl": "60"}, {"cf-aig-cache-ttl": "60", "cf-aig-skip-cache": "true"}
    for headers in (kept, kept, kept, kept, skipped, {}):
        assert told.fetch("POST", "/gateway/v1/acc/default/workers-ai/@test/a", payload={"x": 1}, headers=headers).status == 200
    assert lookups() == (3, 1), "those that may not be answered so don't look"
