"""EfficientNet-Lite0: the weights' file as PyTorch wrote it -> a TensorFlow SavedModel. Runs once, as a build.

    python convert.py WEIGHTS.pth FOLDER

No PyTorch is needed and no code in the file can run: the unpickler knows four names, and none of them does anything but
describe a tensor. The network is built from plain TensorFlow operations (variables named without a leading "_", which the
SavedModel format refuses), with each batch normalisation folded into the convolution before it: a third fewer operations
and the same numbers.

The SavedModel's signature `serving_default`: image UINT8 [-1, 224, 224, 3] (RGB) -> scores FP32 [-1, 1000].
"""

import collections
import io
import math
import os
import pickle
import sys
from typing import NamedTuple

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C  # PyTorch's formats before 1.6 begin with it (torch/serialization.py)
PROTOCOL = 1001
SIDE = 224
BN_EPSILON = 1e-3
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
"""Of the 16 blocks' depthwise convolutions; every other number of the architecture can be read off the weights' shapes."""


class Refused(Exception):
    """The file isn't what it should be."""


class Storage(NamedTuple):
    """A run of numbers further back in the file."""

    key: str
    dtype: str
    count: int


class Tensor(NamedTuple):
    """A view of a storage; offset and strides in elements."""

    storage: Storage
    offset: int
    shape: tuple
    strides: tuple


class Rebuild:
    """Stands for torch._utils._rebuild_tensor_v2. Without attributes, so that a pickle has nothing to overwrite."""

    __slots__ = ()

    def __call__(self, storage, offset, shape, strides, requires_grad, hooks, *rest):
        numbers = (offset, *shape, *strides)
        if not isinstance(storage, Storage) or len(shape) != len(strides) or not all(type(n) is int and 0 <= n < 2**31 for n in numbers):
            raise Refused("a tensor is described in a way that no checkpoint would")
        return Tensor(storage, offset, tuple(shape), tuple(strides))


KNOWN = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): Rebuild(),
    ("torch", "FloatStorage"): "<f4",
    ("torch", "LongStorage"): "<i8",
}


class TensorUnpickler(pickle.Unpickler):
    """Reads descriptions of tensors and nothing else: every name outside KNOWN is refused before it is looked up."""

    def find_class(self, module, name):
        try:
            return KNOWN[module, name]
        except KeyError:
            raise Refused(f"the weights' file asks for {module}.{name}, which no tensor needs") from None

    def persistent_load(self, pid):
        if not isinstance(pid, tuple) or len(pid) != 6 or pid[0] != "storage" or pid[1] not in ("<f4", "<i8") or pid[5] is not None:
            raise Refused("a storage is described in a way that no checkpoint would")
        _, dtype, key, _, count, _ = pid
        return Storage(str(key), dtype, int(count))


def read_weights(data):
    """{name: numpy array} of a checkpoint's bytes. Raises Refused for anything that isn't a plain dictionary of tensors."""
    file = io.BytesIO(data)
    try:
        if TensorUnpickler(file).load() != MAGIC or TensorUnpickler(file).load() != PROTOCOL:
            raise Refused("no checkpoint in PyTorch's format of before 1.6")
        system, state, keys = (TensorUnpickler(file).load() for _ in range(3))
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001 - a hostile pickle can make the unpickler raise anything
        raise Refused(f"the weights' file can't be read: {type(error).__name__}: {error}") from None
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise Refused("a checkpoint with big-endian numbers")
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()) or not isinstance(keys, list):
        raise Refused("no plain dictionary of tensors")
    declared = {tensor.storage.key: tensor.storage for tensor in state.values()}
    storages = {key: _read_storage(file, declared.get(key)) for key in keys}
    return {name: _view(tensor, storages.get(tensor.storage.key)) for name, tensor in state.items()}


def _read_storage(file, storage):
    count = int.from_bytes(file.read(8), "little")
    if storage is None or count != storage.count:
        raise Refused("a storage that no tensor uses, or of another size than its tensors say")
    dtype = np.dtype(storage.dtype)
    raw = file.read(count * dtype.itemsize)
    if len(raw) != count * dtype.itemsize:
        raise Refused("the weights' file ends too early")
    return np.frombuffer(raw, dtype)


def _view(tensor, storage):
    last = tensor.offset + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if storage is None or last >= len(storage) or math.prod(tensor.shape) > len(storage):
        raise Refused("a tensor reaches beyond its storage")
    strides = [stride * storage.itemsize for stride in tensor.strides]
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides, writeable=False)


def folded(weights, convolution, norm, depthwise=False):
    """(kernel, bias) in TensorFlow's layout of a convolution and the batch normalisation after it (Ioffe and Szegedy 2015, section 3.1)."""
    kernel = weights[f"{convolution}.weight"].transpose((2, 3, 0, 1) if depthwise else (2, 3, 1, 0))
    scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + BN_EPSILON)
    bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
    return kernel * (scale[:, None] if depthwise else scale), bias


def network(weights):
    """A tf.Module whose `scores` is EfficientNet-Lite0 (Tan and Le 2019; the Lite variant: ReLU6, no squeeze-and-excitation)."""
    import tensorflow as tf

    module = tf.Module()
    module.kept = []  # the module must own its variables, or the SavedModel would lack them

    def variable(value, name):
        module.kept.append(tf.Variable(np.ascontiguousarray(value, np.float32), trainable=False, name=name))
        return module.kept[-1]

    def layer(name, convolution, norm, stride=1, depthwise=False, active=True):
        kernel, bias = folded(weights, convolution, norm, depthwise)
        kernel, bias = variable(kernel, f"{name}_kernel"), variable(bias, f"{name}_bias")

        def apply(x):
            convolve = tf.nn.depthwise_conv2d if depthwise else tf.nn.conv2d
            x = tf.nn.bias_add(convolve(x, kernel, [1, stride, stride, 1], "SAME"), bias)
            return tf.nn.relu6(x) if active else x

        return apply

    def block(index, stride):
        ours, theirs = f"block{index}", f"_blocks.{index}"
        layers = [
            layer(f"{ours}_depthwise", f"{theirs}._depthwise_conv", f"{theirs}._bn1", stride, depthwise=True),
            layer(f"{ours}_project", f"{theirs}._project_conv", f"{theirs}._bn2", active=False),
        ]
        if f"{theirs}._expand_conv.weight" in weights:
            layers.insert(0, layer(f"{ours}_expand", f"{theirs}._expand_conv", f"{theirs}._bn0"))

        def apply(x):
            y = x
            for each in layers:
                y = each(y)
            return y + x if stride == 1 and x.shape[-1] == y.shape[-1] else y

        return apply

    layers = [layer("stem", "_conv_stem", "_bn0", stride=2)]
    layers += [block(index, stride) for index, stride in enumerate(STRIDES)]
    layers.append(layer("head", "_conv_head", "_bn1"))
    top, bias = variable(weights["_fc.weight"].T, "top_kernel"), variable(weights["_fc.bias"], "top_bias")

    @tf.function(input_signature=[tf.TensorSpec([None, SIDE, SIDE, 3], tf.uint8, name="image")])
    def scores(image):
        x = (tf.cast(image, tf.float32) - 127.0) / 128.0
        for each in layers:
            x = each(x)
        return {"scores": tf.nn.softmax(tf.matmul(tf.reduce_mean(x, [1, 2]), top) + bias)}

    module.scores = scores
    return module


def main(source, target):
    print("reading the weights", flush=True)
    with open(source, "rb") as file:
        weights = read_weights(file.read())
    print("starting TensorFlow", flush=True)
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # else it says at each start that it is on
    import tensorflow as tf

    print("building the network", flush=True)
    module = network(weights)
    tf.saved_model.save(module, target, signatures={"serving_default": module.scores})


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2])
    except Refused as error:
        sys.exit(f"error: {error}")
