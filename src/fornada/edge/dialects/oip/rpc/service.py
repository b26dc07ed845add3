"""The service: which method is whose, who may call it, and what it does.

A caller is judged by its metadata before its message is read: whoever has no key sends nothing that the node would keep.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic
from typing import Any, NamedTuple

import grpc  # type: ignore[import-untyped]

from fornada.core.errors import BadRequest, FornadaError, InternalFault
from fornada.core.keys import Role
from fornada.edge.auth import Authenticator
from fornada.edge.calls import Target
from fornada.edge.dialects.oip.infer import MICROSECONDS, NOT_FOR_MODELS, reference_of
from fornada.edge.dialects.oip.models import ModelsView
from fornada.edge.dialects.oip.rpc import inference_pb2 as pb
from fornada.edge.dialects.oip.rpc.codes import code_of, ids, trailers
from fornada.edge.dialects.oip.rpc.exchange import RpcExchange, RpcSink
from fornada.edge.dialects.oip.rpc.messages import asked_by, config_of, metadata_of
from fornada.edge.dialects.oip.rpc.raw import Received, in_stream, parsed, received, written
from fornada.edge.headers import SMALL_BODY, Facts, read_facts
from fornada.edge.ids import Ids
from fornada.edge.observer import Observer
from fornada.edge.problems import Style, status_of
from fornada.edge.tensor_calls import TensorCalls, seconds

SERVICE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
"""A HealthCheckResponse: field 1, the status."""
EMPTY_FINAL = "triton_enable_empty_final_response"
FINAL = "triton_final_response"

Context = Any  # grpc.aio.ServicerContext; grpcio has no types


class Called(NamedTuple):
    """Who calls, and for how long."""

    facts: Facts
    trace_id: str

    @property
    def request_id(self) -> str:
        return self.facts.request_id or self.trace_id


Unary = Callable[[Any, Called], Awaitable[Any]]


class Service(grpc.GenericRpcHandler):  # type: ignore[misc, unused-ignore]
    """All methods, as grpcio asks for them by name."""

    def __init__(
        self,
        *,
        calls: TensorCalls,
        models: ModelsView,
        authenticator: Authenticator,
        observer: Observer,
        hold: Callable[[int], object],
        look: Callable[[], None],
    ) -> None:
        """`hold` takes room for so many bytes, until what it returns is dropped. Raises Busy. `look` takes up keys that have changed."""
        self._hold = hold
        self._look = look
        self._calls = calls
        self._models = models
        self._authenticator = authenticator
        self._observer = observer
        self._new_trace = Ids().trace
        # A message of None comes as its bytes.
        self._methods: dict[str, tuple[Role, type[Any] | None, Unary]] = {
            "ServerLive": (Role.NOBODY, pb.ServerLiveRequest, self._live),
            "ServerReady": (Role.NOBODY, pb.ServerReadyRequest, self._ready),
            "ServerMetadata": (Role.NOBODY, pb.ServerMetadataRequest, self._server),
            "ModelReady": (Role.USER, pb.ModelReadyRequest, self._model_ready),
            "ModelMetadata": (Role.USER, pb.ModelMetadataRequest, self._metadata),
            "ModelConfig": (Role.USER, pb.ModelConfigRequest, self._config),
            "ModelInfer": (Role.USER, None, self._infer),
            "RepositoryIndex": (Role.USER, pb.RepositoryIndexRequest, self._index),
            "RepositoryModelLoad": (Role.DEPLOYER, pb.RepositoryModelLoadRequest, self._load),
            "RepositoryModelUnload": (Role.DEPLOYER, pb.RepositoryModelUnloadRequest, self._unload),
            "SystemSharedMemoryRegister": (Role.USER, None, self._no_memory),
            "CudaSharedMemoryRegister": (Role.USER, None, self._no_memory),
        }

    def service(self, details: Any) -> Any:
        """The handler of one call; None: there is no such method."""
        service, _, method = details.method.lstrip("/").partition("/")
        if (service, method) == (HEALTH, "Check"):
            return grpc.unary_unary_rpc_method_handler(self._health)
        if service != SERVICE or (method not in self._methods and method != "ModelStreamInfer"):
            return None
        needs, message, handle = self._methods.get(method, (Role.USER, None, self._infer))
        called = Called(self._facts(details.invocation_metadata), self._new_trace())
        try:
            self._admit(called, needs)
        except FornadaError as error:
            return _refusing(error, called)
        # Messages are read here: grpcio would tell of a broken one with a traceback on the node's stderr.
        if method == "ModelStreamInfer":
            return grpc.stream_stream_rpc_method_handler(self._streamed(called), None, _written)
        return grpc.unary_unary_rpc_method_handler(self._answered(method, needs, _reading(message, handle), called), None, _written)

    def _admit(self, called: Called, needs: Role) -> None:
        """Raises what the metadata says against a call."""
        if called.facts.refusal is not None:
            raise called.facts.refusal
        called.facts.caller.require(needs)

    def _facts(self, metadata: Any) -> Facts:
        # A page in a browser can't speak gRPC, so that no name can have been bent towards this machine: the Host says nothing here.
        self._look()
        fields = [(b"host", b"localhost")]
        for key, value in metadata:
            if key not in ("host", "content-length", "transfer-encoding") and not key.endswith("-bin"):
                fields.append((key.encode(), value if isinstance(value, bytes) else value.encode()))
        return read_facts(fields, self._authenticator)

    def _answered(self, method: str, needs: Role, handle: Unary, called: Called) -> Callable[[Any, Context], Awaitable[Any]]:
        async def answer(request: Any, context: Context) -> Any:
            _bound(called.facts, context)
            context.set_trailing_metadata(ids(request_id=called.request_id, trace_id=called.trace_id))
            began, refusal = monotonic(), None
            try:
                return await handle(request, called)
            except FornadaError as error:
                refusal = error
            except Exception as error:  # noqa: BLE001 - a bug of ours: other calls are still answered
                self._observer.failed(where="grpc", request_id=called.request_id, error=error)
                refusal = InternalFault("the server failed; its log says more")
            finally:
                self._note(method, needs, called, refusal, monotonic() - began)
            await _abort(context, refusal, called)

        return answer

    def _note(self, method: str, needs: Role, called: Called, error: FornadaError | None, seconds_taken: float) -> None:
        """For the log, and for the audit where a model was to be changed. The status is the one that HTTP has for it."""
        status = 200 if error is None else status_of(type(error), Style.TEXT)
        if needs >= Role.DEPLOYER:
            caller = called.facts.caller
            self._observer.acted(action=method, path=SERVICE, caller=caller, status=status, request_id=called.request_id)
        if error is not None or self._observer.verbose:
            self._observer.answered(
                request_id=called.request_id,
                trace_id=called.trace_id,
                method="GRPC",
                route=method,
                status=status,
                error=error,
                seconds=seconds_taken,
            )

    # ---- inference

    async def _infer(self, request: bytes, called: Called) -> Any:
        exchange = self._begun(received(request), called, streams=False)
        try:
            said = await exchange.said.get()
            if isinstance(said, FornadaError):
                raise said
            assert said is not None, "an answer is one message"
            return said[0]
        finally:
            exchange.leave()

    def _streamed(self, called: Called) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def answer(requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[Any]:
            _bound(called.facts, context)
            async for request in requests:
                # A key may have been revoked since the stream began.
                now = Called(self._facts(context.invocation_metadata()), self._new_trace())
                now.facts.timeout_s = called.facts.timeout_s
                try:
                    self._admit(now, Role.USER)
                    asked = received(request)
                except FornadaError as error:
                    await _abort(context, error, now)  # which raises
                async for message in self._messages(asked, now):
                    yield message

        return answer

    async def _messages(self, came: Received, called: Called) -> AsyncIterator[Any]:
        """The answers to one request of a stream. A refusal is a message, too: the next request may be a better one."""
        exchange, request = None, came.message
        try:
            exchange = self._begun(came, called, streams=True)
            while (said := await exchange.said.get()) is not None:
                if isinstance(said, FornadaError):
                    raise said
                message, count = said
                yield in_stream(message)
                exchange.took(count)
            if request.parameters[EMPTY_FINAL].bool_param:
                final = pb.ModelInferResponse(model_name=request.model_name, model_version=request.model_version, id=request.id)
                final.parameters[FINAL].bool_param = True
                yield pb.ModelStreamInferResponse(infer_response=final)
        except FornadaError as error:
            refused = pb.ModelInferResponse(model_name=request.model_name, model_version=request.model_version, id=request.id)
            yield pb.ModelStreamInferResponse(error_message=error.message, infer_response=refused)
        except Exception as error:  # noqa: BLE001 - a bug of ours: the next request may be answered
            self._observer.failed(where="grpc", request_id=called.request_id, error=error)
            yield pb.ModelStreamInferResponse(error_message="the server failed; its log says more")
        finally:
            if exchange is not None:
                exchange.leave()

    def _begun(self, came: Received, called: Called, *, streams: bool) -> RpcExchange:
        """Hands a request over. Raises FornadaError."""
        request, size = came.message, came.size
        reference = reference_of(request.model_name, request.model_version)
        exchange = RpcExchange(called.facts, Target(door=self, style=Style.TEXT, name=request.model_name), called.trace_id, size)
        try:
            if size > SMALL_BODY:
                exchange.room = self._hold(size)
            account = called.facts.caller.acting_for(None)
            model = self._calls.find(exchange, request.model_name, reference, account)
            asked = asked_by(came)
            parameters = {name: value for name, value in asked.parameters.items() if name not in (*NOT_FOR_MODELS, EMPTY_FINAL)}
            self._calls.submit(
                exchange,
                RpcSink(exchange, asked, request.model_name, model, streams=streams),
                model,
                account,
                asked.tensors,
                parameters=parameters,
                wanted=asked.wanted,
                stream=streams,
                timeout_s=seconds(asked.parameters.get("timeout"), MICROSECONDS),
            )
        except FornadaError as error:
            exchange.fail(error)
        return exchange

    # ---- what it says about itself and its models

    async def _live(self, request: Any, called: Called) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def _ready(self, request: Any, called: Called) -> Any:
        return pb.ServerReadyResponse(ready=self._models.accepts())

    async def _server(self, request: Any, called: Called) -> Any:
        return pb.ServerMetadataResponse(**self._models.server())

    async def _model_ready(self, request: pb.ModelReadyRequest, called: Called) -> Any:
        resolved = self._models.resolve(request.name, request.version, called.facts.caller.sees)
        try:
            self._models.require_accepting()
            self._models.require_ready(resolved)
        except FornadaError:
            return pb.ModelReadyResponse(ready=False)
        return pb.ModelReadyResponse(ready=True)

    async def _metadata(self, request: pb.ModelMetadataRequest, called: Called) -> Any:
        resolved = self._models.resolve(request.name, request.version, called.facts.caller.sees)
        return metadata_of(await self._models.metadata(request.name, resolved, called.facts.timeout_s))

    async def _config(self, request: pb.ModelConfigRequest, called: Called) -> Any:
        resolved = self._models.resolve(request.name, request.version, called.facts.caller.sees)
        return config_of(await self._models.config(request.name, resolved, called.facts.timeout_s))

    async def _index(self, request: pb.RepositoryIndexRequest, called: Called) -> Any:
        answer = pb.RepositoryIndexResponse()
        for each in self._models.index(called.facts.caller.sees, ready=request.ready):
            answer.models.add(**each)
        return answer

    async def _load(self, request: pb.RepositoryModelLoadRequest, called: Called) -> Any:
        if request.parameters:
            raise BadRequest("'parameters': a model's files and configuration come by deploying it, not with a load")
        await self._models.load(called.facts.caller, request.model_name, called.facts.timeout_s)
        return pb.RepositoryModelLoadResponse()

    async def _unload(self, request: pb.RepositoryModelUnloadRequest, called: Called) -> Any:
        await self._models.unload(called.facts.caller, request.model_name)
        return pb.RepositoryModelUnloadResponse()

    async def _no_memory(self, request: bytes, called: Called) -> Any:
        raise BadRequest("there is no shared memory here: send tensors as raw contents")

    async def _health(self, request: bytes, context: Context) -> bytes:
        return SERVING if self._models.accepts() else NOT_SERVING


def _reading(message: type[Any] | None, handle: Unary) -> Unary:
    async def read(request: bytes, called: Called) -> Any:
        return await handle(request if message is None else parsed(message, request), called)

    return read


def _written(message: Any) -> bytes:
    return message if isinstance(message, bytes) else written(message)


def _bound(facts: Facts, context: Context) -> None:
    """The call's own deadline counts as x-timeout-ms does."""
    left_s = context.time_remaining()
    if left_s is not None and (facts.timeout_s is None or left_s < facts.timeout_s):
        facts.timeout_s = max(left_s, 0.001)


def _refusing(error: FornadaError, called: Called) -> Any:
    """A handler that reads nothing of the caller's messages."""

    async def refuse(requests: Any, context: Context) -> Any:
        await _abort(context, error, called)

    return grpc.stream_unary_rpc_method_handler(refuse)


async def _abort(context: Context, error: FornadaError, called: Called) -> None:
    await context.abort(code_of(error), error.message, trailers(error, request_id=called.request_id, trace_id=called.trace_id))
