"""TensorFlow models: SavedModel folders and .keras files.

TensorFlow comes from the model's own environment and is imported when the model is loaded. Loading runs no code of the
model's author: a SavedModel is a graph, and a .keras file is read in Keras' safe mode, which refuses lambdas.
"""

from __future__ import annotations

import gc
import os
from typing import Any, Callable

from fornada_sdk.api_context import Context
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import Loaded
from fornada_sdk.runner.engines.tensors import Arrays, TensorInfo
from fornada_sdk.runner.engines.weights import load_weights

SIGNATURE = "serving_default"
"""What exporters call the function that is meant for serving (TensorFlow Serving's convention)."""


def load(assignment: Assignment, context: Context) -> Loaded:
    """Loads the weights, and the author's code around them. Raises LoadError, or what the library or model code raises."""
    return load_weights(assignment, context, session=TensorFlowSession, is_model=is_model, what="a SavedModel folder or a .keras file")


def is_model(path: str) -> bool:
    """Whether the file or folder is what this engine loads."""
    return path.endswith(".keras") or os.path.isfile(os.path.join(path, "saved_model.pb"))


class TensorFlowSession:
    """One loaded model. `inputs` and `outputs` describe its tensors."""

    def __init__(self, path: str, *, threads: int, device: str) -> None:
        """Loads `path`. `threads` bounds the work inside one operation; `device` is cpu or cuda. Raises what TensorFlow raises."""
        # Its start-up notes would stand in the model's log before every first line of the author.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        self._tf = tf = _imported()
        _configure(tf, threads=threads, device=device)
        load = _keras if path.endswith(".keras") else _saved_model
        self._call, self.inputs, self.outputs, self._kept = load(tf, path)
        self._dtypes = {info.name: info.dtype for info in self.inputs}

    def run(self, inputs: Arrays) -> Arrays:
        """One call. An input that isn't there is a KeyError, another shape than the model's what TensorFlow raises."""
        given = {name: self._tensor(inputs[name], dtype) for name, dtype in self._dtypes.items()}
        return {name: tensor.numpy() for name, tensor in self._call(given).items()}

    def _tensor(self, value: Any, dtype: str) -> Any:
        return self._tf.constant(value, dtype="string" if dtype == "object" else dtype)


def _imported() -> Any:
    # Half a million objects are made, and nearly all of them stay: collections in between cost a second of five.
    collects = gc.isenabled()
    gc.disable()
    try:
        import tensorflow
    finally:
        if collects:
            gc.enable()
    return tensorflow


def _configure(tf: Any, *, threads: int, device: str) -> None:
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        cards = tf.config.list_physical_devices("GPU")
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        else:
            for card in cards:
                # TensorFlow takes a whole card at the first use otherwise.
                tf.config.experimental.set_memory_growth(card, True)
    except RuntimeError:
        # The author's module used TensorFlow while it was imported: it has started with the settings it had then.
        pass


Read = tuple[Callable[[Arrays], dict[str, Any]], list[TensorInfo], list[TensorInfo], Any]
"""What runs the model, its inputs, its outputs, and what must be kept alive."""


def _saved_model(tf: Any, path: str) -> Read:
    model = tf.saved_model.load(path)
    signatures = model.signatures
    if SIGNATURE in signatures:
        function = signatures[SIGNATURE]
    elif len(signatures) == 1:
        (function,) = signatures.values()
    else:
        raise ValueError(f"{path} has no signature {SIGNATURE}; it has {', '.join(sorted(signatures)) or 'none'}")
    _, named = function.structured_input_signature
    inputs = [_info(tf, name, spec) for name, spec in named.items()]
    outputs = [_info(tf, name, spec) for name, spec in function.structured_outputs.items()]
    # The signature holds its variables weakly: without the model they would be collected.
    return (lambda given: function(**given)), inputs, outputs, model


def _keras(tf: Any, path: str) -> Read:
    model = tf.keras.models.load_model(path, compile=False, safe_mode=True)
    if not model.inputs:
        raise ValueError(f"{path} doesn't say what its input looks like; build the model before saving it")
    names = [str(tensor.name) for tensor in model.inputs]
    output_names = _output_names(model)
    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name=name) for name, tensor in zip(names, model.inputs)]

    # One trace for every number of rows: without the signature each new one would cost seconds.
    @tf.function(input_signature=[specs])  # type: ignore[untyped-decorator, unused-ignore]
    def call(tensors: Any) -> Any:
        result = model(tensors if len(tensors) > 1 else tensors[0], training=False)
        return result if isinstance(result, dict) else dict(zip(output_names, tf.nest.flatten(result)))

    function = call.get_concrete_function()
    inputs = [_info(tf, name, spec) for name, spec in zip(names, specs)]
    outputs = [_info(tf, name, spec) for name, spec in function.structured_outputs.items()]
    return (lambda given: dict(call([given[name] for name in names]))), inputs, outputs, model


def _output_names(model: Any) -> list[str]:
    """The names of the layers that give the outputs, as far as they tell them apart."""
    names = [str(name) for name in getattr(model, "output_names", None) or [model.layers[-1].name]]
    return names if len(set(names)) == len(model.outputs) else [f"output_{place}" for place in range(len(model.outputs))]


def _info(tf: Any, name: str, spec: Any) -> TensorInfo:
    dtype = tf.as_dtype(spec.dtype).name
    shape: tuple[int, ...] | None = None
    if tf.TensorShape(spec.shape).rank is not None:
        shape = tuple(-1 if size is None else int(size) for size in spec.shape)
    return TensorInfo(name, "object" if dtype == "string" else dtype, shape)
