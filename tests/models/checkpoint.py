"""Checkpoints as PyTorch wrote them before 1.6, made without PyTorch: what the converter of EfficientNet-Lite0 reads."""

import collections
import io
import pickle
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


class Stored:
    """A tensor on its way into a pickle."""

    def __init__(self, array: np.ndarray, key: str, **changes: Any) -> None:
        self.array = array
        self.key = key
        self.changes = changes


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _StorageOf):
            return None
        torch = sys.modules["torch"]
        kind = torch.FloatStorage if obj.tensor.array.dtype == np.float32 else torch.LongStorage
        return ("storage", kind, obj.tensor.key, "cpu", obj.tensor.changes.get("count", obj.tensor.array.size), None)

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Stored):
            return NotImplemented
        array, changes = obj.array, obj.changes
        strides = changes.get("strides", tuple(stride // array.itemsize for stride in array.strides))
        described: tuple[Any, ...] = (
            changes.get("offset", 0),
            changes.get("shape", array.shape),
            strides,
            False,
            collections.OrderedDict(),
        )
        return sys.modules["torch._utils"]._rebuild_tensor_v2, (_StorageOf(obj), *described)


class _StorageOf:
    def __init__(self, tensor: Stored) -> None:
        self.tensor = tensor


def checkpoint(state: Mapping[str, Any], *, system: Any = None, keys: Any = None) -> bytes:
    """The file's bytes. Values of `state` that are no Stored are pickled as they are, as a hostile file would hold them."""
    tensors = [value for value in state.values() if isinstance(value, Stored)]
    file = io.BytesIO()
    with _torch():
        for value in (MAGIC, PROTOCOL, {"little_endian": True} if system is None else system, collections.OrderedDict(state)):
            _Pickler(file, protocol=2).dump(value)
        _Pickler(file, protocol=2).dump([tensor.key for tensor in tensors] if keys is None else keys)
    for tensor in tensors:
        file.write(tensor.array.size.to_bytes(8, "little") + np.ascontiguousarray(tensor.array).tobytes())
    return file.getvalue()


@contextmanager
def _torch() -> Iterator[None]:
    """Modules of PyTorch's names, so that pickle writes them down."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in ("FloatStorage", "LongStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))

    def _rebuild_tensor_v2() -> None:
        raise AssertionError("only its name is written")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined]
    torch._utils = utils  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules.update({"torch": torch, "torch._utils": utils})
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
