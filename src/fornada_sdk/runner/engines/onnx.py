"""ONNX models, run by ONNX Runtime out of the model's own environment."""

from __future__ import annotations

import os
from typing import Any

from fornada_sdk.api import BadRequest
from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded
from fornada_sdk.runner.engines.tensors import Arrays, TensorInfo
from fornada_sdk.runner.engines.weights import load_weights

NUMPY_NAMES = {"float": "float32", "double": "float64", "string": "object"}
"""ONNX's element types that numpy calls otherwise; the rest (int64, uint8, float16 ...) have the same name."""
ERRORS_ONLY = 3
LIBRARIES = ("numpy", "onnxruntime")
SMALL_WEIGHTS_BYTES = 4 * 1024 * 1024
"""Up to here a model that shares its process has no arena of its own: each would keep a piece of memory for what is mostly nothing."""


def load(assignment: Assignment, context: Context) -> Loaded:
    """Loads the weights, and the author's code around them. Raises LoadError, or what the library or model code raises."""

    def session(path: str, *, threads: int, device: str) -> OnnxSession:
        arena = not assignment.host or os.path.getsize(path) > SMALL_WEIGHTS_BYTES
        return OnnxSession(path, threads=threads, device=device, arena=arena)

    return load_weights(assignment, context, session=session, is_model=is_model, what="a .onnx file")


def is_model(path: str) -> bool:
    """Whether the file is what this engine loads."""
    return path.endswith(".onnx")


class OnnxSession:
    """One loaded model. `inputs` and `outputs` describe its tensors."""

    def __init__(self, path: str, *, threads: int, device: str, arena: bool = True) -> None:
        """Loads `path`. `threads` bounds the work inside one operation; `device` is cpu or cuda. Raises what ONNX Runtime raises."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = ERRORS_ONLY
        # Threads that wait by spinning would take a core from the other models after every request.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The arena gives back what a request took: many models share this machine's memory. Without an arena, large tensors
        # go to the system one by one, which took twice the memory and 1.7 times as long with MiniLM on 512 tokens.
        self._run_options = onnxruntime.RunOptions()
        options.enable_cpu_mem_arena = arena
        if arena:
            self._run_options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        providers = ["CPUExecutionProvider"] if device == "cpu" else ["CUDAExecutionProvider", "CPUExecutionProvider"]
        available = set(onnxruntime.get_available_providers())
        self._session = onnxruntime.InferenceSession(path, options, providers=[each for each in providers if each in available])
        self.inputs = [_info(node) for node in self._session.get_inputs()]
        self.outputs = [_info(node) for node in self._session.get_outputs()]
        self._names = [info.name for info in self.outputs]

    def run(self, inputs: Arrays) -> Arrays:
        """One call. An input that is missing or of another type or rank is what ONNX Runtime raises."""
        import numpy as np

        given = {}
        for info in self.inputs:
            if info.name in inputs:
                value = inputs[info.name]
                given[info.name] = _strings(value, info.name) if info.dtype == "object" else np.asarray(value, info.dtype)
        return dict(zip(self._names, self._session.run(self._names, given, self._run_options)))


def _strings(value: Any, name: str) -> Any:
    """ONNX Runtime takes text; of bytes it would take what Python prints for them."""
    import numpy as np

    array = np.asarray(value, object)
    try:
        decoded = [each.decode() if isinstance(each, bytes) else each for each in array.flat]
    except UnicodeDecodeError:
        raise BadRequest(f"input {name} must be text in UTF-8") from None
    flat = np.empty(array.size, object)
    flat[:] = decoded
    return flat.reshape(array.shape)


def _info(node: Any) -> TensorInfo:
    element = str(node.type)[len("tensor(") : -1] if str(node.type).startswith("tensor(") else str(node.type)
    sizes: list[Any] = list(node.shape)
    return TensorInfo(node.name, NUMPY_NAMES.get(element, element), tuple(size if isinstance(size, int) else -1 for size in sizes))
