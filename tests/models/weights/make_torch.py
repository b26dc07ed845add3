"""Writes small PyTorch models below the given folder. It runs in an environment with PyTorch, and nothing of ours."""

import io
import json
import struct
import sys
import zipfile
from pathlib import Path

import torch

TARGET = Path(sys.argv[1])
WIDE = 3000
"""Rows and columns: 36 MB of weights."""


class Affine(torch.nn.Module):
    """y = 2 x, with more outputs, a constant argument and one that comes by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 2, bias=False)
        self.layer.weight.data = 2 * torch.eye(2)

    def forward(self, x, n, *, shift, scale=1.0):
        return {"y": self.layer(x) * scale + shift[:, None], "rows": n + 1, "pair": [x.sum(1), n]}


class Sum(torch.nn.Module):
    def forward(self, pair):
        return pair["a"] + pair["b"][0]


class Double(torch.nn.Module):
    def __init__(self, dtype=torch.float32) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.full((2,), 2.0, dtype=dtype))

    def forward(self, x):
        return x * self.factor


def export(name: str, module: torch.nn.Module, args: tuple, kwargs: dict | None = None, shapes: object = None) -> Path:
    path = TARGET / name / "model.pt2"
    path.parent.mkdir(parents=True)
    torch.export.save(torch.export.export(module.eval(), args, kwargs, dynamic_shapes=shapes), path)
    return path


def safetensors(tensors: dict[str, torch.Tensor]) -> bytes:
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
    header, data = {"__metadata__": {"by": "hand"}}, b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class Evil:
    """A pickle that does something when it is read."""

    def __reduce__(self):
        return open, ("/tmp/fornada-test-unpickled", "w")


def with_pickle(path: Path) -> None:
    """The same archive with one of its weights as a pickle, which its own configuration asks to be unpickled freely."""
    pickled = io.BytesIO()
    torch.save({"w": Evil()}, pickled)
    old = zipfile.ZipFile(path)
    content = {name: old.read(name) for name in old.namelist()}
    (config,) = [name for name in content if name.endswith("weights_config.json")]
    text = json.loads(content[config])
    for entry in text["config"].values():
        entry["use_pickle"] = True
        content[config.rpartition("/")[0] + "/" + entry["path_name"]] = pickled.getvalue()
    content[config] = json.dumps(text).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as new:
        for name, data in content.items():
            new.writestr(name, data)


def main() -> None:
    rows = torch.export.Dim("rows")
    args, more = (torch.ones(3, 2), torch.ones(3, dtype=torch.int64)), {"shift": torch.ones(3), "scale": 1.0}
    export("affine", Affine(), args, more, {"x": {0: rows}, "n": {0: rows}, "shift": {0: rows}, "scale": None})
    export("sum", Sum(), ({"a": torch.ones(2), "b": [torch.ones(2)]},))
    export("fixed", Double(), (torch.ones(1, 2),))
    export("half", Double(torch.bfloat16), (torch.ones(1, 2, dtype=torch.bfloat16),))
    with_pickle(export("evil", Double(), (torch.ones(1, 2),)))
    weights = {"factor": torch.tensor([2.0, 3.0]), "small": torch.tensor([0.5], dtype=torch.bfloat16), "none": torch.empty(0, 4)}
    (TARGET / "weights").mkdir()
    (TARGET / "weights" / "w.safetensors").write_bytes(safetensors(weights))
    (TARGET / "pickled").mkdir()
    torch.save(weights, TARGET / "pickled" / "w.pt")
    torch.manual_seed(0)
    wide = torch.nn.Linear(WIDE, WIDE)
    export("wide", wide, (torch.ones(1, WIDE),))
    (TARGET / "wide-weights").mkdir()
    torch.save(wide.state_dict(), TARGET / "wide-weights" / "w.pt")
    (TARGET / "wide-tensors").mkdir()
    (TARGET / "wide-tensors" / "w.safetensors").write_bytes(safetensors({name: each.detach() for name, each in wide.state_dict().items()}))
    (TARGET / "evil-weights").mkdir()
    torch.save({"w": Evil()}, TARGET / "evil-weights" / "w.pt")


main()
