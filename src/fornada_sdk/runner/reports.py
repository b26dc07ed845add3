"""What READY and FAILED say of a load, and the warm-up that stands before READY."""

from __future__ import annotations

from typing import Any, Callable

from fornada_sdk.api_context import Context
from fornada_sdk.runner.answers import describe, is_out_of_device_memory, print_traceback
from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.capture import end_lines
from fornada_sdk.runner.engines import Loaded, LoadError, Target
from fornada_sdk.runner.invoke.servable import Servable
from fornada_sdk.runner.warmup import check_answer, example, own_warmup

AHEAD = 64
"""Requests that may wait here for the thread that runs them: with that many the wire costs little, and a CANCEL still reaches each."""
DETAIL_LONGEST = 4000


def ready(loaded: Loaded, serving: Servable, *, load_s: float, warmup_s: float, pipelining: int) -> dict[str, Any]:
    """READY's fields."""
    return {
        "load_s": round(load_s, 6),
        "warmup_s": round(warmup_s, 6),
        "streaming": serving.streaming,
        "tensors": {
            "inputs": [dict(tensor._asdict()) for tensor in loaded.inputs],
            "outputs": [dict(tensor._asdict()) for tensor in loaded.outputs],
        },
        "pipelining": pipelining,
        **({"sleeps": True} if serving.sleeps else {}),
    }


def failed(error: BaseException, *, phase: str) -> dict[str, Any]:
    """FAILED's fields. What went wrong is printed too, but for a LoadError, which says all there is to say."""
    reason = str(error) if isinstance(error, LoadError) else describe(error)
    memory = isinstance(error, MemoryError) or is_out_of_device_memory(error)
    if not isinstance(error, LoadError):
        print_traceback(error)
    end_lines()
    import traceback

    detail = "".join(traceback.format_exception_only(type(error), error))[-DETAIL_LONGEST:]
    return {"reason": reason, "kind": "memory" if memory else "warmup" if phase == "warming" else "load", "detail": detail}


def warm_up(target: Target, serving: Servable, assignment: Assignment, context: Context, settled: Callable[[Any], Any]) -> Any:
    """The model's own warm-up, or its request example. `settled` gives what an awaitable comes to.

    Returns an async stream that was begun, whose first item is still to be asked for; else None. Raises what a caller would be told.
    """
    own = own_warmup(target)
    if own is not None:
        settled(own(context))
        return None
    request = example(assignment)
    return None if request is None else check_answer(settled(serving.handle(request, context)))
