"""TensorFlow Lite models (.tflite), run by LiteRT out of the model's own environment.

Quantised tensors are shown and taken as the numbers they stand for: FP32, `scale * (q - zero point)`. Code that has the
file's own integers at hand (a picture's bytes) gives an array of that type instead, which goes in as it is.
"""

from __future__ import annotations

import threading
from typing import Any

from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded
from fornada_sdk.runner.engines.tensors import Arrays, TensorInfo
from fornada_sdk.runner.engines.weights import load_weights

LIBRARIES = ("numpy", "ai_edge_litert.interpreter")


def load(assignment: Assignment, context: Context) -> Loaded:
    """Loads the weights, and the author's code around them. Raises LoadError, or what the library or model code raises."""
    return load_weights(assignment, context, session=LiteRtSession, is_model=is_model, what="a .tflite file")


def is_model(path: str) -> bool:
    """Whether the file is what this engine loads."""
    return path.endswith(".tflite")


class LiteRtSession:
    """One loaded model with a thread pool of its own. `inputs` and `outputs` describe its tensors."""

    def __init__(self, path: str, *, threads: int, device: str) -> None:
        """Loads `path`; `threads` is the size of the pool. It runs on the CPU whatever `device` says. Raises what LiteRT raises."""
        from ai_edge_litert.interpreter import Interpreter

        # An interpreter has one set of tensors: two callers at the same time would get one another's answers.
        self._turn = threading.Lock()
        self._interpreter = interpreter = Interpreter(model_path=path, num_threads=threads)
        interpreter.allocate_tensors()
        given, got = _names(interpreter)
        self._ins = {name: _Slot(name, detail) for name, detail in given.items()}
        self._outs = {name: _Slot(name, detail) for name, detail in got.items()}
        self.inputs = [slot.info for slot in self._ins.values()]
        # An output without axes may be a number, or one whose shape is known only after a run: any rank is what can be said.
        self.outputs = [slot.info if slot.info.shape else slot.info._replace(shape=None) for slot in self._outs.values()]
        self._shapes = {name: tuple(int(size) for size in detail["shape"]) for name, detail in given.items()}

    def run(self, inputs: Arrays) -> Arrays:
        """One call. An input that isn't there is a KeyError, another shape than the model's a ValueError.

        A file made for one row takes several: they run one after the other, as do several callers.
        """
        given = {name: slot.encoded(inputs[name]) for name, slot in self._ins.items()}
        rows = self._rows(given)
        if rows < 2:
            return self._run(given)
        import numpy as np

        single = [self._run({name: array[row : row + 1] for name, array in given.items()}) for row in range(rows)]
        return {name: np.concatenate([each[name] for each in single]) for name in self._outs}

    def _rows(self, given: Arrays) -> int:
        """Rows that each input has where the file says one; 1 where it isn't so."""
        counts = {len(given[name]) if _of_one(slot.info.shape) and given[name].ndim else 1 for name, slot in self._ins.items()}
        return counts.pop() if len(counts) == 1 else 1

    def _run(self, given: Arrays) -> Arrays:
        with self._turn:
            self._resize(given)
            for name, slot in self._ins.items():
                self._interpreter.set_tensor(slot.index, given[name])
            self._interpreter.invoke()
            return {name: slot.decoded(self._interpreter.get_tensor(slot.index)) for name, slot in self._outs.items()}

    def _resize(self, given: Arrays) -> None:
        shapes = {name: array.shape for name, array in given.items()}
        if shapes == self._shapes:
            return
        for name, slot in self._ins.items():
            wanted = slot.info.shape or ()
            if len(wanted) != len(shapes[name]) or any(want not in (-1, size) for want, size in zip(wanted, shapes[name])):
                raise ValueError(f"input {name} must be of shape {list(wanted)}; it came as {list(shapes[name])}")
            self._interpreter.resize_tensor_input(slot.index, shapes[name], strict=True)
        self._interpreter.allocate_tensors()
        self._shapes = shapes


class _Slot:
    """One tensor of the file: where it is, and how its numbers are kept."""

    def __init__(self, name: str, detail: Any) -> None:
        import numpy as np

        self.index = detail["index"]
        self._dtype = np.dtype("object") if detail["dtype"] in (np.bytes_, np.str_, np.object_) else np.dtype(detail["dtype"])
        parameters = detail["quantization_parameters"]
        scales, zeros = parameters["scales"], parameters["zero_points"]
        # Inputs and outputs are quantised as a whole in practice; one by channel is left as the integers it is.
        self._quantised = len(scales) == 1 and scales[0] > 0 and self._dtype.kind in "iu"
        self._scale, self._zero = (np.float32(scales[0]), int(zeros[0])) if self._quantised else (np.float32(1), 0)
        signature = detail.get("shape_signature", detail["shape"])
        shape = tuple(int(size) for size in (signature if len(signature) else detail["shape"]))
        self.info = TensorInfo(name, "float32" if self._quantised else self._dtype.name, shape)

    def encoded(self, value: Any) -> Any:
        """The array as the file keeps it."""
        import numpy as np

        array = np.asarray(value)
        if array.dtype == self._dtype:
            return array
        if not self._quantised:
            return array.astype(self._dtype)
        limits = np.iinfo(self._dtype)
        whole = np.rint(np.asarray(array, np.float32) / self._scale) + self._zero
        return np.clip(whole, limits.min, limits.max).astype(self._dtype)

    def decoded(self, array: Any) -> Any:
        """The numbers that the file's array stands for."""
        import numpy as np

        return (array.astype(np.float32) - self._zero) * self._scale if self._quantised else array


def _of_one(shape: Any) -> bool:
    """Whether axis 0 is fixed to one row."""
    return bool(shape) and shape[0] == 1


def _names(interpreter: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs by name: by those of the file's one signature where it has one, else by the tensors' own."""
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    signatures = list(interpreter.get_signature_list())
    if len(signatures) == 1:
        runner = interpreter.get_signature_runner(signatures[0])
        named_in, named_out = runner.get_input_details(), runner.get_output_details()
        if len(named_in) == len(inputs) and len(named_out) == len(outputs):
            return dict(named_in), dict(named_out)
    return {detail["name"]: detail for detail in inputs}, {detail["name"]: detail for detail in outputs}
