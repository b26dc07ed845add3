"""AI gateways of a real node: what is counted, what outlives a kill, and Cloudflare's and OpenAI's own clients."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from typing import Any

import cloudflare
import openai
import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.processes import kill
from tests.harness.waiting import until
from tests.http.test_usage import counted

pytestmark = pytest.mark.clients

FAILS = """
import json, pathlib

def handle_request(request, context):
    mark = pathlib.Path(context.scratch) / "count"
    count = int(mark.read_text()) if mark.exists() else 0
    mark.write_text(str(count + 1))
    if count < request.body.json["fails"]:
        raise RuntimeError("not yet")
    mark.unlink()
    return {"after": count}
"""
TALKS = """
def handle_request(request, context):
    if request.stream:
        return iter([{"response": "He"}, {"response": "llo"}])
    return {"response": "Hello", "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
"""


def asked(node: Node, model: str, payload: Any, account: str = "local", **named: object) -> Any:
    headers = {f"cf-aig-{name.replace('_', '-')}": str(value) for name, value in named.items()}
    return node.fetch("POST", f"/gateway/v1/{account}/default/workers-ai/{model}", payload=payload, headers=headers)


@pytest.fixture
def talks(node: Node, fresh_name: Any) -> str:
    name = str(fresh_name())
    node.deploy(name, archive({"model.toml": f'name = "{name}"\ntask = "text-generation"\n', "model.py": TALKS}))
    return name


def test_each_attempt_is_a_request_that_counts_and_a_hit_is_none(node: Node, fresh_name: Any):
    name = str(fresh_name())
    node.deploy(name, archive({"model.toml": f'name = "{name}"\n', "model.py": FAILS}))
    answer = asked(node, name, {"fails": 2}, max_attempts=5, retry_delay=0, cache_ttl=60)
    assert answer.result == {"after": 2}, answer
    assert until(lambda: counted(node, name) == 3, within_s=10, what="each attempt is counted")
    for _ in range(5):
        again = asked(node, name, {"fails": 2}, cache_ttl=60)
        assert (again.headers["cf-aig-cache-status"], again.body) == ("HIT", answer.body)
    assert asked(node, name, {"fails": 1}).status == 500, "without a word there is one attempt"
    assert until(lambda: counted(node, name) == 4, within_s=10, what="and no hit is")


def test_who_steps_in_for_a_model_that_died(node: Node, probe: Probe):
    first, second = probe(), probe()
    entries = [
        {"provider": "workers-ai", "endpoint": first, "query": {"die": True}},
        {"provider": "workers-ai", "endpoint": first, "query": {"sleep_s": 30}, "config": {"requestTimeout": 300}},
        {"provider": "workers-ai", "endpoint": second, "query": {"echo": "here"}},
    ]
    node.load(second)
    answer = node.fetch("POST", "/gateway/v1/local/default", payload=entries)
    assert answer.result["echo"] == "here" and answer.headers["cf-aig-step"] == "2"


def test_a_stream_comes_through_a_gateway_item_by_item_and_again_from_what_is_kept(node: Node, probe: Probe):
    name = probe()
    body = {"steps": 3, "step_s": 0.05, "stream": True}
    with node.connect() as connection:
        connection.send_request(
            "POST", f"/gateway/v1/local/default/workers-ai/{name}", json.dumps(body).encode(), {"cf-aig-cache-ttl": "60"}
        )
        stream = connection.events_to_end()
    assert [item["step"] for item in stream.items] == [0, 1, 2] and stream.done
    assert len({event.at for event in stream.events}) > 1, "as they are made"
    kept = asked(node, name, body, cache_ttl=60)
    assert kept.headers["cf-aig-cache-status"] == "HIT" and kept.body.endswith(b"data: [DONE]\n\n")


def test_logs_and_gateways_outlive_a_control_plane_and_what_is_kept_does_not(own_node: Node):
    node = own_node
    node.deploy_probe("@test/probe")
    base = "/client/v4/accounts/local/ai-gateway/gateways"
    assert node.fetch("POST", base, payload={"id": "lasting", "cache_ttl": 3600}).status == 200
    way = "/gateway/v1/local/lasting/workers-ai/@test/probe"
    ids = {node.fetch("POST", way, payload={"echo": number}).headers["cf-aig-log-id"] for number in range(20)}

    def written() -> int:
        with contextlib.closing(sqlite3.connect(f"{(node.data_dir / 'store.sqlite').as_uri()}?mode=ro", uri=True)) as store:
            return int(store.execute("SELECT COUNT(*) FROM gateway_logs").fetchone()[0])

    until(lambda: written() == 20, within_s=10, what="they are written without anybody asking for them")
    before = node.control_pid
    kill(before)
    node.wait_next_control_plane(after_pid=before)
    assert {log["id"] for log in node.fetch("GET", f"{base}/lasting/logs?per_page=100").result} == ids
    again = node.fetch("POST", way, payload={"echo": 1})
    assert again.status == 200 and again.headers["cf-aig-cache-status"] == "MISS"


# ---- clients


@pytest.fixture
def client(node: Node) -> Iterator[cloudflare.Cloudflare]:
    with cloudflare.Cloudflare(api_token="any", base_url=f"{node.url}/client/v4", timeout=bound(20), max_retries=0) as made:
        yield made


def test_cloudflare_s_client_manages_gateways(client: cloudflare.Cloudflare):
    settings: dict[str, Any] = {
        "cache_invalidate_on_update": True,
        "cache_ttl": 0,
        "collect_logs": True,
        "rate_limiting_interval": 0,
        "rate_limiting_limit": 0,
    }
    for number in range(3):
        made = client.ai_gateway.create(account_id="shop", id=f"gate-{number}", rate_limiting_technique="fixed", **settings)
        assert made.id == f"gate-{number}" and made.created_at == made.modified_at and made.rate_limiting_technique == "fixed"
    assert [each.id for each in client.ai_gateway.list(account_id="shop", per_page=2)] == ["default", "gate-0", "gate-1", "gate-2"]
    changed = client.ai_gateway.update(
        "gate-1", account_id="shop", **{**settings, "cache_ttl": 60}, retry_max_attempts=3, retry_backoff="linear"
    )
    assert (changed.cache_ttl, changed.retry_max_attempts, changed.retry_backoff) == (60, 3, "linear")
    assert client.ai_gateway.get("gate-1", account_id="shop").cache_ttl == 60
    assert client.ai_gateway.delete("gate-1", account_id="shop").id == "gate-1"
    with pytest.raises(cloudflare.NotFoundError) as gone:
        client.ai_gateway.get("gate-1", account_id="shop")
    assert gone.value.errors[0].code == 2001
    with pytest.raises(cloudflare.ConflictError):
        client.ai_gateway.create(account_id="shop", id="gate-0", **settings)


def test_cloudflare_s_client_reads_logs_and_says_how_good_they_were(node: Node, client: cloudflare.Cloudflare, talks: str):
    account = f"readers-{talks.rpartition('-')[2]}"
    first = asked(node, talks, {"prompt": "Hi"}, account, metadata='{"user": "ann"}')
    for _ in range(4):
        asked(node, talks, {"prompt": "Hi"}, account)
    asked(node, "@cf/no/such-model", {}, account)
    logs = client.ai_gateway.logs
    assert len(list(logs.list("default", account_id=account, per_page=2))) == 6
    (failed,) = logs.list("default", account_id=account, success=False)
    assert (failed.status_code, failed.model) == (400, "@cf/no/such-model")
    (found,) = logs.list("default", account_id=account, search="ann")
    (same,) = logs.list("default", account_id=account, filters=[{"key": "metadata.value", "operator": "eq", "value": ["ann"]}])
    assert found.id == same.id == first.headers["cf-aig-log-id"]
    assert (found.tokens_in, found.tokens_out, found.cached) == (3, 2, False)
    alike = [{"key": "model", "operator": "eq", "value": [talks, "x"]}]
    assert len(list(logs.list("default", account_id=account, filters=alike))) == 5  # type: ignore[arg-type]
    logs.edit(found.id, account_id=account, gateway_id="default", feedback=1, score=80, metadata={"reviewed": True})
    one = logs.get(found.id, account_id=account, gateway_id="default")
    assert one.request_head == '{"prompt": "Hi"}' and json.loads(one.metadata or "") == {"reviewed": True}
    assert logs.request(found.id, account_id=account, gateway_id="default") == {"prompt": "Hi"}
    assert logs.response(found.id, account_id=account, gateway_id="default")["result"]["response"] == "Hello"  # type: ignore[index]
    assert (
        client.ai_gateway.urls.get("workers-ai", account_id=account, gateway_id="default")
        == f"{node.url}/gateway/v1/{account}/default/workers-ai"
    )
    logs.delete("default", account_id=account)
    assert list(logs.list("default", account_id=account)) == []


@pytest.mark.parametrize("way", ["compat", "workers-ai/v1"])
def test_openai_s_client_talks_through_a_gateway(node: Node, talks: str, way: str):
    model = f"workers-ai/{talks}" if way == "compat" else talks
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/gateway/v1/local/default/{way}", timeout=bound(20), max_retries=0) as client:
        said = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hi"}])
        assert said.choices[0].message.content == "Hello"
        stream = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "Hi"}], stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "Hello"
        kept = {"cf-aig-cache-ttl": "60"}
        ids = {
            client.chat.completions.create(model=model, messages=[{"role": "user", "content": way}], extra_headers=kept).id
            for _ in range(3)
        }
        assert len(ids) == 1, "one answer, kept"
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(model="workers-ai/@cf/no/such", messages=[{"role": "user", "content": "Hi"}])
        assert unknown.value.code == "5007"


async def test_openai_s_client_talks_through_a_gateway_async(node: Node, talks: str):
    headers = {"cf-aig-gateway-id": "default", "cf-aig-metadata": '{"from": "async"}'}
    async with openai.AsyncOpenAI(
        api_key="any", base_url=f"{node.url}/v1", default_headers=headers, timeout=bound(20), max_retries=0
    ) as client:
        raw = await client.chat.completions.with_raw_response.create(model=talks, messages=[{"role": "user", "content": "Hi"}])
    assert raw.headers["cf-aig-log-id"] and raw.parse().choices[0].message.content == "Hello"
