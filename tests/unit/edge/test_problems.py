"""The one table of refusals."""

import inspect

import msgspec
import pytest

from fornada.core import errors
from fornada.core.errors import FornadaError
from fornada.edge.observer import outcome_of
from fornada.edge.problems import STATUS, Style, error_object, event_data, message_of, phrase, problem, status_of, unrouted

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, FornadaError) and hasattr(kind, "code")]


@pytest.mark.parametrize("kind", KINDS)
def test_every_refusal_has_a_row_of_its_own(kind: type[FornadaError]):
    assert kind in STATUS
    for style in Style:
        assert phrase(status_of(kind, style))


def test_an_unknown_model_is_a_404_everywhere_but_at_cloudflare():
    assert status_of(errors.UnknownModel, Style.ENVELOPE) == status_of(errors.UnknownModel, Style.BINDING) == 400
    assert status_of(errors.UnknownModel, Style.SUPERSET) == 404


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", Style)
def test_bodies_are_what_clients_parse(kind: type[FornadaError], style: Style):
    found = problem(kind("why"), style, "id")
    body = msgspec.json.decode(found.body)
    assert body["success"] is False and body["result"] == {} and body["messages"] == []
    assert body["errors"] == [{"code": kind.code, "message": message_of(kind("why"), style, "id")}]
    assert "why" in body["errors"][0]["message"]
    if style is Style.BINDING:
        assert (body["internalCode"], body["name"], body["httpCode"]) == (kind.code, "AiError", found.status)
        assert body["message"].startswith("AiError: ") and body["description"] == body["errors"][0]["message"]
    if style is Style.SUPERSET:
        assert body["error"]["code"] == str(kind.code) and body["error"]["param"] is None
        assert body["type"] == "error", "Anthropic's clients look there"


def test_retry_after_is_a_whole_number_of_at_least_one():
    for seconds, text in ((None, b"1"), (0.0, b"1"), (0.01, b"1"), (1.0, b"1"), (1.2, b"2"), (59.9, b"60")):
        assert (b"retry-after", text) in problem(errors.Busy("x", retry_after_s=seconds), Style.ENVELOPE, "id").headers
    assert problem(errors.BadRequest("x"), Style.ENVELOPE, "id").headers == ()
    assert problem(errors.DeadlinePassed("x"), Style.ENVELOPE, "id").headers == ((b"x-should-retry", b"false"),)
    assert problem(errors.Unavailable("x"), Style.ENVELOPE, "id").close


def test_a_subclass_takes_its_parents_row():
    class Special(errors.Busy):
        """A kind that nobody has told the table of."""

    assert status_of(Special, Style.ENVELOPE) == 429


def test_words_are_those_of_workers_ai():
    assert message_of(errors.BadRequest("no"), Style.ENVELOPE, "id") == "AiError: Bad input: Error: no"
    assert message_of(errors.BadRequest("no"), Style.ENVELOPE, "id", from_model=True) == "AiError: AiError: no (id)"
    assert message_of(errors.BadRequest("no"), Style.SUPERSET, "id") == "no"
    assert message_of(errors.Busy("full"), Style.SUPERSET, "id") == "Capacity temporarily exceeded, please try again. (full)"


def test_an_event_reads_for_both_families_of_clients():
    body = msgspec.json.decode(event_data(errors.RunnerDied("gone"), "id"))
    assert body["errors"][0]["code"] == 3101 and body["error"]["message"]
    assert b"\n" not in event_data(errors.RunnerDied("a\nb"), "id")


def test_unknown_paths_read_as_at_cloudflare():
    below = unrouted("/client/v4/accounts/x/nothing", below_account=True, style=Style.ENVELOPE, trace_id="id")
    assert below.status == 404 and b"Could not route to /client/v4/accounts/x/nothing" in below.body
    assert len(unrouted("/" + "x" * 5000, below_account=True, style=Style.ENVELOPE, trace_id="id").body) < 1000


def test_outcomes_are_named_after_the_refusal():
    assert [outcome_of(error) for error in (errors.RunnerDied("x"), errors.Busy("x"), errors.OutOfDeviceMemory("x"))] == [
        "runner_died",
        "busy",
        "out_of_device_memory",
    ]
    assert error_object(errors.Busy("x"), Style.ENVELOPE, "id")["success"] is False
