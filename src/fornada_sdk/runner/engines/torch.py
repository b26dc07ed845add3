"""PyTorch: exported programs (.pt2), and weights (.safetensors, .pt, .pth) around which the author's code builds the network.

PyTorch comes from the model's own environment. An exported program is a graph: it needs no code, and its file tells its tensors. Weights
alone don't say how they are used: `[python] entry` must hold a Model, whose `engine` is a Checkpoint:

    class Model(fornada_sdk.Model):
        def load(self, context):
            self.network = self.engine.load_into(Network())
        def run(self, inputs, context):
            with torch.inference_mode(): ...

**No pickles.** Every file is read with `weights_only`, also what PyTorch's own reader of .pt2 would unpickle freely: an archive may hold
pickled constants, and those could run any code.
"""

from __future__ import annotations

import os
from typing import Any

from fornada_sdk.api import Model
from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded, LoadError, declared
from fornada_sdk.runner.engines.python import author
from fornada_sdk.runner.engines.tensors import Arrays, TensorInfo
from fornada_sdk.runner.engines.torch_checkpoint import Checkpoint
from fornada_sdk.runner.engines.weights import device_of, find, load_weights

PROGRAM = ".pt2"
WEIGHTS = (".safetensors", ".pt", ".pth")


def load(assignment: Assignment, context: Context) -> Loaded:
    """Loads the program or prepares the weights. Raises LoadError, or what the library or model code raises."""
    path = find(assignment, is_model, "a .pt2, .safetensors, .pt or .pth file")
    _configure(assignment.threads)
    if path.endswith(PROGRAM):
        return load_weights(assignment, context, session=TorchSession, is_model=_is_program, what="a .pt2 file")
    target = author(assignment) if assignment.entry else None
    if not isinstance(target, Model):
        raise LoadError(
            f"{os.path.basename(path)} holds weights alone: [python] entry must hold a class derived from fornada_sdk.Model around them"
        )
    if type(target).run is Model.run and type(target).run_batch is Model.run_batch:
        raise LoadError(f"{type(target).__name__} must have run or run_batch: weights alone don't say how they are used")
    target.engine = Checkpoint(path, assignment, device=device_of(assignment))
    return Loaded(target, declared(assignment.tensors, "inputs"), declared(assignment.tensors, "outputs"))


def is_model(path: str) -> bool:
    """Whether the file is what this engine loads."""
    return path.endswith((PROGRAM, *WEIGHTS))


def _is_program(path: str) -> bool:
    return path.endswith(PROGRAM)


class TorchSession:
    """One exported program. `inputs` and `outputs` describe its tensors.

    A program is exported with positions and names of its own. Inputs are called as its graph calls them (the arguments of
    `forward`). Outputs have the keys of the dictionary that it returns, else output_0, output_1 ...
    """

    def __init__(self, path: str, *, threads: int, device: str) -> None:
        """Loads `path`. `threads` bounds the work inside one operation; `device` is cpu or cuda. Raises what PyTorch raises."""
        import torch

        self._torch = torch
        self._device = device
        program = torch.export.load(path)
        if any(tensor.device.type != device for tensor in program.state_dict.values()) or device != "cpu":
            from torch.export.passes import move_to_device_pass

            program = move_to_device_pass(program, device)
        found = {node.name: node.meta.get("val") for node in program.graph.nodes}
        signature = program.graph_signature
        self._arguments = [spec.arg for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self._given = {each.name: found[each.name].dtype for each in self._arguments if _is_tensor(torch, found.get(each.name))}
        results = [spec.arg for spec in signature.output_specs if spec.kind.name == "USER_OUTPUT"]
        names = _names(self._out_spec, len(results))
        tensors = [(name, found.get(getattr(each, "name", ""))) for name, each in zip(names, results)]
        self._got = [name if _is_tensor(torch, value) else "" for name, value in tensors]
        self.inputs = [_info(name, found[name]) for name in self._given]
        self.outputs = [_info(name, value) for name, value in tensors if _is_tensor(torch, value)]
        self._rows = [info.shape[0] if info.shape else -1 for info in self.inputs]
        self._call = program.module()

    def run(self, inputs: Arrays) -> Arrays:
        """One call. An input that isn't there is a KeyError, a shape that the program wasn't exported for a ValueError.

        A program that was exported for a fixed number of rows takes multiples of it: they run one after the other.
        """
        import numpy as np

        given = {name: self._tensor(inputs[name], dtype) for name, dtype in self._given.items()}
        pieces = self._pieces(given)
        if pieces < 2:
            return self._run(given)
        size = {name: len(tensor) // pieces for name, tensor in given.items()}
        results = [
            self._run({name: each[place * size[name] : (place + 1) * size[name]] for name, each in given.items()})
            for place in range(pieces)
        ]
        return {name: np.concatenate([each[name] for each in results]) for name in results[0]}

    def _pieces(self, given: dict[str, Any]) -> int:
        """How many calls the rows are, where the program has a fixed number of them; 1 where it isn't so."""
        counts = {len(tensor) / rows if rows > 0 and tensor.ndim else 0 for tensor, rows in zip(given.values(), self._rows)}
        count = counts.pop() if len(counts) == 1 else 1
        return int(count) if count == int(count) else 1

    def _run(self, given: dict[str, Any]) -> Arrays:
        flat = [given[each.name] if each.name in given else getattr(each, "value", None) for each in self._arguments]
        args, kwargs = self._torch.utils._pytree.tree_unflatten(flat, self._in_spec)
        try:
            with self._torch.inference_mode():
                result = self._call(*args, **kwargs)
        except AssertionError as error:  # the program's own guards
            raise ValueError(f"the program wasn't exported for this input: {error}") from None
        leaves = self._torch.utils._pytree.tree_leaves(result)
        return {name: _array(leaf) for name, leaf in zip(self._got, leaves) if name}

    def _tensor(self, value: Any, dtype: Any) -> Any:
        import numpy as np

        return self._torch.tensor(np.asarray(value)).to(device=self._device, dtype=dtype)


def _configure(threads: int) -> None:
    # PyTorch's reader of .pt2 asks for pickles to be let through; this beats what it asks for.
    os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"
    os.environ.pop("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", None)
    import torch

    torch.set_num_threads(threads)
    try:
        torch.set_num_interop_threads(1)
    except RuntimeError:
        pass  # the author's module used PyTorch while it was imported: it has started with the settings it had then


def _names(spec: Any, count: int) -> list[str]:
    """A name for each output: the path of keys and places to it."""
    from torch.utils._pytree import tree_flatten_with_path, tree_unflatten

    paths = [path for path, _ in tree_flatten_with_path(tree_unflatten(list(range(count)), spec))[0]]
    return ["_".join(_part(key) for key in path) if _keyed(path) else "_".join(["output", *map(_part, path or (0,))]) for path in paths]


def _keyed(path: Any) -> bool:
    return bool(path) and isinstance(getattr(path[0], "key", None), str)


def _part(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "idx", key)))


def _is_tensor(torch: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _info(name: str, tensor: Any) -> TensorInfo:
    dtype = str(tensor.dtype).rpartition(".")[2]
    # numpy has no such type: callers see the one that holds all its values.
    shown = "float32" if dtype == "bfloat16" else dtype
    return TensorInfo(name, shown, tuple(size if isinstance(size, int) else -1 for size in tensor.shape))


def _array(tensor: Any) -> Any:
    plain = tensor.detach().to("cpu")
    return (plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy()
