"""What the author of a model imports.

The smallest model is a file model.py with one function, which may be async, or yield for a stream:

    def handle_request(request, context):
        return {"echo": request.body.json}

The full form is a class:

    class Model(fornada_sdk.Model):
        def load(self, context): ...
        def run(self, inputs, context): ...

Both can be tried without a server: `handle_request(Request(json={"a": 1}), Context.inactive())`. Standard library only.
"""

from typing import TYPE_CHECKING, Any

from fornada_sdk.api import BadRequest, Model, OutOfDeviceMemory, Response
from fornada_sdk.api_context import Context, Device, Log
from fornada_sdk.api_request import Body, Request

if TYPE_CHECKING:
    from fornada_sdk.api_tensors import Tensor, Tensors

__all__ = ["BadRequest", "Body", "Context", "Device", "Log", "Model", "OutOfDeviceMemory", "Request", "Response", "Tensor", "Tensors"]


def __getattr__(name: str) -> Any:
    # Most models have no tensors: the start of each would pay for the module.
    if name in ("Tensor", "Tensors"):
        from fornada_sdk import api_tensors

        return getattr(api_tensors, name)
    raise AttributeError(f"module 'fornada_sdk' has no attribute '{name}'")
