"""Trains the network and writes model.onnx. Needs numpy alone: ONNX is written by hand below.

    python train.py

Two inputs, two hidden layers of 16 (tanh), softmax over two labels; full-batch Adam for 300 steps: a moment.
The same machine and numpy give the same file.
"""

from pathlib import Path

import numpy as np

HIDDEN = 16
STEPS = 300
POINTS = 400
NOISE = 0.2
RATE = 0.01
OPSET = 17
FLOAT = 1  # TensorProto.DataType


def moons(chance, count):
    """(points [2 count, 2], labels [2 count]): an upper half-moon (0), and a lower one (1) that reaches into it."""
    angle = chance.uniform(0, np.pi, count)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    points = np.concatenate([upper, lower]) + chance.normal(0, NOISE, (2 * count, 2))
    return points, np.repeat([0, 1], count)


def forward(weights, points):
    """Outputs of each layer, the last one being the shares of the labels."""
    first = np.tanh(points @ weights[0] + weights[1])
    second = np.tanh(first @ weights[2] + weights[3])
    logits = second @ weights[4] + weights[5]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return first, second, shares / shares.sum(axis=1, keepdims=True)


def gradients(weights, points, labels):
    """Of the mean cross-entropy, in the order of the weights."""
    first, second, shares = forward(weights, points)
    error = shares.copy()
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back_second = error @ weights[4].T * (1 - second**2)
    back_first = back_second @ weights[2].T * (1 - first**2)
    return [
        points.T @ back_first,
        back_first.sum(axis=0),
        first.T @ back_second,
        back_second.sum(axis=0),
        second.T @ error,
        error.sum(axis=0),
    ]


def train(seed=0):
    """(weights, share of unseen points that are told right)"""
    chance = np.random.default_rng(seed)
    points, labels = moons(chance, POINTS)
    sizes = [(2, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 2)]
    weights = [part for rows, columns in sizes for part in (chance.normal(0, rows**-0.5, (rows, columns)), np.zeros(columns))]
    means = [np.zeros_like(part) for part in weights]
    squares = [np.zeros_like(part) for part in weights]
    for step in range(1, STEPS + 1):
        for part, slope, mean, square in zip(weights, gradients(weights, points, labels), means, squares, strict=True):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            part -= RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    unseen, truth = moons(chance, POINTS)
    return weights, float((forward(weights, unseen)[2].argmax(axis=1) == truth).mean())


# ---- ONNX is a protobuf: fields of (number, kind), where kind 0 is a number and kind 2 is bytes with their length before them ----


def number(field, value):
    return varint(field << 3) + varint(value)


def block(field, content):
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


def varint(value):
    low = bytearray()
    while value > 127:
        low.append(value & 127 | 128)
        value >>= 7
    return bytes([*low, value])


def tensor(name, array):
    """TensorProto: dims 1, data_type 2, name 8, raw_data 9."""
    sizes = b"".join(number(1, size) for size in array.shape)
    return sizes + number(2, FLOAT) + block(8, name) + block(9, array.astype("<f4").tobytes())


def node(kind, inputs, output):
    """NodeProto: input 1, output 2, op_type 4."""
    return b"".join(block(1, name) for name in inputs) + block(2, output) + block(4, kind)


def value(name, columns):
    """ValueInfoProto of a float matrix whose rows are free."""
    rows = block(1, block(2, "rows"))  # Dimension.dim_param
    shape = block(2, rows + block(1, number(1, columns)))  # Tensor.shape; Dimension.dim_value
    return block(1, name) + block(2, block(1, number(1, FLOAT) + shape))


def onnx(weights):
    """ModelProto: ir_version 1, producer_name 2, graph 7, opset_import 8."""
    names = ["w1", "b1", "w2", "b2", "w3", "b3"]
    nodes = []
    current = "point"
    for layer in range(3):
        nodes.append(node("Gemm", [current, names[2 * layer], names[2 * layer + 1]], f"sum{layer}"))
        current = f"out{layer}" if layer < 2 else "share"
        nodes.append(node("Tanh" if layer < 2 else "Softmax", [f"sum{layer}"], current))
    graph = b"".join(block(1, each) for each in nodes) + block(2, "moons")
    graph += b"".join(block(5, tensor(name, part)) for name, part in zip(names, weights, strict=True))
    graph += block(11, value("point", 2)) + block(12, value("share", 2))
    return number(1, 8) + block(2, "fornada example") + block(7, graph) + block(8, number(2, OPSET))


if __name__ == "__main__":
    trained, right = train()
    print(f"{right:.1%} of unseen points are told right")
    Path(__file__).with_name("model.onnx").write_bytes(onnx(trained))
