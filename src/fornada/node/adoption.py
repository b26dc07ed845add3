"""What a predecessor left behind: which of it still lives, and the end of what nobody wants."""

import asyncio
import signal
from collections.abc import Sequence

from fornada.core.ports import ProcessPort

KNOWN_AT_ONCE_S = 0.02
"""The keeper has told of every end before this control plane began; it only has to reach the futures."""


async def still_alive(processes: Sequence[ProcessPort]) -> tuple[list[ProcessPort], list[ProcessPort]]:
    """(alive, ended), each in the order of `processes`."""
    if not processes:
        return [], []
    ends = {asyncio.ensure_future(process.exited()): process for process in processes}
    done, pending = await asyncio.wait(ends, timeout=KNOWN_AT_ONCE_S)
    for waiting in pending:
        waiting.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return [ends[waiting] for waiting in ends if waiting in pending], [ends[ended] for ended in ends if ended in done]


async def end_stranger(process: ProcessPort, *, kill_s: float) -> None:
    """A process that belongs to no version of the catalogue: SIGTERM, then SIGKILL."""
    process.signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(kill_s):
            await process.exited()
    except TimeoutError:
        process.signal(signal.SIGKILL)
        await process.exited()
    process.forget()
