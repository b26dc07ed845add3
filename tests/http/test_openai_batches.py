"""OpenAI's own client hands in a file, waits for the batch, and reads what came of it."""

import io
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.harness.waiting import until
from tests.http.test_text_clients import PARROT, deployed

pytestmark = pytest.mark.clients

EMBEDDER = """
import fornada_sdk

def handle_request(request, context):
    texts = request.body.json["text"]
    if "bad" in texts:
        raise fornada_sdk.BadRequest("this one is bad")
    return {"shape": [len(texts), 2], "data": [[float(len(t)), 1.0] for t in texts], "pooling": "mean"}
"""


def deploy(node: Node, name: str) -> None:
    node.deploy(name, archive({"model.toml": f'name = "{name}"\ntask = "text-embeddings"\n', "model.py": EMBEDDER}))


@pytest.fixture
def client(node: Node) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(20), max_retries=0) as made:
        yield made


def lines(name: str, *texts: str) -> bytes:
    asked = [
        {"custom_id": f"id-{text}", "method": "POST", "url": "/v1/embeddings", "body": {"model": name, "input": text}} for text in texts
    ]
    return "".join(json.dumps(each) + "\n" for each in asked).encode()


def test_a_batch_from_file_to_file(node: Node, client: openai.OpenAI, fresh_name):
    name = fresh_name()
    deploy(node, name)
    file = client.files.create(file=("in.jsonl", io.BytesIO(lines(name, "one", "bad", "three"))), purpose="batch")
    assert client.files.retrieve(file.id).filename == "in.jsonl"
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h", metadata={"k": "v"})
    until(lambda: client.batches.retrieve(batch.id).status == "completed", within_s=60, what="the batch is completed")
    done = client.batches.retrieve(batch.id)
    assert done.request_counts is not None and done.output_file_id and done.error_file_id
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (3, 2, 1)
    answers = [json.loads(line) for line in client.files.content(done.output_file_id).text.splitlines()]
    assert [(each["custom_id"], each["response"]["body"]["data"][0]["embedding"]) for each in answers] == [
        ("id-one", [3.0, 1.0]),
        ("id-three", [5.0, 1.0]),
    ]
    (error,) = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert (error["custom_id"], error["response"]["status_code"]) == ("id-bad", 400)
    assert "this one is bad" in error["response"]["body"]["error"]["message"]
    assert batch.id in [each.id for each in client.batches.list(limit=1)]
    assert client.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.content(file.id)


def test_a_batch_of_responses(node: Node, client: openai.OpenAI, fresh_name):
    name = str(fresh_name())
    deployed(node, name, PARROT, "text-generation")
    asked: list[dict[str, Any]] = [
        {"custom_id": text, "method": "POST", "url": "/v1/responses", "body": {"model": name, "input": text}} for text in ("one", "two")
    ]
    asked.append({"custom_id": "bad", "method": "POST", "url": "/v1/responses", "body": {"model": name, "input": []}})
    content = "".join(json.dumps(each) + "\n" for each in asked).encode()
    file = client.files.create(file=("in.jsonl", io.BytesIO(content)), purpose="batch")
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h")
    until(lambda: client.batches.retrieve(batch.id).status == "completed", within_s=60, what="the batch is completed")
    done = client.batches.retrieve(batch.id)
    assert done.output_file_id and done.error_file_id
    answers = [json.loads(line)["response"]["body"] for line in client.files.content(done.output_file_id).text.splitlines()]
    said = [answer["output"][0]["content"][0]["text"] for answer in answers]
    assert said == ["echo: one", "echo: two"]
    assert client.responses.create(model=name, input="three", previous_response_id=answers[0]["id"]).output_text == "echo: three"
    (error,) = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert error["custom_id"] == "bad" and "/input" in error["response"]["body"]["error"]["message"]


def test_what_is_no_batch_is_told_with_its_line(client: openai.OpenAI):
    file = client.files.create(file=("in.jsonl", io.BytesIO(b"{}\n")), purpose="batch")
    with pytest.raises(openai.BadRequestError, match="line 1"):
        client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve("batch_none")


def test_files_and_batches_outlive_the_node_and_are_forgotten_in_their_time(new_node: StartNode):
    node = new_node(config="[jobs]\nkeep_s = 3\n").start()
    deploy(node, "@test/texts")
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(20), max_retries=0) as client:
        large = b"x" * 3_000_000
        kept = client.files.create(file=("large", io.BytesIO(large)), purpose="user_data")
        file = client.files.create(file=("in.jsonl", io.BytesIO(lines("@test/texts", "one"))), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h")
        until(lambda: client.batches.retrieve(batch.id).status == "completed", within_s=60, what="the batch is completed")
        assert client.files.content(kept.id).content == large
    node.kill()
    node.start()
    with openai.OpenAI(api_key="any", base_url=f"{node.url}/v1", timeout=bound(20), max_retries=0) as client:
        until(lambda: list(client.files.list()) == [], within_s=30, what="the files are forgotten")
        until(lambda: list(client.batches.list()) == [], within_s=30, what="the batch is forgotten")
    assert node.stop() == 0
