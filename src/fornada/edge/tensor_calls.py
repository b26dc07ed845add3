"""Requests of tensors, whichever dialect they came in: which models take them, what is checked, and what becomes of the answer.

What model.toml declares is checked here, before anything is loaded. Of a model without code whose weights tell (engines onnx, litert,
tensorflow and torch), the runner checks: it alone knows them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fornada.core.errors import BadRequest, FornadaError, ModelRaised, TooLarge, UnknownModel
from fornada.core.names import AccountId, Reference
from fornada.core.ports import Resolved
from fornada.core.ports_tensors import SignaturesPort
from fornada.core.requests import AnswerHead
from fornada.core.resources import format_size
from fornada.core.specs import ModelSpec, TensorsSpec
from fornada.core.tensors import TENSORS_TYPE, Tensor, check_inputs, check_wanted, head_of, split
from fornada.edge.calls import Exchange
from fornada.edge.invoke import Invoker

NATIVE_ENGINES = frozenset({"tensorflow", "litert", "onnx", "torch"})
"""Their weights say what goes in and comes out."""


class TensorModel(NamedTuple):
    """A model that takes tensors."""

    resolved: Resolved
    declared: TensorsSpec | None
    """What model.toml says; None: the weights say it."""
    version: str
    """The version that answers, as dialects show it."""


class TensorCalls:
    """Over the Invoker."""

    def __init__(self, invoker: Invoker, signatures: SignaturesPort) -> None:
        self._invoker = invoker
        self._signatures = signatures

    def find(self, exchange: Exchange, name: str, reference: Reference, account: AccountId) -> TensorModel:
        """The model, once the caller may run it. Raises UnknownModel, ModelNotAllowed, BadRequest, TooLarge and their like."""
        try:
            resolved = self._invoker.resolve(reference, account)
        except UnknownModel as refusal:
            raise UnknownModel(f"No such model {name}", nearest=refusal.nearest) from None
        contract = self._invoker.contracts.of(resolved)
        exchange.meter = contract.meter
        self._invoker.admit(exchange, resolved, account)
        if exchange.size > contract.max_body:
            raise _too_large(contract.max_body)
        return TensorModel(resolved, declared_of(resolved.spec, resolved.entry.name), shown_version(resolved))

    def submit(
        self,
        exchange: Exchange,
        sink: "TensorSink",
        model: TensorModel,
        account: AccountId,
        tensors: Sequence[Tensor],
        *,
        parameters: Mapping[str, Any],
        wanted: Sequence[str] = (),
        stream: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Checks the tensors and hands them over. Raises BadRequest, TooLarge."""
        check_inputs(tensors, model.declared)
        check_wanted(wanted, model.declared)
        most = model.resolved.spec.serving.max_body
        if sum(len(tensor.data) for tensor in tensors) > most:
            raise _too_large(most)
        self._invoker.run(
            exchange,
            sink,
            model.resolved,
            account,
            [tensor.data for tensor in tensors],
            type=TENSORS_TYPE,
            stream=stream,
            tensors=msgspec.json.encode(head_of(tensors, parameters, wanted)).decode(),
            timeout_s=timeout_s,
        )

    def known(self, resolved: Resolved) -> TensorsSpec | None:
        """Inputs and outputs of the model as far as they are known now; None: its weights have to be loaded first. Raises BadRequest
        for a model that takes no tensors."""
        declared = declared_of(resolved.spec, resolved.entry.name)
        if declared is not None and declared.outputs:
            return declared
        said = self._signatures.of(resolved.version or resolved.entry.answering.digest)
        if said is None:
            return declared
        return TensorsSpec(declared.inputs if declared is not None else said.inputs, said.outputs)


def declared_of(spec: ModelSpec, name: str) -> TensorsSpec | None:
    """What model.toml declares; None: the weights say it. Raises BadRequest for a model that takes no tensors."""
    if spec.tensors.inputs:
        return spec.tensors
    if spec.engine in NATIVE_ENGINES and not spec.python.entry:
        return None
    raise BadRequest(f"'{name}' takes no tensors: its model.toml declares no [[tensors.inputs]]")


def takes_tensors(spec: ModelSpec) -> bool:
    """Whether the model can be asked with tensors at all."""
    return bool(spec.tensors.inputs) or (spec.engine in NATIVE_ENGINES and not spec.python.entry)


def shown_version(resolved: Resolved) -> str:
    """A version as clients see it, and may name it."""
    return (resolved.version or resolved.entry.answering.digest)[:12]


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"Request is too large: this model takes at most {most} bytes ({format_size(most)})")


class TensorSink:
    """A Sink for tensors. What it tells is the dialect's: `tell`, and `told_item` where items may come."""

    streams = False

    def __init__(self, exchange: Exchange, wanted: Sequence[str]) -> None:
        self.exchange = exchange
        self._wanted = frozenset(wanted)

    def tell(self, tensors: Sequence[Tensor], parameters: Mapping[str, Any], run_s: float) -> None:
        """The whole answer. Raises FornadaError."""
        raise NotImplementedError

    def answer(self, head: AnswerHead, body: bytes | memoryview) -> None:
        try:
            if head.tensors is None or head.type != TENSORS_TYPE:
                raise ModelRaised("the model answered something else than tensors")
            try:
                found = split(head.tensors, body)
            except ValueError as error:
                raise ModelRaised(f"the model's tensors are broken: {error}") from None
            self.tell(self.chosen(found), head.tensors.all_parameters, head.run_s)
        except FornadaError as error:
            self.exchange.fail(error, from_model=True)

    def chosen(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Those that the caller wants."""
        return [tensor for tensor in tensors if tensor.name in self._wanted] if self._wanted else tensors

    def refuse(self, error: FornadaError) -> None:
        self.exchange.fail(error, from_model=True)

    def stream_begins(self, head: AnswerHead) -> None:
        self.exchange.give_up(ModelRaised("the model streams: ask it by gRPC's ModelStreamInfer"))

    def item(self, data: bytes) -> None:
        pass  # it was refused when it began

    def stream_ends(self, error: FornadaError | None, head: AnswerHead | None = None) -> None:
        pass


def seconds(value: object, scale: float) -> float | None:
    """A bound of a request in other units; None where there is none. Raises BadRequest."""
    if value is None or value == 0:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value * scale < 86400 or not math.isfinite(value):
        raise BadRequest("parameters: 'timeout' must be a whole number of microseconds above 0, less than a day")
    return value * scale
