"""What the pages about OpenAI's and Anthropic's clients say, word for word, with the catalogue's chat model."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.docs.pages import DOCS, blocks
from tests.harness.built import BuiltNode
from tests.harness.fixtures import StartNode
from tests.harness.node import node_environ

pytestmark = [pytest.mark.clients, pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

CHAT = "@fornada/smollm2-135m-instruct"
LOAD_S = 400
"""An environment of a hundred megabytes may be built on the way."""
NAMED_URL = "http://127.0.0.1:8250"


def test_the_pages_lines_work_as_they_are_written(new_node: StartNode, tmp_path: Path):
    node = new_node(kind=BuiltNode, models=(CHAT,)).start()
    assert node.act(CHAT, "load", timeout_s=LOAD_S).status == 200
    for page, count in (("openai-clients.md", 2), ("anthropic-clients.md", 1)):
        written = [block.text for block in blocks(DOCS / "how-to" / page) if (block.language, block.words) == ("python", ())]
        told = [text for text in written if "client" in text]
        assert len(told) == count and NAMED_URL in told[0]
        script = tmp_path / "page.py"
        script.write_text("\n".join(told).replace(NAMED_URL, node.url))
        command = [sys.executable, "-I", "-B", str(script)]
        done = subprocess.run(command, env=node_environ(), capture_output=True, text=True, timeout=bound(120), check=False)
        assert done.returncode == 0, f"{page}\n{done.stdout}\n{done.stderr}"
        assert "Paris" in done.stdout, (page, done.stdout)
    assert node.stop() == 0
