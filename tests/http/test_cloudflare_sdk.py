"""Cloudflare's own generated tests of its Python SDK, unchanged, against a node.

They come from the SDK's source archive on PyPI, whose hash is in cloudflare_sdk/requirements.lock beside what they need, and run in an
environment of their own (as test_langchain's). The node has an accept-anything model under each name that they use, and nothing else.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.bundles import archive
from tests.harness.node import Node, node_environ
from tests.models.environments import environment, made, workplace

pytestmark = [pytest.mark.clients, pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

LOCK = Path(__file__).parent / "cloudflare_sdk" / "requirements.lock"
SDK = "cloudflare==5.9.0"
MODELS = ("@cf/meta/llama-3.1-8b-instruct", "model")
ANYTHING = """
def handle_request(request, context):
    asked = request.body.json
    answer = {"response": "Anything at all."}
    return iter([answer, {"response": ""}]) if isinstance(asked, dict) and asked.get("stream") else answer
"""
SENDS_STREAM = [
    f"tests/api_resources/test_ai.py::{kind}::test_method_run_with_all_params_overload_{number}[{how}]"
    for kind, ways in (("TestAI", ("loose", "strict")), ("TestAsyncAI", ("loose", "strict", "aiohttp")))
    for number in (8, 9)
    for how in ways
]
"""These send `"stream": true`, and this SDK can't read an event stream: no server that streams can pass them."""
ALL = 575
SKIPPED_BY_ITS_AUTHORS = 20


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return environment(LOCK)
    except subprocess.CalledProcessError:
        pytest.skip("the SDK and what its tests need aren't in the cache, and packages can't be fetched")


@pytest.fixture(scope="module")
def source(python: Path) -> Path:
    """The unpacked source archive."""

    def fetch(target: Path) -> None:
        with workplace(target) as work:
            # pip asks the archive's own build backend for its metadata: the environment has that, so nothing else is fetched.
            download = (sys.executable, "-m", "pip", "--python", python, "download", "--quiet", "--no-deps", "--no-binary", ":all:")
            subprocess.run([*map(str, download), "--no-build-isolation", "--dest", str(work), SDK], check=True, stdin=subprocess.DEVNULL)
            (found,) = work.iterdir()
            assert sha256(found.read_bytes()).hexdigest() in LOCK.read_text(), "another archive than the lock names"
            target.mkdir()
            subprocess.run(["tar", "-xzf", str(found), "-C", str(target)], check=True)

    try:
        (folder,) = made(f"sdk-{sha256(LOCK.read_bytes()).hexdigest()[:16]}", fetch).iterdir()
    except subprocess.CalledProcessError:
        pytest.skip("the SDK's source archive isn't in the cache, and packages can't be fetched")
    return folder


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("sdk"))
    try:
        node.start()
        for name in MODELS:
            node.deploy(name, archive({"model.toml": f'name = "{name}"\n', "model.py": ANYTHING}))
        yield node
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


def test_the_sdk_s_own_tests_pass(python: Path, source: Path, node: Node):
    assert len(SENDS_STREAM) == 10
    command = [str(python), "-B", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "tests/api_resources/test_ai.py"]
    command += ["tests/api_resources/ai", *(word for name in SENDS_STREAM for word in ("--deselect", name))]
    environ = {**node_environ(), "TEST_API_BASE_URL": f"{node.url}/client/v4"}
    done = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, timeout=bound(240), check=False)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (\w+)", done.stdout.strip().splitlines()[-1])}
    passed = ALL - SKIPPED_BY_ITS_AUTHORS - len(SENDS_STREAM)
    assert (counts["passed"], counts["skipped"], counts["deselected"]) == (passed, SKIPPED_BY_ITS_AUTHORS, len(SENDS_STREAM)), counts
