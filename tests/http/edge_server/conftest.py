"""An edge over fakes, on a real socket."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from fornada.core.settings import ServerSettings
from fornada.edge.keyring import Keyring
from tests.harness.client import Connection, Response
from tests.unit.edge.fakes import Edge

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
