"""What callers are told of an instance that failed and backs off, or that ends under their requests."""

from typing import assert_never

from fornada.core.errors import DiskFull, FornadaError, InternalFault, LoadFailed, NeverFits, OutOfDeviceMemory, RunnerDied, Unavailable
from fornada.core.lifecycle.events import Cut, FailureKind
from fornada.core.lifecycle.life import ModelLife
from fornada.core.lifecycle.states import State
from fornada.core.names import NEVER, Instant, ModelName

CUT_RETRY_S = 1.0


def refusal(model: ModelName, life: ModelLife, now: Instant, *, trouble: FornadaError | None, last_line: str) -> FornadaError | None:
    """None where nothing stands in the way. `trouble` is what provisioning raised last, `last_line` the last one on stderr."""
    failure = life.failure
    if life.state is not State.FAILED or now >= failure.retry_at:
        return None
    retry_after_s = None if failure.retry_at == NEVER else failure.retry_at - now
    match failure.kind:
        case FailureKind.NEVER_FITS:
            return NeverFits(f"{model} can't run on this node: it {failure.reason}")
        case FailureKind.MEMORY:
            return OutOfDeviceMemory(f"{model} ran out of memory while it loaded: {failure.reason}", retry_after_s=retry_after_s)
        case FailureKind.PROVISION if isinstance(trouble, DiskFull):
            return DiskFull(trouble.message, retry_after_s=retry_after_s)
        case FailureKind.INTERNAL:
            return InternalFault(
                f"{model} was ended by a bug of the server, whose log says more: {failure.reason}", retry_after_s=retry_after_s
            )
        case FailureKind.CRASH | FailureKind.FAULT | FailureKind.HUNG:
            text = f"{model} ended {life.crashes} times in a row without an answer: {failure.reason}"
        case FailureKind.NONE | FailureKind.PROVISION | FailureKind.SPAWN | FailureKind.LOAD | FailureKind.STALLED:
            text = f"{model} could not be loaded: {failure.reason}"
        case _:
            assert_never(failure.kind)
    if last_line and last_line not in text:
        text = f"{text}; last line on stderr: {last_line}"
    return LoadFailed(text, retry_after_s=retry_after_s)


def cut_off(model: ModelName, cause: Cut, reason: str) -> FornadaError:
    """`reason` is how the process ended, where it did."""
    match cause:
        case Cut.STOPPED:
            return Unavailable(f"{model} was stopped before the request was done", retry_after_s=CUT_RETRY_S)
        case Cut.DIED:
            return RunnerDied(f"the runner of {model} ended under the request: {reason}")
        case _:
            assert_never(cause)
