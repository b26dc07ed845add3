"""The converter of EfficientNet-Lite0 reads tensors and nothing else. Needs numpy alone: TensorFlow comes after the reading."""

import builtins
import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fornada.models
from tests.models.checkpoint import MAGIC, PROTOCOL, Stored, checkpoint

SCRIPT = Path(fornada.models.__path__[0]) / "efficientnet-lite0" / "convert.py"


@pytest.fixture(scope="module")
def convert() -> ModuleType:
    spec = importlib.util.spec_from_file_location("efficientnet_convert", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tensors_come_out_as_they_went_in(convert: ModuleType) -> None:
    whole = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    state = {"a": Stored(whole, "1"), "steps": Stored(np.array(7, np.int64), "2"), "t": Stored(turned, "3", strides=(1, 3))}
    state["t"].array = np.arange(6, dtype=np.float32).reshape(2, 3)
    state["t"].changes["shape"] = (3, 2)
    weights = convert.read_weights(checkpoint(state))
    assert list(weights) == ["a", "steps", "t"]
    np.testing.assert_array_equal(weights["a"], whole)
    np.testing.assert_array_equal(weights["t"], turned)
    assert weights["steps"] == 7


class Runs:
    """Unpickled by an ordinary unpickler, it calls `function`."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


HOSTILE = {
    "os.system": Runs(os.system, "touch {mark}"),
    "subprocess.Popen": Runs(subprocess.Popen, "touch {mark}", -1),
    "eval": Runs(builtins.eval, "__import__('os').system('touch {mark}')"),
    "getattr": Runs(builtins.getattr, dict, "fromkeys"),
    "a class": Runs(type, "X", (), {}),
    "a bytearray": Runs(bytearray, 10),
    "numpy": Runs(np.frombuffer, b"\0" * 8),
    "a set": {1, 2},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_any_other_name_in_the_pickle_is_refused_before_it_is_looked_up(convert: ModuleType, name: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    attack = HOSTILE[name]
    if isinstance(attack, Runs):
        function, args = attack.call
        attack = Runs(function, *(arg.format(mark=mark) if isinstance(arg, str) else arg for arg in args))
    imported = set(sys.modules)
    with pytest.raises(convert.Refused, match=r"asks for .*, which no tensor needs"):
        convert.read_weights(checkpoint({"weight": attack}))
    assert not mark.exists()
    assert set(sys.modules) == imported


def by_hand(state: bytes) -> bytes:
    """A checkpoint whose state is given as opcodes of pickle."""
    head = b"".join(pickle.dumps(value, protocol=2) for value in (MAGIC, PROTOCOL, {"little_endian": True}))
    return head + state + pickle.dumps([], protocol=2)


OPCODES = {
    "a name with dots, by which protocol 4 reaches inside": b"\x80\x04\x8c\x0bcollections\x94\x8c\x14OrderedDict.fromkeys\x94\x93.",
    "an instance of an old class": b"(ios\nsystem\n.",
    "an extension's number": b"\x80\x02\x82\x01.",
    "a call of something that is no function": b"\x80\x02ctorch\nFloatStorage\n)R.",
    "a state set on the one function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x01\x00\x00\x00aK\x01sb.",
    "an attribute set on the one function": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nN}X\x08\x00\x00\x00__call__K\x01s\x86b.",
    "an end in the middle": b"\x80\x02}X\xff\xff",
    "nothing": b"",
    "a call with too few arguments": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n)R.",
    "a foreign kind of persistent thing": b"\x80\x02K\x01Q.",
}


@pytest.mark.parametrize("name", OPCODES)
def test_what_only_a_hand_can_write_is_refused(convert: ModuleType, name: str) -> None:
    with pytest.raises(convert.Refused):
        convert.read_weights(by_hand(OPCODES[name]))


SMALL = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"w": Stored(SMALL, "1", shape=(7,), strides=(1,))}, "beyond its storage"),
        ({"w": Stored(SMALL, "1", offset=1)}, "beyond its storage"),
        ({"w": Stored(SMALL, "1", shape=(2, 3), strides=(100, 1))}, "beyond its storage"),
        ({"w": Stored(SMALL, "1", shape=(1 << 20, 1 << 20), strides=(0, 0))}, "beyond its storage"),
        ({"w": Stored(SMALL, "1", shape=(6,), strides=(-1,))}, "no checkpoint would"),
        ({"w": Stored(SMALL, "1", offset=-1)}, "no checkpoint would"),
        ({"w": Stored(SMALL, "1", shape=(2, 3), strides=(1,))}, "no checkpoint would"),
        ({"w": Stored(SMALL, "1", shape=("6",), strides=(1,))}, "no checkpoint would"),
        ({"w": Stored(SMALL, "1", count=5)}, "another size"),
        ({"w": "a text"}, "no plain dictionary"),
        ({"w": [1, 2]}, "no plain dictionary"),
    ],
)
def test_a_tensor_that_lies_about_its_storage_is_refused(convert: ModuleType, state: dict[str, Any], why: str) -> None:
    with pytest.raises(convert.Refused, match=why):
        convert.read_weights(checkpoint(state))


def test_a_file_that_ends_early_or_isnt_one_is_refused(convert: ModuleType) -> None:
    good = checkpoint({"w": Stored(SMALL, "1")})
    for cut in (0, 5, 30, len(good) // 2, len(good) - 1):
        with pytest.raises(convert.Refused):
            convert.read_weights(good[:cut])
    with pytest.raises(convert.Refused, match="no checkpoint"):
        convert.read_weights(pickle.dumps(1))
    with pytest.raises(convert.Refused, match="big-endian"):
        convert.read_weights(checkpoint({"w": Stored(SMALL, "1")}, system={"little_endian": False}))
    with pytest.raises(convert.Refused, match="no tensor uses"):
        convert.read_weights(checkpoint({"w": Stored(SMALL, "1")}, keys=["2"]))


def test_every_single_changed_byte_is_read_or_refused(convert: ModuleType) -> None:
    good = checkpoint({"w": Stored(SMALL, "1"), "n": Stored(np.array(3, np.int64), "2")})
    for place in range(len(good)):
        for flip in (0x01, 0x80, 0xFF):
            broken = bytearray(good)
            broken[place] ^= flip
            try:
                convert.read_weights(bytes(broken))
            except convert.Refused:
                pass


def test_a_batch_normalisation_disappears_into_the_convolution_before_it(convert: ModuleType) -> None:
    random = np.random.default_rng(1)
    weights = {"c.weight": random.normal(size=(5, 4, 1, 1)), "n.running_var": random.uniform(0.5, 2, 5)}
    weights |= {f"n.{name}": random.normal(size=5) for name in ("weight", "bias", "running_mean")}
    x = random.normal(size=4)
    plain = weights["c.weight"][:, :, 0, 0] @ x
    wanted = (plain - weights["n.running_mean"]) / np.sqrt(weights["n.running_var"] + 1e-3) * weights["n.weight"] + weights["n.bias"]
    kernel, bias = convert.folded(weights, "c", "n")
    np.testing.assert_allclose(x @ kernel[0, 0] + bias, wanted)
