"""A loaded model in one form, whichever shape its author chose: handle_request, or a Model with its steps."""

from __future__ import annotations

import functools
from collections.abc import Awaitable
from typing import Any, Callable, NamedTuple

from fornada_sdk.api import Model
from fornada_sdk.api_context import Context
from fornada_sdk.runner.engines import LoadError, Target

_GENERATOR = 0x20
_COROUTINE = 0x80
_ASYNC_GENERATOR = 0x200
"""co_flags, as module `inspect` names them; importing that would cost 5 ms of each start."""

Handle = Callable[[Any, Context], Any]
"""(request, context) -> result, generator or awaitable of a result."""

Step = Callable[[Context], Any]
"""One step of the ladder down or up; may be `async def`."""


class Batching(NamedTuple):
    """[serving] max_batch and max_wait_ms."""

    most: int = 1
    wait_s: float = 0.0


class Servable(NamedTuple):
    """What the ways of running call."""

    handle: Handle
    """One request through all steps."""
    preprocess: Handle | None
    run_batch: Callable[[list[Any], Context], Any] | None
    """None where the model takes one request at a time."""
    postprocess: Handle | None
    is_async: bool
    """Any of the steps is `async def`: run on a loop."""
    streaming: bool
    """Answers are streams, as far as the code shows."""
    sleep: Step | None = None
    """Gives device memory back. None where the model can't: then `wake` is None, too."""
    wake: Step | None = None
    """Takes it again."""

    @property
    def sleeps(self) -> bool:
        """It can give its device memory back and take it again, with equal answers."""
        return self.sleep is not None


def servable(target: Target) -> Servable:
    """Raises LoadError for a Model that has neither run nor run_batch."""
    if not isinstance(target, Model):
        flags = _flags(target)
        return Servable(
            target, None, None, None, bool(flags & (_COROUTINE | _ASYNC_GENERATOR)), bool(flags & (_GENERATOR | _ASYNC_GENERATOR))
        )
    preprocess = target.preprocess if _overrides(target, "preprocess") else None
    postprocess = target.postprocess if _overrides(target, "postprocess") else None
    run = target.run if _overrides(target, "run") or target.engine is not None else None
    run_batch = _run_batch(target)
    if run is None and run_batch is None:
        raise LoadError(f"{type(target).__name__} has neither run nor run_batch")
    steps = [step for step in (preprocess, run, run_batch, postprocess) if step is not None]
    is_async = any(_flags(step) & (_COROUTINE | _ASYNC_GENERATOR) for step in steps)
    last = postprocess or run or run_batch
    streaming = bool(_flags(last) & (_GENERATOR | _ASYNC_GENERATOR) or _flags(run) & (_GENERATOR | _ASYNC_GENERATOR))
    single = _batch_of_one(run_batch) if run is None else run
    join = _joined_async if is_async else _joined
    handle = single if preprocess is None and postprocess is None and run is not None else join(preprocess, single, postprocess)
    return Servable(handle, preprocess, run_batch, postprocess, is_async, streaming)


def with_rest(serving: Servable, target: Model) -> Servable:
    """With the way to sleep and back, where there is one after its load: by then model and engine have had a chance to say (`sleeps`)
    that as they are set up they can't. Raises LoadError where the author has one step without the other."""
    if not target.sleeps:
        return serving
    sleep, wake = _rest(target)
    return serving._replace(sleep=sleep, wake=wake)


def _rest(target: Model) -> tuple[Step | None, Step | None]:
    """(sleep, wake). The author's steps go around the engine's: they still find its weights on the way down, and again on the way up."""
    engine = target.engine
    down, up = getattr(engine, "sleep", None), getattr(engine, "wake", None)
    own_down = target.sleep if _overrides(target, "sleep") else None
    own_up = target.wake if _overrides(target, "wake") else None
    if down is None or up is None or not getattr(engine, "sleeps", True):
        if (own_down is None) is not (own_up is None):
            there, missing = ("sleep", "wake") if own_up is None else ("wake", "sleep")
            raise LoadError(f"{type(target).__name__} has {there} and no {missing}: it needs both, or neither")
        return own_down, own_up
    return _one_after_another(own_down, down), _one_after_another(up, own_up)


def _one_after_another(first: Step | None, second: Step | None) -> Step | None:
    if first is None or second is None:
        return first or second
    before, after = first, second

    def both(context: Context) -> Any:
        value = before(context)
        return _afterwards(value, after, context) if isinstance(value, Awaitable) else after(context)

    return both


async def _afterwards(value: Awaitable[Any], step: Step, context: Context) -> None:
    await value
    value = step(context)
    if isinstance(value, Awaitable):
        await value


def _overrides(target: Model, name: str) -> bool:
    return getattr(type(target), name) is not getattr(Model, name) or name in vars(target)


def _run_batch(target: Model) -> Callable[[list[Any], Context], Any] | None:
    if _overrides(target, "run_batch"):
        return target.run_batch
    together = getattr(target.engine, "run_batch", None)
    if together is None or _overrides(target, "run"):
        return None
    return lambda batch, context: together(batch)


def _flags(function: Any) -> int:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if code is None and not isinstance(function, type):
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004 - a callable object's own code
    return int(code.co_flags) if code is not None else 0


def _joined(preprocess: Handle | None, run: Handle, postprocess: Handle | None) -> Handle:
    def handle(request: Any, context: Context) -> Any:
        value = request if preprocess is None else preprocess(request, context)
        value = run(value, context)
        return value if postprocess is None else postprocess(value, context)

    return handle


def _joined_async(preprocess: Handle | None, run: Handle, postprocess: Handle | None) -> Handle:
    async def handle(request: Any, context: Context) -> Any:
        value = request if preprocess is None else await settled(preprocess(request, context))
        value = await settled(run(value, context))
        return value if postprocess is None else await settled(postprocess(value, context))

    return handle


async def settled(value: Any) -> Any:
    """The value itself, or what an awaitable comes to."""
    return await value if isinstance(value, Awaitable) else value


def _batch_of_one(run_batch: Callable[[list[Any], Context], Any] | None) -> Handle:
    assert run_batch is not None
    together = run_batch

    def run(inputs: Any, context: Context) -> Any:
        outputs = together([inputs], context)
        return _first_of(outputs) if isinstance(outputs, Awaitable) else checked_outputs(outputs, 1)[0]

    return run


async def _first_of(outputs: Awaitable[Any]) -> Any:
    return checked_outputs(await outputs, 1)[0]


def checked_outputs(outputs: Any, count: int) -> list[Any]:
    """run_batch's outputs as a list of `count`. Raises TypeError or ValueError; both name what came instead."""
    if not isinstance(outputs, (list, tuple)):
        raise TypeError(f"run_batch returned {type(outputs).__name__}, and must return a list")
    if len(outputs) != count:
        raise ValueError(f"run_batch returned {len(outputs)} outputs for {count} inputs")
    return list(outputs)
