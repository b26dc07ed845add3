"""Cloudflare's and OpenAI's own Python clients, unchanged, against a node."""

import itertools
from collections.abc import Iterator

import cloudflare
import openai
import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.fixtures import Probe
from tests.harness.node import Node

pytestmark = pytest.mark.clients

ACCOUNT = "023e105f4ecef8ad9ca31a8372d0c353"
EMBEDDER = """
def handle_request(request, context):
    text = request.body.json["text"]
    texts = [text] if isinstance(text, str) else text
    return {"shape": [len(texts), 3], "data": [[float(len(t)), 0.5, -1.0] for t in texts], "pooling": "mean"}
"""


@pytest.fixture
def client(node: Node) -> Iterator[cloudflare.Cloudflare]:
    with cloudflare.Cloudflare(api_token="any", base_url=f"{node.url}/client/v4", timeout=bound(20), max_retries=0) as made:
        yield made


@pytest.fixture
def openai_client(node: Node) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(20), max_retries=0) as made:
        yield made


@pytest.fixture
def embedder(node: Node, fresh_name) -> str:
    name = str(fresh_name())
    node.deploy(name, archive({"model.toml": f'name = "{name}"\ntask = "text-embeddings"\n', "model.py": EMBEDDER}))
    return name


# ---- cloudflare -----------------------------------------------------------------------------------------------------------------


def test_cloudflare_runs_a_model(client: cloudflare.Cloudflare, embedder: str):
    result = client.ai.run(embedder, account_id=ACCOUNT, text=["one", "three"])
    assert result["shape"] == [2, 3]  # type: ignore[index]
    assert result["data"][1] == [5.0, 0.5, -1.0]  # type: ignore[index]


def test_cloudflare_s_raw_response_carries_our_ids(client: cloudflare.Cloudflare, embedder: str):
    raw = client.ai.with_raw_response.run(embedder, account_id=ACCOUNT, text="x")
    assert raw.headers["cf-ai-req-id"] and raw.headers["content-type"] == "application/json"


def test_cloudflare_raises_its_own_errors(client: cloudflare.Cloudflare, embedder: str):
    with pytest.raises(cloudflare.BadRequestError) as unknown:
        client.ai.run("@cf/no/such-model", account_id=ACCOUNT, text="x")
    assert unknown.value.errors[0].code == 5007
    with pytest.raises(cloudflare.BadRequestError) as invalid:
        client.ai.run(embedder, account_id=ACCOUNT, text=5)  # type: ignore[call-overload]
    assert invalid.value.errors[0].code == 5006


def test_cloudflare_s_list_of_models_ends(client: cloudflare.Cloudflare, node: Node, probe: Probe):
    names = {probe() for _ in range(3)}
    for per_page in (1, 2, 50):
        listed = list(itertools.islice(client.ai.models.list(account_id=ACCOUNT, per_page=per_page), 2000))
        assert len(listed) < 2000, "its pages never end"
        found = [item["name"] for item in listed]  # type: ignore[index]
        assert names <= set(found) and len(found) == len(set(found)), "every model once"
    assert {item["name"] for item in client.ai.models.list(account_id=ACCOUNT, search=sorted(names)[0])} == {sorted(names)[0]}  # type: ignore[index]


def test_cloudflare_reads_schemas_authors_and_tasks(client: cloudflare.Cloudflare, embedder: str):
    schema = client.ai.models.schema.get(account_id=ACCOUNT, model=embedder)
    for side in (schema.input, schema.output):
        assert isinstance(side.additional_properties, bool) and side.description and side.type == "object"
    assert "test" in str(list(client.ai.authors.list(account_id=ACCOUNT)))
    assert "Text Embeddings" in [task["name"] for task in client.ai.tasks.list(account_id=ACCOUNT)]  # type: ignore[index]


async def test_cloudflare_async(node: Node, embedder: str):
    async with cloudflare.AsyncCloudflare(api_token="any", base_url=f"{node.url}/client/v4", timeout=bound(20)) as made:
        result = await made.ai.run(embedder, account_id=ACCOUNT, text="abc")
    assert result["data"] == [[3.0, 0.5, -1.0]]  # type: ignore[index,call-overload]


def test_cloudflare_with_an_email_and_a_key(node: Node, embedder: str):
    with cloudflare.Cloudflare(api_email="a@b.example", api_key="k", base_url=f"{node.url}/client/v4", timeout=bound(20)) as made:
        assert made.ai.run(embedder, account_id=ACCOUNT, text="x")


# ---- openai ---------------------------------------------------------------------------------------------------------------------


def test_openai_embeds(openai_client: openai.OpenAI, embedder: str):
    for given in ("seven77", ["a", "bb"]):
        answer = openai_client.embeddings.create(model=embedder, input=given)  # sends encoding_format base64
        assert answer.object == "list" and answer.model == embedder
        lengths = [len(given)] if isinstance(given, str) else [1, 2]
        assert [item.embedding for item in answer.data] == [[float(length), 0.5, -1.0] for length in lengths]
        assert [item.index for item in answer.data] == list(range(len(lengths)))
        assert answer.usage.total_tokens >= 0
    floats = openai_client.embeddings.create(model=embedder, input="x", encoding_format="float")
    assert floats.data[0].embedding == [1.0, 0.5, -1.0]


def test_openai_lists_and_retrieves_models(openai_client: openai.OpenAI, embedder: str):
    assert embedder in [model.id for model in openai_client.models.list()]
    assert openai_client.models.retrieve(embedder).id == embedder
    with pytest.raises(openai.NotFoundError) as unknown:
        openai_client.models.retrieve("no/such-model")
    assert unknown.value.code == "5007"


def test_openai_raises_its_own_errors(openai_client: openai.OpenAI, embedder: str):
    with pytest.raises(openai.NotFoundError) as unknown:
        openai_client.embeddings.create(model="no/such-model", input="x")
    assert unknown.value.code == "5007"
    with pytest.raises(openai.BadRequestError):
        openai_client.embeddings.create(model=embedder, input=[])


def test_openai_at_cloudflare_s_address(node: Node, embedder: str):
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/client/v4/accounts/{ACCOUNT}/ai/v1", timeout=bound(20), max_retries=0) as made:
        assert made.embeddings.create(model=embedder, input="abc").data[0].embedding[0] == 3.0
        assert embedder in [model.id for model in made.models.list()]
