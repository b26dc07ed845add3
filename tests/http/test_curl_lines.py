"""The curl lines of Workers AI's documentation, run by curl: the base address is ours, the rest as written there."""

import io
import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.bounds import bound
from tests.harness.client import strict_json
from tests.harness.fixtures import Probe
from tests.harness.node import Node
from tests.harness.pictures import digest_model

pytestmark = [pytest.mark.clients, pytest.mark.skipif(not shutil.which("curl"), reason="curl isn't installed")]

Curl = Callable[..., dict]


@pytest.fixture
def curl(node: Node, tmp_path: Path) -> Curl:
    """Runs a documented line in a shell, in a folder with the picture that it names."""
    picture = Image.frombytes("RGB", (64, 48), random.Random(1).randbytes(64 * 48 * 3))
    file = io.BytesIO()
    picture.save(file, "PNG")
    (tmp_path / "orange-llama.png").write_bytes(file.getvalue())

    def run(line: str) -> dict:
        line = line.replace("https://api.cloudflare.com", node.url).replace("$CLOUDFLARE_ACCOUNT_ID", "023e105f4ecef8ad9ca31a8372d0c353")
        done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=bound(30), check=False)
        assert done.returncode == 0, done.stderr
        answer = strict_json(done.stdout.encode())
        assert isinstance(answer, dict)
        return answer

    return run


def test_json_without_a_header(curl: Curl, probe: Probe):
    answer = curl(
        f"""curl -s https://api.cloudflare.com/client/v4/accounts/$CLOUDFLARE_ACCOUNT_ID/ai/run/{probe()} \\
  -H "Authorization: Bearer $CLOUDFLARE_AUTH_TOKEN" \\
  -d '{{ "echo": "Where did the phrase Hello World come from" }}'"""
    )
    assert answer["result"]["echo"] == "Where did the phrase Hello World come from"
    assert answer["success"] is True and answer["errors"] == [] and answer["messages"] == []


def test_post_with_authorization_and_a_content_type(curl: Curl, probe: Probe):
    answer = curl(
        f"""curl -s https://api.cloudflare.com/client/v4/accounts/$CLOUDFLARE_ACCOUNT_ID/ai/run/{probe()} \\
  -X POST \\
  -H "Authorization: Bearer $CLOUDFLARE_API_TOKEN" \\
  -H "Content-Type: application/json" \\
  -d '{{ "echo": [ {{ "role": "system", "content": "You are a friendly assistant" }} ] }}'"""
    )
    assert answer["result"]["echo"] == [{"role": "system", "content": "You are a friendly assistant"}]


def test_a_picture_as_binary_data(curl: Curl, node: Node, fresh_name, tmp_path: Path):
    model = fresh_name()
    node.deploy(model, digest_model(model))
    answer = curl(
        f"""curl -s https://api.cloudflare.com/client/v4/accounts/$CLOUDFLARE_ACCOUNT_ID/ai/run/{model} \\
  -X POST \\
  -H "Authorization: Bearer $CLOUDFLARE_API_TOKEN" \\
  --data-binary "@orange-llama.png" """
    )
    assert len(answer["result"][0]["label"]) == 64, "a digest of the picture"


def test_a_picture_as_multipart(curl: Curl, node: Node, fresh_name, tmp_path: Path):
    model = fresh_name()
    node.deploy(model, digest_model(model))
    line = f"curl -s https://api.cloudflare.com/client/v4/accounts/x/ai/run/{model} -F image=@orange-llama.png"
    binary = f"curl -s https://api.cloudflare.com/client/v4/accounts/x/ai/run/{model} --data-binary @orange-llama.png"
    assert curl(line)["result"] == curl(binary)["result"]


def test_the_model_in_the_body(curl: Curl, probe: Probe):
    model = probe()
    body = json.dumps({"model": model, "input": {"echo": "in the body"}})
    answer = curl(
        f"curl -s https://api.cloudflare.com/client/v4/accounts/$CLOUDFLARE_ACCOUNT_ID/ai/run -H 'Authorization: Bearer x' -d '{body}'"
    )
    assert answer["result"]["echo"] == "in the body"


def test_a_stream(node: Node, probe: Probe):
    line = f"""curl -sN {node.url}/client/v4/accounts/x/ai/run/{probe()} -d '{{"text": "hi", "stream": true}}'"""
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=bound(30), check=True)
    assert done.stdout.startswith("data: {") and done.stdout.endswith("data: [DONE]\n\n")


def test_the_catalogue(curl: Curl, probe: Probe):
    model = probe()
    base = "https://api.cloudflare.com/client/v4/accounts/$CLOUDFLARE_ACCOUNT_ID/ai"
    found = curl(f"curl -s '{base}/models/search?search={model}' -H 'Authorization: Bearer x'")
    assert [item["name"] for item in found["result"]] == [model]
    assert found["result_info"]["total_count"] == 1
    assert curl(f"curl -s '{base}/models/search?search={model}&page=2'")["result"] == []
    assert curl(f"curl -s '{base}/models/schema?model={model}'")["result"].keys() >= {"input", "output"}
    assert isinstance(curl(f"curl -s {base}/authors/search")["result"], list)
    assert "Image Classification" in [task["name"] for task in curl(f"curl -s {base}/tasks/search")["result"]]


def test_an_unknown_model_reads_as_it_does_there(curl: Curl):
    answer = curl("curl -s https://api.cloudflare.com/client/v4/accounts/x/ai/run/@cf/nope/nope -d '{}'")
    assert answer["success"] is False and answer["result"] == {}
    assert answer["errors"][0] == {"code": 5007, "message": "No such model @cf/nope/nope or task"}
