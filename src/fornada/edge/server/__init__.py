"""The HTTP/1.1 server: our own protocol for the hot routes, starlette behind a bridge for the others.

In: listening sockets; bytes.
Out: Exchanges and Calls for the dialects; bytes.
May import: `edge`, `core`; starlette, httptools and asyncio's protocols stay in here.
"""

from fornada.edge.server.server import Server

__all__ = ["Server"]
