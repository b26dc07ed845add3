"""Raw paths: split first, decoded afterwards."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import BadRequest
from fornada.edge.auth import OpenMode
from fornada.edge.calls import Target
from fornada.edge.dialects.openai import EmbeddingsDoor
from fornada.edge.dialects.workers_ai import RunDoor
from fornada.edge.finetuned import Tuner
from fornada.edge.headers import read_facts
from fornada.edge.ids import Ids, echoable
from fornada.edge.invoke import Invoker
from fornada.edge.observer import Unobserved
from fornada.edge.server.replay import with_ascii_target, without_upgrade
from fornada.edge.targets import KEPT, Targets, authority_of, decoded, origin_form, query_of
from fornada.edge.validation import Contracts
from tests.unit.edge.fake_finetunes import FakeFinetunes
from tests.unit.edge.fake_jobs import FakeJobs
from tests.unit.edge.fakes import FakeCatalog, FakeInference


class Clock:
    def now(self):
        return 0.0

    def wall(self):
        return 0.0


@pytest.fixture
def targets() -> Targets:
    invoker = invoker_of(Contracts(observer=Unobserved(), catalog=FakeCatalog()))
    run = RunDoor(invoker, jobs=FakeJobs(), tuner=Tuner(FakeFinetunes()), responses=None)  # type: ignore[arg-type]
    return Targets([run, EmbeddingsDoor(invoker)])


def invoker_of(contracts: Contracts | None = None) -> Invoker:
    """One that only names paths' models."""
    return Invoker(inference=FakeInference(), catalog=FakeCatalog(), contracts=contracts, clock=Clock(), limits=None)  # type: ignore[arg-type]


def found(targets: Targets, url: str) -> Target:
    target = targets.find(url.encode())
    assert target is not None and target.error is None, target
    return target


SEGMENT = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/:"), min_size=1, max_size=12).filter(
    lambda text: text not in (".", "..")
)


@given(st.lists(SEGMENT, min_size=1, max_size=4), st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=20))
def test_every_name_survives_every_spelling(segments: list[str], account: str):
    door = RunDoor(invoker_of(), jobs=FakeJobs(), tuner=Tuner(FakeFinetunes()), responses=None)  # type: ignore[arg-type]
    name = "/".join(segments)
    if not account.isprintable():
        return
    for spelled in (quote(name, safe="/@"), quote(name, safe="@"), quote(name, safe="")):
        path = f"/client/v4/accounts/{quote(account, safe='')}/ai/run/{spelled}".encode()
        target = door.match(path, b"")
        assert target is not None and target.error is None
        assert target.name == name and target.account == account
        assert target.reference is not None and target.reference.name == name


def test_targets_are_remembered_within_a_bound(targets: Targets):
    url = "/client/v4/accounts/a/ai/run/@test/a?x=1"
    assert targets.find(url.encode()) is targets.find(url.encode())
    for number in range(3 * KEPT):
        targets.find(b"/client/v4/accounts/a/ai/run/m%d" % number)
    assert len(targets._known) <= KEPT
    long = b"/client/v4/accounts/a/ai/run/x?" + b"y" * 600
    assert targets.find(long) is not targets.find(long)


def test_other_routes_are_nobodys_target(targets: Targets):
    for url in (
        "/",
        "/v1/models",
        "/client/v4/accounts/a/ai/models/search",
        "/client/v4/accounts//ai/run/x",
        "/client/v4/accounts/a/b/ai/run/x",
    ):
        assert targets.find(url.encode()) is None, url
    assert found(targets, "/client/v4/accounts/a/ai/run").reference is None
    assert found(targets, "/client/v4/accounts/a/ai/run/").reference is None
    assert found(targets, "/v1/embeddings").account is None
    assert found(targets, "/client/v4/accounts/a/ai/v1/embeddings/").account == "a"


@given(st.binary(max_size=60))
def test_any_url_is_judged_without_an_error(url: bytes):
    Targets([EmbeddingsDoor(invoker_of())]).find(b"/" + url)
    authority_of(url)
    try:
        query_of(url)
        decoded(url)
    except BadRequest:
        pass


def test_a_parameter_that_has_one_value_may_not_come_twice():
    assert query_of(b"limit=1&after=x&limits=2&include[]=a&include[]=b", once=("limit", "after")) == {
        "limit": "1", "after": "x", "limits": "2", "include[]": "b",
    }  # fmt: skip
    for query in (b"limit=1&limit=1", b"limit=1&x&limit=", b"limi%74=1&after=x&limit=2"):
        with pytest.raises(BadRequest, match=r"^'limit' comes 2 times in the query"):
            query_of(query, once=("after", "limit"))


def test_options_of_a_run_come_once_and_inputs_as_callers_like(targets: Targets):
    run = "/client/v4/accounts/a/ai/run/m"
    for name in ("tags", "queueRequest", "body"):
        target = targets.find(f"{run}?{name}=a&x=1&{name}=a".encode())
        assert target is not None and isinstance(target.error, BadRequest) and f"'{name}'" in str(target.error)
    assert found(targets, f"{run}?language=en&language=fr&tags=a").query == {"language": "fr"}


def test_absolute_targets_are_taken_apart():
    assert origin_form(b"http://a:1/b?c#d") == b"/b?c"
    assert origin_form(b"http://a") == b"/"
    assert origin_form(b"/b#d") == b"/b"
    assert (authority_of(b"http://a:1/b"), authority_of(b"/b"), authority_of(b"*"), authority_of(b"http://a?b")) == (
        b"a:1",
        None,
        None,
        b"a",
    )


@given(st.lists(st.tuples(st.from_regex(rb"[A-Za-z0-9-]{1,20}", fullmatch=True), st.binary(max_size=40)), max_size=12))
def test_any_headers_are_read_without_an_error(fields: list[tuple[bytes, bytes]]):
    facts = read_facts([pair for pair in fields if pair[0].lower() != b"content-length"], OpenMode())
    assert facts.refusal is not None or any(name.lower() == b"host" for name, _ in fields)


def test_ids_are_unlike_and_echoes_are_printable():
    ids = Ids()
    made = {ids.trace() for _ in range(1000)} | {Ids().trace() for _ in range(50)}
    assert len(made) == 1050 and all(len(one) == 36 for one in made)
    assert echoable(b"abc") == "abc" and echoable("ü 日".encode()) == "ü 日"
    for value in (b"", b"a\x7f", b"\xff", b"x" * 129, "\u2028".encode()):
        assert echoable(value) is None, value


def test_requests_are_written_again_without_what_the_parser_can_t_take():
    head = without_upgrade(b"POST", b"/x", [(b"Host", b"a"), (b"Upgrade", b"h2c"), (b"Connection", b"Upgrade, close"), (b"X", b"y")])
    assert head == b"POST /x HTTP/1.1\r\nHost: a\r\nX: y\r\nconnection: close\r\n\r\n"
    assert with_ascii_target("GET /ü?ä HTTP/1.1\r\nX: é\r\n\r\n".encode()) == b"GET /%C3%BC?%C3%A4 HTTP/1.1\r\nX: \xc3\xa9\r\n\r\n"
    for data in (b"GET / HTTP/1.1\r\n\r\n", "GET /ü HTTP/1.1".encode(), "GÉT /ü HTTP/1.1\r\n".encode(), "GET /ü ü HTTP/1.1\r\n".encode()):
        assert with_ascii_target(data) is None
