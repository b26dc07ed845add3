"""The network that all servers answer with: 784 -> 128 -> 10, 407 KB of ONNX, the same bytes everywhere. Written by hand: no package needed."""

import array
import random
import struct
from pathlib import Path

COLUMNS, HIDDEN, LABELS = 784, 128, 10
NUMBERS = [round(value, 4) for value in (random.Random(7).random() for _ in range(COLUMNS))]
"""A row of its input."""
OPSET, IR_VERSION = 17, 8
FLOAT = 1  # TensorProto.DataType


def write(path: Path, *, seed: int = 1) -> None:
    """Puts the network there, unless it is there already. Input "x" and output "y" are float matrices with free rows; the weights
    are those of the `seed`."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(".part")
        made.write_bytes(_model(seed))
        made.rename(path)


def _model(seed: int) -> bytes:
    """ModelProto: ir_version 1, producer_name 2, graph 7, opset_import 8."""
    chance = random.Random(seed)
    nodes = _node("Gemm", ["x", "w1", "b1"], "sum") + _node("Relu", ["sum"], "hidden") + _node("Gemm", ["hidden", "w2", "b2"], "y")
    weights = b"".join(
        _block(5, _tensor(name, sizes, chance))
        for name, sizes in {"w1": (COLUMNS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, LABELS), "b2": (LABELS,)}.items()
    )
    graph = nodes + _block(2, b"mlp") + weights + _block(11, _value("x", COLUMNS)) + _block(12, _value("y", LABELS))
    return _number(1, IR_VERSION) + _block(2, b"fornada bench") + _block(7, graph) + _block(8, _number(2, OPSET))


def _tensor(name: str, sizes: tuple[int, ...], chance: random.Random) -> bytes:
    """TensorProto: dims 1, data_type 2, name 8, raw_data 9."""
    count = sizes[0] * (sizes[1] if len(sizes) > 1 else 1)
    numbers = array.array("f", (chance.gauss(0, 0.05) for _ in range(count)))
    dims = b"".join(_number(1, size) for size in sizes)
    return dims + _number(2, FLOAT) + _block(8, name.encode()) + _block(9, struct.pack(f"<{count}f", *numbers))


def _node(kind: str, inputs: list[str], output: str) -> bytes:
    """GraphProto.node 1, of NodeProto: input 1, output 2, op_type 4."""
    return _block(1, b"".join(_block(1, name.encode()) for name in inputs) + _block(2, output.encode()) + _block(4, kind.encode()))


def _value(name: str, columns: int) -> bytes:
    """ValueInfoProto of a float matrix whose rows are free."""
    shape = _block(1, _block(2, b"rows")) + _block(1, _number(1, columns))  # Dimension.dim_param; Dimension.dim_value
    return _block(1, name.encode()) + _block(2, _block(1, _number(1, FLOAT) + _block(2, shape)))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _block(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low = bytearray()
    while value > 127:
        low.append(value & 127 | 128)
        value >>= 7
    return bytes([*low, value])
