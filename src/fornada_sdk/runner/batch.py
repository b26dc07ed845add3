"""Several requests in one call of run_batch. One that fails fails alone.

What fails in preprocess or postprocess is one request's own. If run_batch raises, nobody knows whose fault it was: each
request of the batch is run again by itself.
"""

from __future__ import annotations

from typing import Any, Callable

from fornada_sdk.api_context import CURRENT, Context, Instance
from fornada_sdk.runner.call import Call
from fornada_sdk.runner.invoke.servable import Servable, checked_outputs

IDS_SHOWN = 8

Outcome = Callable[[Call, Any], None]
Failure = Callable[[Call, BaseException], None]


class BatchContext(Context):
    """What run_batch is given: the contexts of all its requests in one."""

    def __init__(self, instance: Instance, calls: list[Call]) -> None:
        super().__init__(instance)
        self._calls = calls

    @property
    def cancelled(self) -> bool:
        """All of the callers have gone."""
        return all(call.cancelled for call in self._calls)

    @property
    def request_id(self) -> str:
        """The ids of its requests, with commas between them; the first few of many."""
        return ",".join(call.request_id for call in self._calls[:IDS_SHOWN])


def run_together(servable: Servable, instance: Instance, calls: list[Call], *, done: Outcome, failed: Failure) -> None:
    """Takes all the calls through preprocess, run_batch and postprocess; `done` or `failed` is told of each, once."""
    assert servable.run_batch is not None
    ready = []
    for call in calls:
        CURRENT.set(call)
        try:
            request = call.request()
            ready.append((call, request if servable.preprocess is None else servable.preprocess(request, call)))
        except BaseException as error:  # noqa: BLE001 - the boundary with model code
            failed(call, error)
    if not ready:
        return
    context: Context = ready[0][0] if len(ready) == 1 else BatchContext(instance, [call for call, _ in ready])
    CURRENT.set(context)
    try:
        outputs = checked_outputs(servable.run_batch([inputs for _, inputs in ready], context), len(ready))
    except BaseException as error:  # noqa: BLE001 - the boundary with model code
        if len(ready) == 1:
            failed(ready[0][0], error)
            return
        for call, inputs in ready:
            _run_alone(servable, call, inputs, done=done, failed=failed)
        return
    for (call, _), output in zip(ready, outputs):
        _postprocess(servable, call, output, done=done, failed=failed)


def _run_alone(servable: Servable, call: Call, inputs: Any, *, done: Outcome, failed: Failure) -> None:
    assert servable.run_batch is not None
    CURRENT.set(call)
    try:
        output = checked_outputs(servable.run_batch([inputs], call), 1)[0]
    except BaseException as error:  # noqa: BLE001 - the boundary with model code
        failed(call, error)
        return
    _postprocess(servable, call, output, done=done, failed=failed)


def _postprocess(servable: Servable, call: Call, output: Any, *, done: Outcome, failed: Failure) -> None:
    CURRENT.set(call)
    if isinstance(output, BaseException):
        failed(call, output)
        return
    try:
        result = output if servable.postprocess is None else servable.postprocess(output, call)
    except BaseException as error:  # noqa: BLE001 - the boundary with model code
        failed(call, error)
        return
    done(call, result)
