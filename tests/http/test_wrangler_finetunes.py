"""wrangler, unchanged, hands a fine-tune in and lists it."""

from pathlib import Path

import pytest

from fornada.core.finetunes import CONFIG, WEIGHTS, base_folder
from tests.harness.adapters import config, weights
from tests.harness.bundles import archive
from tests.harness.node import Node
from tests.http.node_js import npm

pytestmark = [pytest.mark.clients, pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

MODEL = "@test/chat"


def test_wrangler_creates_and_lists_fine_tunes(node: Node, tmp_path: Path):
    packages = npm()
    code = "def handle_request(request, context):\n    return {'response': 'x'}\n"
    node.deploy(MODEL, archive({"model.toml": f'name = "{MODEL}"\ntask = "text-generation"\n', "model.py": code}))
    folder = tmp_path / "pirate"
    folder.mkdir()
    (folder / CONFIG).write_bytes(config(model_type="llama"))
    (folder / WEIGHTS).write_bytes(weights())
    environ = {
        "CLOUDFLARE_API_BASE_URL": f"{node.url}/client/v4",
        "CLOUDFLARE_API_TOKEN": "any",
        "CLOUDFLARE_ACCOUNT_ID": "local",
        "WRANGLER_SEND_METRICS": "false",
        "CI": "true",
    }
    said = packages.run(["wrangler", "ai", "finetune", "create", MODEL, "pirate", str(folder)], cwd=tmp_path, environ=environ)
    assert "pirate" in said, said
    (made,) = node.fetch("GET", "/client/v4/accounts/local/ai/finetunes").json()["result"]
    try:
        place = node.data_dir / "finetunes" / base_folder(MODEL) / made["id"]
        assert {file.name: file.read_bytes() for file in place.iterdir()} == {CONFIG: config(model_type="llama"), WEIGHTS: weights()}
        listed = packages.run(["wrangler", "ai", "finetune", "list"], cwd=tmp_path, environ=environ)
        assert made["id"] in listed and "pirate" in listed, listed
    finally:
        node.fetch("DELETE", f"/client/v4/accounts/local/ai/finetunes/{made['id']}")
