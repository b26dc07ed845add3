"""LoRA adapters as PEFT writes them (adapter_config.json, adapter_model.safetensors), made into the GGUF file that llama.cpp takes.

    …model.layers.0.self_attn.q_proj.lora_A.weight  [rank, in]    ->    blk.0.attn_q.weight.lora_a
    …model.layers.0.self_attn.q_proj.lora_B.weight  [out, rank]   ->    blk.0.attn_q.weight.lora_b

The bytes stay as they are, but for two things. BF16 becomes F32. And where the base model is of architecture `llama`, the rows of what
is added to queries and keys change places, as those of the base model did when it became GGUF: the two numbers that a rotation turns
together lie half a head apart in PyTorch's files, and beside each other in GGUF's.

Nothing in the files is code, and nothing of them is believed: sizes, names and types are checked before a byte is copied.
"""

from __future__ import annotations

import json
import math
import mmap
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from fornada_sdk.runner.engines.gguf_header import Header
from fornada_sdk.runner.engines.safetensors_file import read_entries

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
CONFIG_LONGEST = 1 << 20
MOST_RANK = 256
_PERMUTED = {"llama": True, "qwen2": False, "qwen3": False, "gemma": False, "gemma2": False, "gemma3": False}
"""Architectures whose names are known, and whether their queries and keys change places."""
_LAYER = re.compile(r"(?:base_model\.model\.)?(?:model\.|language_model\.)*layers\.(\d+)\.(?:self_attn|mlp)\.(\w+)\.lora_([AB])\.weight\Z")
_HEAD = re.compile(r"(?:base_model\.model\.)?lm_head\.lora_([AB])\.weight\Z")
_NAMES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}
_F32, _F16 = 0, 1
_TYPES = {"F32": (_F32, 4), "F16": (_F16, 2), "BF16": (_F32, 2)}
"""In the file -> GGUF's number, and bytes of one number in the file."""
_ALIGNMENT = 32
_STRING, _FLOAT = 8, 6


class AdapterError(ValueError):
    """The adapter can't be used with this model; the message says why."""


class _Tensor(NamedTuple):
    name: str
    source: str
    shape: tuple[int, int]
    dtype: str
    begin: int
    end: int
    heads: int
    """Rows change places within each of so many heads; 0: they stay."""

    @property
    def written(self) -> int:
        """Bytes in the new file."""
        return self.shape[0] * self.shape[1] * (2 if self.dtype == "F16" else 4)


class Base(NamedTuple):
    """The model that an adapter is for."""

    header: Header
    shapes: Mapping[str, tuple[int, ...]]
    """As its file says them (gguf_header.read_shapes). What doesn't fit is refused here: llama.cpp hangs over it."""


def convert(folder: str, target: str, base: Base) -> None:
    """Writes the adapter in `folder` to the file `target`. Raises AdapterError, OSError."""
    header = base.header
    alpha, rslora = _config(folder)
    with open(f"{folder}/{WEIGHTS}", "rb") as file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise AdapterError(f"{WEIGHTS} is empty") from None
        with data:
            try:
                entries, begin = read_entries(data)
            except ValueError as error:
                raise AdapterError(f"{WEIGHTS}: {error}") from None
            tensors = _tensors(entries, begin, len(data), header)
            _fit(tensors, base.shapes)
            if rslora:
                # It divides by the root of the rank, llama.cpp by the rank.
                alpha *= math.sqrt(_rank(tensors))
            with open(target, "wb") as made:
                _write(made, tensors, data, alpha, header.architecture)


def _config(folder: str) -> tuple[float, bool]:
    """(alpha, whether it is rank-stabilised) of an adapter that is nothing else than LoRA."""
    try:
        with open(f"{folder}/{CONFIG}", "rb") as file:
            config = json.loads(file.read(CONFIG_LONGEST))
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{CONFIG} is no JSON: {error}") from None
    if not isinstance(config, dict) or str(config.get("peft_type", "LORA")).upper() != "LORA":
        raise AdapterError(f"{CONFIG} is none of a LoRA adapter")
    for name in ("use_dora", "alpha_pattern", "modules_to_save", "trainable_token_indices", "lora_bias"):
        if config.get(name):
            raise AdapterError(f"{CONFIG}: {name} can't be applied to a GGUF model")
    alpha = config.get("lora_alpha")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise AdapterError(f"{CONFIG} has no lora_alpha")
    return float(alpha), config.get("use_rslora") is True


def _tensors(entries: dict[str, Any], begin: int, size: int, header: Header) -> list[_Tensor]:
    if header.architecture not in _PERMUTED:
        raise AdapterError(f"adapters of models of architecture {header.architecture} can't be converted; {', '.join(_PERMUTED)} can")
    found = []
    for source, entry in entries.items():
        name, side = _named(source)
        shape, dtype, (first, last) = entry["shape"], entry["dtype"], entry["data_offsets"]
        if dtype not in _TYPES:
            raise AdapterError(f"{source} is of type {dtype}; {', '.join(_TYPES)} can be used")
        if len(shape) != 2 or min(shape) < 1 or (rank := shape[0 if side == "a" else 1]) > MOST_RANK:
            raise AdapterError(f"{source} has the shape {shape}, and must have two sizes and a rank of at most {MOST_RANK}")
        if not 0 <= first <= last <= size - begin or last - first != shape[0] * shape[1] * _TYPES[dtype][1]:
            raise AdapterError(f"{source} doesn't lie where the header says")
        heads = _heads(name, header) if side == "b" and _PERMUTED[header.architecture] else 0
        if heads and shape[0] % (2 * heads):
            raise AdapterError(f"{source} has {shape[0]} rows, which {heads} heads don't share evenly")
        found.append(
            _Tensor(
                f"{name}.weight.lora_{side}",
                source,
                (shape[0], rank if side == "b" else shape[1]),
                dtype,
                begin + first,
                begin + last,
                heads,
            )
        )
    names = {tensor.name for tensor in found}
    alone = [tensor.source for tensor in found if _other(tensor.name) not in names]
    if alone or not found:
        raise AdapterError(f"{alone[0]} has no other half" if alone else f"{WEIGHTS} has no tensors")
    if len(names) < len(found):
        raise AdapterError(f"{WEIGHTS} has a tensor twice")
    return found


def _fit(tensors: list[_Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Each pair, multiplied, has the sizes of what it is added to."""
    by_name = {tensor.name: tensor for tensor in tensors}
    for tensor in tensors:
        if not tensor.name.endswith("a"):
            continue
        name, second = tensor.name.removesuffix(".lora_a"), by_name[_other(tensor.name)]
        (rank, inner), (out, also) = tensor.shape, second.shape
        if name not in shapes:
            raise AdapterError(f"{tensor.source} changes {name}, which the model hasn't got")
        if shapes[name] != (inner, out) or rank != also:
            raise AdapterError(f"{tensor.source} and its other half make {out} x {inner}, and the model's {name} is {_told(shapes[name])}")


def _told(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, reversed(shape)))


def _other(name: str) -> str:
    return name[:-1] + ("b" if name.endswith("a") else "a")


def _named(source: str) -> tuple[str, str]:
    """(GGUF's name, a or b) of a tensor."""
    if layer := _LAYER.fullmatch(source):
        number, module, side = layer.groups()
        if module in _NAMES and len(number) <= 4:
            return f"blk.{int(number)}.{_NAMES[module]}", side.lower()
    if head := _HEAD.fullmatch(source):
        return "output", head[1].lower()
    raise AdapterError(f"{source[:200]} changes what can't be changed in a GGUF model: {', '.join(_NAMES)} and lm_head can")


def _heads(name: str, header: Header) -> int:
    heads = header.heads if name.endswith("attn_q") else header.kv_heads if name.endswith("attn_k") else None
    if heads == 0:
        raise AdapterError("the model's file doesn't say how many heads it has")
    return heads or 0


def _rank(tensors: list[_Tensor]) -> int:
    ranks = {tensor.shape[0] for tensor in tensors if tensor.name.endswith("a")}
    if len(ranks) > 1:
        raise AdapterError("a rank-stabilised adapter must have one rank")
    return ranks.pop()


def _write(made: BinaryIO, tensors: list[_Tensor], data: mmap.mmap, alpha: float, architecture: str) -> None:
    said = [("general.type", "adapter"), ("general.architecture", architecture), ("adapter.type", "lora")]
    made.write(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(said) + 1))
    for key, value in said:
        made.write(_string(key) + struct.pack("<I", _STRING) + _string(value))
    made.write(_string("adapter.lora.alpha") + struct.pack("<If", _FLOAT, alpha))
    offset = 0
    for tensor in tensors:
        rows, columns = tensor.shape
        # Its sizes begin with the one that changes fastest.
        made.write(_string(tensor.name) + struct.pack("<IQQIQ", 2, columns, rows, _TYPES[tensor.dtype][0], offset))
        offset += tensor.written + -tensor.written % _ALIGNMENT
    made.write(bytes(-made.tell() % _ALIGNMENT))
    for tensor in tensors:
        for piece in _pieces(tensor, data):
            made.write(piece)
        made.write(bytes(-tensor.written % _ALIGNMENT))


def _pieces(tensor: _Tensor, data: mmap.mmap) -> Iterator[bytes]:
    """The tensor's bytes in GGUF's order."""
    whole = data[tensor.begin : tensor.end]
    if tensor.heads:
        whole = rows_for_gguf(whole, tensor.heads, tensor.shape[0])
    if tensor.dtype != "BF16":
        yield whole
        return
    wide = bytearray(2 * len(whole))
    wide[2::4], wide[3::4] = whole[0::2], whole[1::2]
    yield bytes(wide)


def rows_for_gguf(data: bytes, heads: int, rows: int) -> bytes:
    """Rows `i` and `i + half a head` of each head, put beside each other."""
    size, in_head = len(data) // rows, rows // heads
    half = in_head // 2
    order = (head + place + side for head in range(0, rows, in_head) for place in range(half) for side in (0, half))
    return b"".join([data[row * size : (row + 1) * size] for row in order])


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()
