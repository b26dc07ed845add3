"""The row `tensors`: the same tensor through each of the node's doors for it, in turns: JSON, binary tensors, gRPC.

The model gives its input back as it came, so that what is compared is the way there and back.
"""

import argparse
import http.client
import json
import socket
import statistics
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.measure import Outcome, tree_cpu_s
from bench.servers import Ours

ROW = "tensors"
SIZES = {1_000: 300, 250_000: 15}
"""Numbers of a tensor, and how many requests make a cell."""
MODEL = "def handle_request(request, context):\n    return {'y': request.tensors['x']}\n"
TOML = '[[tensors.inputs]]\nname = "x"\ndtype = "FP32"\nshape = [-1]\n[[tensors.outputs]]\nname = "y"\ndtype = "FP32"\nshape = [-1]\n'
PATH = f"/v2/models/@bench/{ROW}/infer"
ANSWER_S = 60.0


@dataclass(frozen=True)
class Tensors:
    """One size by one door: medians of all rounds."""

    numbers: int
    door: str
    ms: float
    cpu_ms: float
    """For a request, of all of the node's processes."""
    of_json: float
    """Its CPU time over that of JSON, pair by pair."""


def row(place: Path, given: argparse.Namespace) -> Outcome:
    """Raises RuntimeError."""
    folder = place / ROW
    folder.mkdir()
    (folder / "model.toml").write_text(f'name = "@bench/{ROW}"\n{TOML}[serving]\nmax_body = 67108864\n')
    (folder / "model.py").write_text(MODEL)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    server = Ours(f"[server]\ngrpc_port = {port}\n[node]\n")
    try:
        server.start({ROW: folder})
        found = [one for size, count in SIZES.items() for one in _size(server, port, size, count, max(1, given.rounds))]
    finally:
        server.stop()
    lines = [
        f"{ROW} {one.numbers} FP32 by {one.door}: {one.ms:.2f} ms, CPU {one.cpu_ms:.2f} ms, {one.of_json:.2f} × JSON's" for one in found
    ]
    return Outcome(lines, [], [asdict(one) for one in found])


def _size(server: Ours, port: int, size: int, count: int, rounds: int) -> list[Tensors]:
    doors = _doors(server, port, size)
    cells: dict[str, list[tuple[float, float]]] = {name: [] for name in doors}
    for number in range(rounds):
        for name in list(doors)[:: 1 if number % 2 else -1]:
            cells[name].append(_cell(server, doors[name], count))
    return [
        Tensors(
            numbers=size,
            door=name,
            ms=statistics.median(cell[0] for cell in found),
            cpu_ms=statistics.median(cell[1] for cell in found),
            of_json=statistics.median(mine[1] / json_s[1] for mine, json_s in zip(found, cells["json"], strict=True)),
        )
        for name, found in cells.items()
    ]


def _cell(server: Ours, ask: Callable[[], object], count: int) -> tuple[float, float]:
    """(milliseconds, CPU milliseconds) of a request."""
    ask()
    began, used = time.perf_counter(), _used_s(server)
    for _ in range(count):
        ask()
    return (time.perf_counter() - began) * 1000 / count, (_used_s(server) - used) * 1000 / count


def _used_s(server: Ours) -> float:
    return sum(map(tree_cpu_s, server.pids(ROW)))


def _doors(server: Ours, port: int, size: int) -> dict[str, Callable[[], object]]:
    values = [index / 7 for index in range(size)]
    raw = struct.pack(f"<{size}f", *values)
    plain: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [size]}
    as_json = json.dumps({"inputs": [{**plain, "data": values}]}).encode()
    head = {"inputs": [{**plain, "parameters": {"binary_data_size": len(raw)}}], "parameters": {"binary_data_output": True}}
    text = json.dumps(head).encode()
    target = server.target(ROW, b"")
    connection = http.client.HTTPConnection(target.host, target.port, timeout=ANSWER_S)
    key = {"authorization": f"Bearer {target.token}"}

    def post(body: bytes, headers: dict[str, str]) -> bytes:
        connection.request("POST", PATH, body, {**key, **headers})
        answer = connection.getresponse()
        found = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {found[:300]!r}")
        return found

    return {
        "json": lambda: post(as_json, {}),
        "binary": lambda: post(text + raw, {"Inference-Header-Content-Length": str(len(text))}),
        "grpc": _grpc(port, size, raw, key),
    }


def _grpc(port: int, size: int, raw: bytes, key: dict[str, str]) -> Callable[[], object]:
    import grpc  # type: ignore[import-untyped]

    from fornada.edge.dialects.oip.rpc import inference_pb2 as pb

    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_receive_message_length", -1)])
    call = channel.unary_unary(
        "/inference.GRPCInferenceService/ModelInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelInferResponse.FromString,
    )
    request = pb.ModelInferRequest(model_name=f"@bench/{ROW}", raw_input_contents=[raw])
    request.inputs.add(name="x", datatype="FP32", shape=[size])
    return lambda: call(request, metadata=tuple(key.items()), timeout=ANSWER_S)
