"""Protobuf messages to requests of tensors, and answers to messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from fornada.core.errors import BadRequest
from fornada.core.tensors import MOST_TENSORS, Tensor
from fornada.edge.dialects.oip.body import Asked, Parameters, checked, classes_of
from fornada.edge.dialects.oip.classes import classified
from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from fornada.edge.dialects.oip.rpc.raw import Received, written
from fornada_sdk.wire.tensors import packed

_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""Data type -> the field that holds its values; FP16 and BF16 come as raw contents alone."""


def asked_by(came: Received) -> Asked:
    """Raises BadRequest that names the tensor."""
    request = came.message
    classes = {}
    for output in request.outputs:
        if count := classes_of(_plain(output.parameters, f"output '{output.name[:80]}'"), output.name):
            classes[output.name] = count
    return Asked(
        id=request.id,
        tensors=_tensors(request, came.raws),
        wanted=[output.name for output in request.outputs],
        binary={},
        all_binary=True,
        parameters=_plain(request.parameters, "parameters"),
        classes=classes,
    )


def _tensors(request: pb.ModelInferRequest, raws: Sequence[bytes | memoryview]) -> list[Tensor]:
    if len(request.inputs) > MOST_TENSORS:
        raise BadRequest(f"'inputs' holds {len(request.inputs)} tensors, more than {MOST_TENSORS}")
    for each in request.inputs:
        _plain(each.parameters, f"input '{each.name[:80]}'")
        _check_contents(each, is_raw=bool(raws))
    if raws:
        if len(raws) != len(request.inputs):
            raise BadRequest(f"there are {len(request.inputs)} inputs and {len(raws)} raw_input_contents")
        return [Tensor(each.name, each.datatype, list(each.shape), raw) for each, raw in zip(request.inputs, raws, strict=True)]
    return [Tensor(each.name, each.datatype, list(each.shape), _packed(each)) for each in request.inputs]


def _check_contents(each: pb.ModelInferRequest.InferInputTensor, *, is_raw: bool) -> None:
    """Of values in two places one would count, and which one is anybody's guess."""
    filled = [field.name for field, _ in each.contents.ListFields()] if each.HasField("contents") else []
    where = f"input '{each.name[:80]}'"
    if is_raw and filled:
        raise BadRequest(f"{where}: it has {filled[0]}, and there are raw_input_contents; one of them is right")
    wrong = [name for name in filled if name != _CONTENTS.get(each.datatype)]
    if wrong:
        raise BadRequest(
            f"{where}: it has {wrong[0]}, and {each.datatype[:40]} comes in {_CONTENTS.get(each.datatype, 'raw_input_contents')}"
        )


def _packed(each: pb.ModelInferRequest.InferInputTensor) -> bytes:
    field = _CONTENTS.get(each.datatype)
    if field is None:
        raise BadRequest(f"input '{each.name[:80]}': {each.datatype[:40]} comes in raw_input_contents alone")
    try:
        return packed(list(getattr(each.contents, field)), each.datatype)
    except ValueError as error:
        raise BadRequest(f"input '{each.name[:80]}': {error}") from None


def _plain(parameters: Mapping[str, pb.InferParameter], where: str) -> Parameters:
    found: Parameters = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is not None:
            found[name] = getattr(value, kind)
    return checked(found, where)


def answer_of(asked: Asked, name: str, version: str, tensors: Sequence[Tensor], parameters: Mapping[str, Any]) -> bytes:
    """The answer as it goes out, with raw contents. Raises BadRequest for classes that an output can't have."""
    if asked.classes:
        tensors = classified(tensors, asked.classes)
    answer = pb.ModelInferResponse(model_name=name, model_version=version, id=asked.id)
    for key, value in parameters.items():
        answer.parameters[key].CopyFrom(_parameter(value))
    for tensor in tensors:
        answer.outputs.add(name=tensor.name, datatype=tensor.dtype, shape=tensor.shape)
    return written(answer, [tensor.data for tensor in tensors])


def _parameter(value: Any) -> pb.InferParameter:
    if isinstance(value, bool):
        return pb.InferParameter(bool_param=value)
    if isinstance(value, int):
        return pb.InferParameter(int64_param=value) if -(1 << 63) <= value < 1 << 63 else pb.InferParameter(string_param=str(value))
    if isinstance(value, float):
        return pb.InferParameter(double_param=value)
    return pb.InferParameter(string_param=str(value))


def metadata_of(said: Mapping[str, Any]) -> pb.ModelMetadataResponse:
    """As ModelsView.metadata says it."""
    answer = pb.ModelMetadataResponse(name=said["name"], versions=said["versions"], platform=said["platform"])
    for side in ("inputs", "outputs"):
        for each in said[side]:
            getattr(answer, side).add(name=each["name"], datatype=each["datatype"], shape=each["shape"])
    return answer


def config_of(said: Mapping[str, Any]) -> pb.ModelConfigResponse:
    """As ModelsView.config says it."""
    config = pb.ModelConfig(name=said["name"], platform=said["platform"], backend=said["backend"])
    for each in said["input"]:
        config.input.add(name=each["name"], data_type=each["data_type"], dims=each["dims"], optional=each["optional"])
    for each in said["output"]:
        config.output.add(name=each["name"], data_type=each["data_type"], dims=each["dims"])
    return pb.ModelConfigResponse(config=config)
