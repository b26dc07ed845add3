"""Blocking work in a thread that is waited for, whatever happens to who asked."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


async def uninterrupted(call: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
    """The result of `call`, made in a thread. A cancellation is raised once the call has ended.

    A thread can't be cancelled: who cleans up behind a rename that is still under way would remove what was just finished.
    """
    task = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        raise
