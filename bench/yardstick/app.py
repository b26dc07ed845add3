"""The front: uvicorn with httptools and uvloop, one ASGI function, no framework. `python -m bench.yardstick.app PORT LINK_FD`."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

from bench.yardstick.link import Link

Message = dict[str, Any]
START_S = 60.0


class Front:
    """The ASGI application."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._link: Link | None = None

    async def __call__(self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        message = await receive()
        body = message.get("body", b"")
        if message.get("more_body"):
            pieces = [body]
            while message.get("more_body"):
                message = await receive()
                pieces.append(message.get("body", b""))
            body = b"".join(pieces)
        if not body:
            answer = b"{}"  # health
        else:
            assert self._link
            answer = await self._link.call(body)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _lifespan(self, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]) -> None:
        await receive()
        self._link = Link(self._end, asyncio.get_running_loop())
        await asyncio.wait_for(self._link.ready, START_S)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})


def main() -> None:
    port, descriptor = int(sys.argv[1]), int(sys.argv[2])
    front = Front(socket.socket(fileno=descriptor))
    uvicorn.run(
        front,
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="uvloop",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        lifespan="on",
    )


if __name__ == "__main__":
    main()
