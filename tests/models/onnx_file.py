"""Small ONNX files, written field by field (onnx.proto3), so that no package is needed to make them."""

import struct
from collections.abc import Sequence

FLOAT, INT64, STRING = 1, 7, 8
LEAST = -(2**63)
"""The smallest INT64; there is no number of that kind for LEAST / -1."""


def add_model(element: int = FLOAT) -> bytes:
    """y = a + b, with a and b of shape [rows, 2]."""
    node = text(1, "a") + text(1, "b") + text(2, "y") + text(4, "Add")
    return model(node, [value("a", element, ["rows", 2]), value("b", element, ["rows", 2])], [value("y", element, ["rows", 2])])


def divided_model() -> bytes:
    """y = a / b of whole numbers, with a and b of shape [rows, 2]. LEAST / -1 is a trap to the processor, and ONNX Runtime dies of it."""
    node = text(1, "a") + text(1, "b") + text(2, "y") + text(4, "Div")
    return model(node, [value("a", INT64, ["rows", 2]), value("b", INT64, ["rows", 2])], [value("y", INT64, ["rows", 2])])


def identity_model(element: int) -> bytes:
    """y = x, one axis."""
    node = text(1, "x") + text(2, "y") + text(4, "Identity")
    return model(node, [value("x", element, ["n"])], [value("y", element, ["n"])])


def scaled_model(factor: float) -> bytes:
    """y = x * factor, with x of shape [rows, 2] and the factor among the weights."""
    node = text(1, "x") + text(1, "w") + text(2, "y") + text(4, "Mul")
    weight = number(1, 1) + number(2, FLOAT) + text(8, "w") + message(9, struct.pack("<f", factor))
    return model(node, [value("x", FLOAT, ["rows", 2])], [value("y", FLOAT, ["rows", 2])], weights=[weight])


def model(node: bytes, inputs: Sequence[bytes], outputs: Sequence[bytes], weights: Sequence[bytes] = ()) -> bytes:
    """A ModelProto of one node: IR version 8, operator set 17."""
    graph = (
        message(1, node)
        + text(2, "g")
        + b"".join(message(5, each) for each in weights)
        + b"".join(message(11, each) for each in inputs)
        + b"".join(message(12, each) for each in outputs)
    )
    return number(1, 8) + message(7, graph) + message(8, number(2, 17))


def value(name: str, element: int, shape: Sequence[int | str]) -> bytes:
    """A ValueInfoProto; a text in `shape` is the name of a free dimension."""
    sizes = b"".join(message(1, number(1, size) if isinstance(size, int) else text(2, size)) for size in shape)
    return text(1, name) + message(2, message(1, number(1, element) + message(2, sizes)))


def number(field: int, content: int) -> bytes:
    return varint(field << 3) + varint(content)


def text(field: int, content: str) -> bytes:
    return message(field, content.encode())


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def varint(content: int) -> bytes:
    out = bytearray()
    while content > 127:
        out.append(content & 127 | 128)
        content >>= 7
    return bytes(out) + bytes([content])
