"""LangChain's own packages, unchanged, against a node with the catalogue's models, as a newcomer would use them.

They live in an environment of their own, from langchain/requirements.lock: `uv pip compile` makes it from requirements.in with
the options that `make lock` has. The steps are in langchain/, since they need that environment's interpreter.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.docs.pages import DOCS, blocks
from tests.harness.built import BuiltNode
from tests.harness.node import node_environ
from tests.models.environments import environment_or_skip

pytestmark = [pytest.mark.clients, pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent / "langchain"
PAGE = DOCS / "how-to" / "openai-clients.md"
MODELS = ("@fornada/smollm2-135m-instruct", "@fornada/minilm", "@fornada/minilm-reranker")
LOAD_S = 400
"""An environment of a hundred megabytes may be built on the way."""
NAMED_URL = "http://127.0.0.1:8250"
"""Where the page's node is."""


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of LangChain's environment."""
    return environment_or_skip(HERE / "requirements.lock")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose models are ready."""
    node = BuiltNode(tmp_path_factory.mktemp("langchain"), models=MODELS)
    try:
        node.start()
        for model in MODELS:
            loaded = node.act(model, "load", timeout_s=LOAD_S)
            assert loaded.status == 200, loaded.body
        yield node.url_of("langchain-cloudflare")
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


def said_by(python: Path, script: Path, *words: str) -> str:
    """What the script printed, which must succeed. -I: nothing of the environment that runs the tests is found."""
    command = [str(python), "-I", "-B", str(script), *words]
    done = subprocess.run(command, env=node_environ(), capture_output=True, text=True, timeout=bound(240), check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_langchain_openai(python: Path, url: str):
    steps = said_by(python, HERE / "with_openai.py", url).split()
    assert {"asks", "streams", "responds", "calls_tools", "answers_with_structure", "embeds", "does_it_all_async"} <= set(steps)


def test_langchain_cloudflare(python: Path, url: str):
    steps = said_by(python, HERE / "with_cloudflare.py", url).split()
    assert {"goes_through_a_gateway", "asks", "streams", "calls_tools", "answers_with_structure", "embeds", "does_it_all_async"} <= set(
        steps
    )


def test_the_page_s_lines_work_as_they_are_written(python: Path, url: str, tmp_path: Path):
    written = [block.text for block in blocks(PAGE) if "langchain" in block.words]
    assert len(written) == 2, "one of each package"
    for number, text in enumerate(written):
        assert NAMED_URL in text
        script = tmp_path / f"{number}.py"
        script.write_text(text.replace(NAMED_URL, url))
        said = said_by(python, script)
        assert "Paris" in said and "384" in said
