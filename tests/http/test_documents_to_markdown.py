"""`ai/tomarkdown` on a real node: the shipped converter in its sandbox, and the shipped vision models."""

import io
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import documents
from tests.harness.built import BuiltNode
from tests.harness.node import Node
from tests.models.conftest import MODELS
from tests.models.environments import MIRROR

pytestmark = [pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(600)]

PATH = "/client/v4/accounts/docs/ai/tomarkdown"
BOUNDARY = "bOuNdArY"
PICTURE = MODELS / "efficientnet-lite0" / "example" / "request.jpg"
CONVERTER, VISION = "@fornada/to-markdown", ("@fornada/efficientnet-lite0", "@fornada/coco-ssd")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = BuiltNode(tmp_path_factory.mktemp("documents"), models=(CONVERTER, *VISION), environ={"FORNADA_MIRROR": str(MIRROR)})
    try:
        node.start()
        loaded = node.act(CONVERTER, "load", timeout_s=400)
        assert loaded.status == 200, loaded.body
        yield node
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


def convert(node: Node, *files: tuple[str, bytes], **headers: str) -> list[dict[str, Any]]:
    head = f'--{BOUNDARY}\r\ncontent-disposition: form-data; name="files"; filename='
    body = b"".join(f'{head}"{name}"\r\n\r\n'.encode() + data + b"\r\n" for name, data in files) + f"--{BOUNDARY}--\r\n".encode()
    answer = node.fetch("POST", PATH, body, headers={"content-type": f"multipart/form-data; boundary={BOUNDARY}", **headers}, timeout_s=120)
    assert answer.status == 200, answer.body[:500]
    found: list[dict[str, Any]] = answer.json()["result"]
    return found


def long_text(megabytes: int) -> bytes:
    """A document whose one line a library takes apart for as long as it is let."""
    made = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(documents.docx("Top", "MARK"))) as whole,
        zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, True, 1) as target,
    ):
        for name in whole.namelist():
            target.writestr(name, whole.read(name).replace(b"MARK", b"a" * (megabytes << 20)))
    return made.getvalue()


def bomb() -> bytes:
    """A page of some megabytes of which a library makes a gigabyte."""
    return b"<a " * 5_000_000


def requests(node: Node) -> dict[str, int]:
    """Of the account, by model."""
    return {row["model"]: row["requests"] for row in node.fetch("GET", "/api/v1/usage").json()["usage"] if row["account"] == "docs"}


def test_documents_become_markdown_and_are_counted(node: Node):
    before = requests(node).get(CONVERTER, 0)
    html, pdf, broken = convert(
        node, ("page.html", b"<h1>Top</h1><p>words</p>"), ("two.pdf", documents.pdf("One", "Two")), ("broken.docx", b"PK\x03\x04")
    )
    assert html["data"] == "# Top\n\nwords\n" and html["tokens"] == 4
    assert "### Page 2\n\nTwo" in pdf["data"]
    assert broken["format"] == "error" and "can't be read as docx" in broken["error"]
    assert requests(node)[CONVERTER] == before + 3


@pytest.mark.long
@pytest.mark.skipif(not MIRROR.is_dir(), reason="no folder shared/models beside the repository, and FORNADA_MIRROR names no other")
def test_pictures_are_described_by_the_shipped_models(node: Node):
    for model in VISION:
        loaded = node.act(model, "load", timeout_s=400)
        assert loaded.status == 200, loaded.body
    (picture,) = convert(node, ("cup.jpg", PICTURE.read_bytes()))
    assert picture["data"].startswith("# cup.jpg\n\nPicture, probably of: ") and "%" in picture["data"]
    assert [requests(node)[model] for model in VISION] == [1, 1]


def test_a_file_that_wants_all_memory_costs_its_own_result_alone(node: Node):
    control_pid, pids = node.control_pid, node.pids(CONVERTER)
    first, second, third = convert(node, ("a.csv", b"a,b\n"), ("bomb.html", bomb()), ("b.csv", b"c,d\n"))
    assert first["format"] == third["format"] == "markdown"
    assert second["format"] == "error" and "memory" in second["error"], second
    assert node.control_pid == control_pid and node.pids(CONVERTER) == pids, "the converter lives on"


def test_a_file_that_takes_its_time_down_holds_up_nobody(node: Node):
    (late,) = convert(node, ("long.docx", long_text(100)), **{"x-timeout-ms": "3000"})
    assert late["format"] == "error" and "deadline" in late["error"], late
    (next,) = convert(node, ("a.csv", b"a,b\n"), **{"x-timeout-ms": "20000"})
    assert next["format"] == "markdown", "the one place of the converter is free again"
