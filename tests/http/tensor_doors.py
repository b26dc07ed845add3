"""One model that takes tensors, asked by every door that tensors come through. What goes in comes out, with a digest of what the model saw."""

import base64
import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc  # type: ignore[import-untyped]

from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from fornada_sdk.wire.tensors import ITEM_BYTES, packed
from tests.harness.bundles import archive
from tests.harness.client import Response, strict_json
from tests.harness.node import DEFAULT_CONFIG, Node
from tests.harness.sockets import free_port
from tests.http.test_grpc import Client

DTYPES = (*ITEM_BYTES, "BYTES")
MODEL = "@test/every-type"
MIRROR = """
import hashlib

def handle_request(request, context):
    seen = hashlib.sha256(b"".join(bytes(tensor.data) for tensor in request.tensors.values())).hexdigest()
    return {**request.tensors, "seen": [seen]}
"""
TYPED = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
WAYS = ("json", "binary", "raw", "typed")
"""/v2 over HTTP, in its two forms, and over gRPC, in its two."""
LENGTH = "Inference-Header-Content-Length"


class Given(NamedTuple):
    """A tensor to be sent."""

    name: str
    dtype: str
    shape: Sequence[int]
    values: Sequence[Any]

    @property
    def raw(self) -> bytes:
        return packed(self.values, self.dtype)


class Said(NamedTuple):
    """An answer: by name the values as bytes, or why there is none."""

    outputs: dict[str, bytes]
    refusal: str = ""
    code: int = 0

    @property
    def seen(self) -> str:
        """Digest of the bytes that the model was given."""
        return self.outputs["seen"][4:].decode()


def digest(*tensors: Given) -> str:
    return hashlib.sha256(b"".join(each.raw for each in tensors)).hexdigest()


def bundle(shapes: dict[str, list[int]] | None = None, *, more: str = "") -> bytes:
    """The model: an input for each data type, named as it in lower case, and FP32 ones of other shapes. `more` is model.toml's end."""
    declared = {dtype.lower(): (dtype, [-1]) for dtype in DTYPES} | {name: ("FP32", shape) for name, shape in (shapes or {}).items()}
    lines = [f'name = "{MODEL}"']
    for name, (dtype, shape) in declared.items():
        lines += ["[[tensors.inputs]]", f'name = "{name}"', f'dtype = "{dtype}"', f"shape = {shape}", "optional = true"]
        lines += ["[[tensors.outputs]]", f'name = "{name}"', f'dtype = "{dtype}"', f"shape = {shape}"]
    lines += ["[[tensors.outputs]]", 'name = "seen"', 'dtype = "BYTES"', "shape = [1]"]
    return archive({"model.toml": "\n".join([*lines, more]), "model.py": MIRROR})


class Doors:
    """Of a running node."""

    def __init__(self, node: Node, client: Client) -> None:
        self.node = node
        self.client = client

    def ask(self, way: str, *tensors: Given, model: str = MODEL) -> Said:
        if way in ("raw", "typed"):
            return self._rpc(way, tensors, model)
        inputs: list[dict[str, Any]] = []
        behind = b""
        for each in tensors:
            shown: dict[str, Any] = {"name": each.name, "datatype": each.dtype, "shape": list(each.shape)}
            if way == "binary":
                shown["parameters"] = {"binary_data_size": len(each.raw)}
                behind += each.raw
            elif each.dtype == "BYTES" and any(isinstance(value, bytes) for value in each.values):
                shown["parameters"] = {"content_type": "base64"}
                shown["data"] = [base64.b64encode(value).decode() for value in each.values]
            else:
                shown["data"] = list(each.values)
            inputs.append(shown)
        text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": way == "binary"}}, ensure_ascii=False).encode()
        headers = {LENGTH: str(len(text))} if way == "binary" else {}
        answer = self.node.fetch("POST", f"/v2/models/{model}/infer", text + behind, headers=headers)
        return _said(answer)

    def rows(self, rows: list[Any], *, model: str = MODEL) -> Response:
        """TensorFlow Serving's row format."""
        return self.node.fetch("POST", f"/v1/models/{model}:predict", payload={"instances": rows})

    def columns(self, columns: Any, *, model: str = MODEL) -> Response:
        """TensorFlow Serving's column format."""
        return self.node.fetch("POST", f"/v1/models/{model}:predict", payload={"inputs": columns})

    def _rpc(self, way: str, tensors: Sequence[Given], model: str) -> Said:
        request = pb.ModelInferRequest(model_name=model)
        for each in tensors:
            made = request.inputs.add(name=each.name, datatype=each.dtype, shape=each.shape)
            if way == "raw":
                request.raw_input_contents.append(each.raw)
            else:
                values = [value.encode() if isinstance(value, str) else value for value in each.values]
                getattr(made.contents, TYPED[each.dtype]).extend(values)
        try:
            answer = self.client.infer(request)
        except grpc.RpcError as refusal:
            return Said({}, str(refusal.details()), int(dict(refusal.trailing_metadata())["fornada-code"]))
        return Said({each.name: raw for each, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)})


def _said(answer: Response) -> Said:
    size = int(answer.headers.get(LENGTH.lower(), len(answer.body)))
    body = strict_json(answer.body[:size])
    if answer.status != 200:
        return Said({}, body["error"], body["errors"][0]["code"])
    outputs, at = {}, size
    for each in body["outputs"]:
        more = each.get("parameters", {})
        if "binary_data_size" in more:
            outputs[each["name"]] = answer.body[at : at + more["binary_data_size"]]
            at += more["binary_data_size"]
        elif more.get("content_type") == "base64":
            outputs[each["name"]] = packed([base64.b64decode(text, validate=True) for text in each["data"]], "BYTES")
        else:
            outputs[each["name"]] = packed(each["data"], each["datatype"])
    return Said(outputs)


@contextlib.contextmanager
def doors_in(folder: Path, deployed: bytes) -> Iterator[Doors]:
    """A node with the model, and gRPC."""
    port = free_port()
    node = Node(folder, config=f"{DEFAULT_CONFIG}[server]\ngrpc_port = {port}\n").start()
    try:
        node.deploy(MODEL, deployed)
        node.load(MODEL)
        yield Doors(node, Client(port))
        assert node.stop() == 0, node.said()
    finally:
        node.destroy()
