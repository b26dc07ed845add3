"""The tutorials are done as they are written: files are written, commands typed, and what they say is compared.

```python file=PATH      the block is written to PATH
```sh runnable           it is run; with `fails` it must fail
```text output           each line stands in what the block before printed, in this order; … stands for anything
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.docs.pages import DOCS, blocks, name
from tests.harness.node import FORNADA, Node, node_environ

PAGES = [page for page in sorted((DOCS / "tutorials").glob("*.md")) if any("runnable" in block.words for block in blocks(page))]


def test_there_is_a_tutorial_that_is_run():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_tutorial_works_as_it_is_written(page: Path, node: Node, tmp_path: Path):
    environ = node_environ({"FORNADA_URL": node.url})
    environ["PATH"] = f"{FORNADA.parent}:{environ.get('PATH', os.defpath)}"
    said = ""
    for block in blocks(page):
        for word in block.words:
            if word.startswith("file="):
                path = tmp_path / word.removeprefix("file=")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
        if "runnable" in block.words:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text],
                cwd=tmp_path,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=bound(60),
                check=False,
            )
            said = done.stdout
            assert (done.returncode != 0) == ("fails" in block.words), f"{block.text}\n{said}"
        elif (block.language, block.words) == ("text", ("output",)):
            compare(said, block.text)


def compare(said: str, wanted: str) -> None:
    rest = said
    for line in wanted.strip().splitlines():
        match = re.search(re.escape(line.strip()).replace("…", ".*"), rest)
        assert match, f"{line!r} doesn't stand in\n{said}"
        rest = rest[match.end() :]
