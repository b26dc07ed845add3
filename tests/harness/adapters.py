"""Adapters (LoRA) in bytes, made here: the two files that a fine-tune has."""

import json
import random
import struct
from array import array
from typing import Any

FILE_NAMES = ("adapter_config.json", "adapter_model.safetensors")


def config(**changed: Any) -> bytes:
    """adapter_config.json as PEFT writes it."""
    return json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none", **changed}).encode()


def weights(*, rank: int = 8, width: int = 16, fill: int = 0, **changed: Any) -> bytes:
    """adapter_model.safetensors with one pair of matrices of float32. `changed`: entries of its header."""
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    size = rank * width * 4
    header = {
        "__metadata__": {"format": "pt"},
        f"{name}.lora_A.weight": {"dtype": "F32", "shape": [rank, width], "data_offsets": [0, size]},
        f"{name}.lora_B.weight": {"dtype": "F32", "shape": [width, rank], "data_offsets": [size, 2 * size]},
        **changed,
    }
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes([fill]) * (2 * size)


def noise(*, module: str, layers: int, out: int, inner: int, rank: int, strength: float) -> bytes:
    """adapter_model.safetensors of chance for every layer; of no strength it changes nothing."""
    chance = random.Random(1)
    header: dict[str, Any] = {}
    blob = bytearray()
    for layer in range(layers):
        for side, shape, spread in (("A", (rank, inner), 0.05), ("B", (out, rank), strength)):
            data = array("f", [chance.gauss(0, spread) for _ in range(shape[0] * shape[1])]).tobytes()
            place = [len(blob), len(blob) + len(data)]
            name = f"base_model.model.model.layers.{layer}.{module}.lora_{side}.weight"
            header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": place}
            blob += data
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + blob


def form(file_name: str, data: bytes) -> tuple[bytes, str]:
    """A form as wrangler and the SDKs send it, and its content type."""
    boundary = "----formdata-boundary-7f3a"
    parts = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="blob"\r\nContent-Type: application/octet-stream\r\n\r\n'.encode()
        + data
        + f'\r\n--{boundary}\r\nContent-Disposition: form-data; name="file_name"\r\n\r\n{file_name}\r\n--{boundary}--\r\n'.encode()
    )
    return parts, f"multipart/form-data; boundary={boundary}"
