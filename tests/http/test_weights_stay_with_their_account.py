"""Whoever knows the sum of another account's weights has the sum, and nothing else."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from tests.harness.bundles import archive
from tests.harness.client import Response
from tests.harness.fixtures import StartNode
from tests.harness.node import Node
from tests.http.test_keys import bearer, create

WEIGHTS = b"what account alpha has trained"
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
READS = """
def handle_request(request, context):
    return context.artifacts["weights.bin"].read_bytes()
"""
CONVERTS = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])"


def bundle(source: str, convert: bool) -> bytes:
    artifact = f'[[artifacts]]\npath = "weights.bin"\nsha256 = "{SHA256}"\nsource = [{source}]\n'
    if convert:
        artifact += 'convert = { script = "convert.py" }\n'
    return archive({"model.toml": f'name = "@x/x"\n\n{artifact}', "model.py": READS, "convert.py": CONVERTS})


def ask(node: Node, key: dict[str, Any], method: str, target: str, body: bytes = b"", **headers: str) -> Response:
    return node.fetch(method, target, body, headers={**bearer(key), **{name.replace("_", "-"): value for name, value in headers.items()}})


def deploy(node: Node, key: dict[str, Any], name: str, *, source: str = "", convert: bool = False) -> None:
    answer = ask(node, key, "PUT", f"/api/v1/models/{name}", bundle(source, convert), content_type="application/gzip")
    assert answer.status == 200, answer.body


def run(node: Node, key: dict[str, Any], account: str, name: str) -> Response:
    return ask(node, key, "POST", f"/client/v4/accounts/{account}/ai/run/{name}", b"{}", content_type="application/json")


def test_a_sum_gives_nobody_the_weights_of_another_account(new_node: StartNode, tmp_path: Path):
    theirs, ours = tmp_path / "offered" / "alpha.bin", tmp_path / "offered" / "beta.bin"
    theirs.parent.mkdir()
    theirs.write_bytes(WEIGHTS)
    node = new_node(config=f"[provision]\nallow_files = [{json.dumps(str(theirs.parent))}]").start()
    alpha, beta = create(node, "alpha", "deployer"), create(node, "beta", "deployer")
    source = json.dumps(f"file:{theirs}")
    for name, convert in (("@alpha/plain", False), ("@alpha/converted", True)):
        deploy(node, alpha, name, source=source, convert=convert)
        assert run(node, alpha, "alpha", name).body == WEIGHTS
    theirs.unlink()
    (stored,) = (node.data_dir / "artifacts").glob("[0-9a-f]" * 64)
    before = stored.stat().st_ino
    heard = []
    for name, told, convert in (("@beta/none", "", False), ("@beta/wrong", json.dumps(f"file:{ours}"), False), ("@beta/made", "", True)):
        deploy(node, beta, name, source=told, convert=convert)
        refused = run(node, beta, "beta", name)
        why = ask(node, beta, "GET", f"/api/v1/models/{name}/why")
        heard += [refused.body, why.body]
        assert refused.status == 503 and b"can't be had" in refused.body, refused.body
        assert WEIGHTS not in refused.body + why.body
    assert not re.search(rb"alpha|stored|damaged", b"".join(heard)), "nor that it is there"
    # Who has the file himself is served, and it lies there once.
    ours.write_bytes(WEIGHTS)
    deploy(node, beta, "@beta/own", source=json.dumps(f"file:{ours}"))
    assert run(node, beta, "beta", "@beta/own").body == WEIGHTS
    assert stored.stat().st_ino == before and len(os.listdir(node.data_dir / "artifacts" / ".partial")) == 0
    ours.unlink()
    node.stop()
    node.start()
    for key, account, name in ((alpha, "alpha", "@alpha/plain"), (alpha, "alpha", "@alpha/converted"), (beta, "beta", "@beta/own")):
        assert run(node, key, account, name).body == WEIGHTS, "without a source, also after a restart"
