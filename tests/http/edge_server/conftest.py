"""An edge over fakes, on a real socket."""

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from fornada.core.keys import Key, KeyId, Role, new_key
from fornada.core.names import AccountId
from fornada.core.requests import AnswerHead
from fornada.core.settings import AuthSettings, GatewaysSettings, ServerSettings
from fornada.core.usage import UsagePort
from fornada.edge.keyring import Keyring
from tests.harness.client import Connection, Response
from tests.unit.edge.fakes import Edge, Submitted, until

RUN = "/client/v4/accounts/acc/ai/run/"


class Served(Edge):
    """An Edge with a client."""

    def connect(self, **options: Any) -> Connection:
        return Connection(self.address, **options)

    def fetch(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        payload: Any = None,
        headers: Mapping[str, str] | None = None,
        chunked: bool = False,
    ) -> Response:
        if payload is not None:
            body = json.dumps(payload).encode()
        with self.connect() as connection:
            connection.send_request(method, target, body, headers, chunked=chunked)
            return connection.read_response(of=method)

    def run(self, payload: Any, *, model: str = "@test/a", headers: Mapping[str, str] | None = None) -> Response:
        return self.fetch("POST", RUN + model, payload=payload, headers=headers)


class Windowed:
    """A model that streams `count` texts of 16 kB to this request, as a runner does: of what the reader hasn't taken there is WINDOW."""

    WINDOW = 262_144

    def __init__(self, edge: Served, submitted: Submitted, count: int) -> None:
        self.sent = 0
        """Bytes."""
        self.item = json.dumps({"text": "x" * 16_000}).encode()
        self.all = count * len(self.item)
        self._edge = edge
        self._submitted = submitted
        edge.tell(submitted.sink.stream_begins, AnswerHead())

    def go_on(self) -> None:
        """As far as the window lets it."""
        self._edge.tell(self._fill)

    def read(self, connection: Connection) -> None:
        """Its texts, with what it says after each of them, and its end."""
        for number, _ in enumerate(connection.read_events(), 1):
            self.go_on()
            if number * len(self.item) == self.all:
                break
        until(lambda: self._submitted.taken == self.sent == self.all, what="all of it was taken")
        self._edge.tell(self._submitted.sink.stream_ends, None)

    def _fill(self) -> None:
        while self.sent - self._submitted.taken < self.WINDOW and self.sent < self.all:
            self._submitted.sink.item(self.item)
            self.sent += len(self.item)

    def is_bounded(self) -> bool:
        """Whether it waits for the reader, with no more on the way than a window and the last text."""
        return 0 < self.sent - self._submitted.taken <= self.WINDOW + len(self.item)


@dataclass
class Keys:
    """A KeysPort in memory."""

    held: list[Key] = field(default_factory=list)
    version: int = 0

    def keys(self) -> list[Key]:
        return list(self.held)

    def put_key(self, key: Key) -> None:
        self.held.append(key)
        self.version += 1

    def revoke_key(self, id: KeyId, *, now: float) -> Key | None:
        self.held = [msgspec.structs.replace(key, revoked=now) if key.id == id else key for key in self.held]
        self.version += 1
        return next((key for key in self.held if key.id == id), None)

    def forget_keys(self) -> int:
        count, self.held = len(self.held), []
        self.version += 1
        return count

    def keys_version(self) -> int:
        return self.version


class Locked(Served):
    """An edge with keys, and a client that shows them."""

    def __init__(
        self, *, keyed: bool = True, loopback: bool = True, auth: AuthSettings | None = None, usage: UsagePort | None = None
    ) -> None:
        self.keys = Keys()
        self.mark = [0]
        self.texts: dict[str, str] = {"wrong key": f"fnd_{'0' * 16}_{'1' * 64}"}
        if keyed:
            for name, account, role in (
                ("user", "mine", Role.USER),
                ("deployer", "mine", Role.DEPLOYER),
                ("admin", "mine", Role.ADMIN),
                ("other deployer", "other", Role.DEPLOYER),
                ("other admin", "other", Role.ADMIN),
            ):
                self.create(name, account, role)
        super().__init__(gateways=GatewaysSettings(), keyring=Keyring(self.keys, loopback=loopback, mark=self.mark), auth=auth, usage=usage)
        self.catalog.add("@test/mine", account="mine", visibility="account")

    def create(self, name: str, account: str, role: Role, **limits: Any) -> Key:
        key, self.texts[name] = new_key(AccountId(account), role, now=1.0, chance=secrets.token_bytes, **limits)
        self.keys.put_key(key)
        self.mark[0] += 1
        return key

    def show(self, caller: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.texts[caller]}"} if caller in self.texts else {}


@pytest.fixture
def edge() -> Iterator[Served]:
    served = Served()
    served.start()
    yield served
    served.close()


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """An edge with settings of its own."""
    made: list[Served] = []

    def start(*, cors: list[str] | None = None, body_bytes: int = 1024**3, **settings: Any) -> Served:
        served = Served(settings=ServerSettings(**settings), keyring=Keyring(cors=cors or []), body_bytes=body_bytes)
        served.start()
        made.append(served)
        return served

    yield start
    for served in made:
        served.close()


@pytest.fixture
def locked() -> Iterator[Locked]:
    edge = Locked()
    edge.start()
    yield edge
    edge.close()
