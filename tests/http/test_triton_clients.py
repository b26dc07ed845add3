"""Triton's own clients, unchanged, against a node: the steps of their examples, over HTTP and gRPC.

They live in an environment of their own, from triton/requirements.lock: `uv pip compile` makes it from requirements.in with the options that
`make lock` has. The steps are in triton/, since they need that environment's interpreter, and know nothing of ours.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.docs.pages import DOCS, REPOSITORY, blocks
from tests.harness.bundles import archive
from tests.harness.node import DEFAULT_CONFIG, Node
from tests.harness.sockets import free_port
from tests.models.environments import environment_or_skip

pytestmark = [pytest.mark.clients, pytest.mark.packages, pytest.mark.slow, pytest.mark.timeout(300)]

HERE = Path(__file__).parent / "triton"
SIMPLE = """
def handle_request(request, context):
    a, b = (request.tensors[name].flat() for name in ("INPUT0", "INPUT1"))
    return {"OUTPUT0": [[x + y for x, y in zip(a, b)]], "OUTPUT1": [[x - y for x, y in zip(a, b)]]}
"""
IDENTITY = "def handle_request(request, context):\n    return request.tensors\n"
COUNTS = """
def handle_request(request, context):
    for step in range(request.tensors["steps"].flat()[0]):
        yield {"step": [step]}
"""
HALF = REPOSITORY / "examples" / "half-plus-two"
DTYPES = ("BYTES", "FP16", "FP64", "BOOL", "UINT64")


def tensor(side: str, name: str, dtype: str, shape: str, more: str = "") -> str:
    return f'[[tensors.{side}]]\nname = "{name}"\ndtype = "{dtype}"\nshape = {shape}\n{more}\n'


MODELS = {
    "simple": (
        SIMPLE,
        "".join(tensor("inputs", f"INPUT{n}", "INT32", "[1, 16]") + tensor("outputs", f"OUTPUT{n}", "INT32", "[1, 16]") for n in range(2)),
    ),
    "identity": (
        IDENTITY,
        "".join(tensor("inputs", each, each, "[-1, -1]", "optional = true") + tensor("outputs", each, each, "[-1, -1]") for each in DTYPES),
    ),
    "counts": (COUNTS, tensor("inputs", "steps", "INT64", "[1]") + tensor("outputs", "step", "INT64", "[1]")),
}


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the clients' environment."""
    return environment_or_skip(HERE / "requirements.lock")


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of a node with the models of the examples."""
    port = free_port()
    node = Node(tmp_path_factory.mktemp("triton"), config=f"{DEFAULT_CONFIG}[server]\ngrpc_port = {port}\n").start()
    try:
        for name, (code, tensors) in MODELS.items():
            node.deploy(name, archive({"model.py": code.encode(), "model.toml": f'name = "{name}"\n{tensors}'.encode()}))
        node.deploy("half_plus_two", archive({file: (HALF / file).read_bytes() for file in ("model.py", "model.toml")}))
        yield {"http": node.url_of("tritonclient (HTTP)").removeprefix("http://"), "grpc": f"127.0.0.1:{port}"}
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tritons_client_works_by_its_own_examples(python: Path, addresses: dict[str, str], protocol: str):
    command = [str(python), "-I", str(HERE / f"with_{protocol}.py"), addresses[protocol]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound(120), check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.parametrize(("protocol", "address"), [("http", "127.0.0.1:8250"), ("grpc", "127.0.0.1:8251")])
def test_the_page_s_lines_work_as_they_are_written(python: Path, addresses: dict[str, str], protocol: str, address: str):
    (written,) = (block.text for block in blocks(DOCS / "how-to" / "tensors.md") if {"triton", protocol} <= set(block.words))
    assert address in written
    command = [str(python), "-I", "-c", written.replace(address, addresses[protocol])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=bound(60), check=False)
    assert (done.returncode, done.stdout) == (0, "[2.5 3.  4.5]\n"), done.stderr
