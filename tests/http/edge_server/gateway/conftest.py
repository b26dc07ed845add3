"""Requests through an AI gateway, over a node that plays the runner: what the tests of this folder share."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fornada.core.errors import ModelRaised
from fornada.core.settings import GatewaysSettings
from tests.harness.client import Response
from tests.http.edge_server.conftest import Served
from tests.unit.edge.fakes import Behaviour, Submitted, echo

GATEWAYS = "/client/v4/accounts/acc/ai-gateway/gateways"
DATA = "/gateway/v1/acc/g"
WAY = f"{DATA}/workers-ai/@test/a"
ASK = {"x": 1}
USED = (("acc", "g"), ("acc", "default"), ("local", "g"), ("other", "default"), ("other", "h"))
"""Accounts and gateways: what they keep goes before each test, so that it may run again."""
COMPLETION = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "inner",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
).encode()


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    served = Served(gateways=GatewaysSettings())
    served.start()
    served.catalog.add("@test/text", task="text-generation", aliases=["@cf/meta/llama"], price={"input_token": 1000, "output_token": 0})
    served.catalog.add("@test/b")
    yield served
    served.close()


@pytest.fixture
def edge(shared: Served) -> Served:
    """With a fresh gateway "g" of "acc" that does nothing of its own."""
    shared.inference.requests.clear()
    shared.inference.behaviour = echo
    for account, id in USED:
        shared.fetch("DELETE", f"{GATEWAYS.replace('/acc/', f'/{account}/')}/{id}")
    put(shared)
    return shared


def put(edge: Served, id: str = "g", account: str = "acc", **settings: Any) -> Response:
    base = GATEWAYS.replace("/acc/", f"/{account}/")
    if edge.fetch("GET", f"{base}/{id}").status == 200:
        response = edge.fetch("PUT", f"{base}/{id}", payload=settings)
    else:
        response = edge.fetch("POST", base, payload={"id": id, **settings})
    assert response.status == 200, response.body
    return response


def ask(edge: Served, payload: Any = ASK, target: str = WAY, **named: object) -> Response:
    headers = {f"cf-aig-{name.replace('_', '-')}": str(value) for name, value in named.items()}
    return edge.fetch("POST", target, payload=payload, headers=headers)


def status(response: Response) -> str:
    return response.headers["cf-aig-cache-status"]


def logs(edge: Served, **query: object) -> list[dict[str, Any]]:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    listed: list[dict[str, Any]] = edge.fetch("GET", f"{GATEWAYS}/g/logs?{text}").result
    return listed


def failing(times: int, error: Exception | None = None) -> Behaviour:
    """Fails so often, then answers."""
    left = [times]

    def play(submitted: Submitted) -> None:
        left[0] -= 1
        if left[0] >= 0:
            submitted.sink.refuse(error or ModelRaised("a bug"))  # type: ignore[arg-type]
        else:
            echo(submitted)

    return play
