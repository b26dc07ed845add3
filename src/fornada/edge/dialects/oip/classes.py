"""Triton's classification extension: of an output's last dimension the largest values, as texts `value:index`."""

import math
from collections.abc import Mapping, Sequence

from fornada.core.errors import BadRequest
from fornada.core.tensors import Tensor
from fornada.edge.tensor_json import check_size, values
from fornada_sdk.wire.tensors import packed

_WHOLE = ("INT", "UINT")


def classified(tensors: Sequence[Tensor], classes: Mapping[str, int]) -> list[Tensor]:
    """The tensors, those in `classes` as their largest values. Raises BadRequest for texts and single values, which have no classes."""
    return [_classified(tensor, classes[tensor.name]) if tensor.name in classes else tensor for tensor in tensors]


def _classified(tensor: Tensor, most: int) -> Tensor:
    if tensor.dtype == "BYTES" or not tensor.shape:
        raise BadRequest(f"output '{tensor.name[:80]}': {tensor.dtype} of {len(tensor.shape)} dimensions has no classes")
    check_size([tensor])
    flat, _ = values(tensor)
    width = tensor.shape[-1]
    kept = min(most, width)
    found: list[str] = []
    for at in range(0, len(flat), width or 1):
        row = flat[at : at + width]
        # What is no number is nobody's best guess.
        order = sorted(range(width), key=lambda index: -math.inf if row[index] != row[index] else row[index], reverse=True)
        found += [
            f"{int(row[index])}:{index}" if tensor.dtype.startswith((*_WHOLE, "BOOL")) else f"{row[index]:f}:{index}"
            for index in order[:kept]
        ]
    return Tensor(tensor.name, "BYTES", [*tensor.shape[:-1], kept], packed(found, "BYTES"))
