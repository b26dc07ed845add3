"""What the protocol says about the server and its models: the same over HTTP and gRPC.

A model is ready when a request for it would be taken: one that is stopped or asleep comes up with its first request, and a client that
waits for `ready` before it asks would wait for ever otherwise. Only what failed isn't, until its back-off is over.
"""

from collections.abc import Sequence
from typing import Any

import fornada
from fornada.core.errors import LoadFailed, Unavailable, UnknownModel
from fornada.core.names import AccountId, ModelName
from fornada.core.ports import CatalogPort, Clock, OperationsPort, Resolved
from fornada.core.specs import TensorSpec
from fornada.edge.auth import Caller
from fornada.edge.dialects.oip.infer import reference_of
from fornada.edge.tensor_calls import shown_version, takes_tensors
from fornada.edge.tensor_signatures import Signatures, deadline_of

OLDEST_LOOP_S = 1.0
EXTENSIONS = ["binary_tensor_data", "classification", "model_repository"]
STATES = {"ready": "READY", "pending": "LOADING", "stopping": "UNLOADING", "failed": "UNAVAILABLE"}
"""Outer state of a model -> Triton's word in the index; all others are READY, too: they come up when they are asked."""


class ModelsView:
    """Over the catalogue and the node."""

    def __init__(self, *, catalog: CatalogPort, operations: OperationsPort, signatures: Signatures, clock: Clock) -> None:
        self._catalog = catalog
        self._operations = operations
        self._signatures = signatures
        self._clock = clock

    def accepts(self) -> bool:
        """Whether the node takes requests."""
        health = self._operations.health()
        return health.accepting and not health.draining and health.loop_age_s <= OLDEST_LOOP_S

    def require_accepting(self) -> None:
        """Raises Unavailable."""
        if not self.accepts():
            raise Unavailable("the node is starting, or shutting down", retry_after_s=1)

    def server(self) -> dict[str, Any]:
        """Server metadata."""
        return {"name": "fornada", "version": fornada.__version__, "extensions": EXTENSIONS}

    def resolve(self, name: str, version: str, sees: AccountId | None) -> Resolved:
        """Raises UnknownModel, BadRequest."""
        try:
            return self._catalog.resolve(reference_of(name, version), sees)
        except UnknownModel as refusal:
            raise UnknownModel(f"No such model {name}", nearest=refusal.nearest) from None

    def require_ready(self, resolved: Resolved) -> None:
        """Raises LoadFailed where requests are refused because the model can't be loaded."""
        view = self._operations.view(resolved.entry.name)
        if view.state == "failed":
            raise LoadFailed(view.why or "the model failed to load")

    async def metadata(self, name: str, resolved: Resolved, timeout_s: float | None = None) -> dict[str, Any]:
        """Model metadata. A model whose weights alone know its tensors is loaded for it. Raises BadRequest for one without tensors."""
        known = await self._signatures.of(resolved, timeout_s)
        versions = resolved.entry.versions or (resolved.entry.answering.digest,)
        return {
            "name": name,
            "versions": [digest[:12] for digest in versions],
            "platform": f"fornada_{resolved.spec.engine}",
            "inputs": [_shown(each) for each in known.inputs],
            "outputs": [_shown(each) for each in known.outputs],
        }

    async def config(self, name: str, resolved: Resolved, timeout_s: float | None = None) -> dict[str, Any]:
        """Of Triton's model configuration what there is an answer to. Shapes are whole, so that max_batch_size is 0."""
        known = await self._signatures.of(resolved, timeout_s)
        return {
            "name": name,
            "platform": f"fornada_{resolved.spec.engine}",
            "backend": resolved.spec.engine,
            "max_batch_size": 0,
            "input": [{**_configured(each), "optional": each.optional} for each in known.inputs],
            "output": [_configured(each) for each in known.outputs],
        }

    def index(self, sees: AccountId | None, *, ready: bool) -> list[dict[str, str]]:
        """The repository's index: models that take tensors."""
        found = []
        for entry in self._catalog.entries(sees):
            if takes_tensors(entry.answering.spec):
                view = self._operations.view(entry.name)
                state = STATES.get(view.state, "READY")
                shown = {"name": str(entry.name), "version": shown_version(Resolved(entry, entry.answering.spec, None)), "state": state}
                found.append({**shown, "reason": view.why if state == "UNAVAILABLE" else ""})
        return [each for each in found if not ready or each["state"] == "READY"]

    async def load(self, caller: Caller, name: str, timeout_s: float | None) -> None:
        """Answers when it is loaded. Raises Forbidden and what a load raises."""
        await self._operations.load(self._own(caller, name), deadline=deadline_of(self._clock, timeout_s))

    async def unload(self, caller: Caller, name: str) -> None:
        """Until the next request or load."""
        await self._operations.unload(self._own(caller, name), grace_s=None)

    def _own(self, caller: Caller, name: str) -> ModelName:
        entry = self.resolve(name, "", caller.sees).entry
        caller.own(entry.account, entry.name)
        return entry.name

    def stats(self, name: str, resolved: Resolved) -> dict[str, Any]:
        """Triton's statistics, as far as they are counted: how much is under way."""
        view = self._operations.view(resolved.entry.name)
        return {
            "model_stats": [
                {
                    "name": name,
                    "version": shown_version(resolved),
                    "in_flight": _sum(view.instances, "in_flight"),
                    "queued": _sum(view.instances, "queued"),
                    "loads": _sum(view.instances, "loads"),
                }
            ]
        }


def _sum(instances: Sequence[dict[str, Any]], field: str) -> int:
    return sum(int(each.get(field) or 0) for each in instances)


def _shown(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.dtype, "shape": spec.shape}


def _configured(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "data_type": "TYPE_STRING" if spec.dtype == "BYTES" else f"TYPE_{spec.dtype}", "dims": spec.shape}
