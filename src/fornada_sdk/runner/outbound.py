"""The way out of a model's process: an HTTP proxy on 127.0.0.1 that reaches the hosts which model.toml names, and no other.

    client ── CONNECT host:port, or GET http://host/… ──> Forwarder ── a wish and a socket ──> control plane ── TCP ──> host
           <── 200, or 403 with the reason ───────────────          <── {} or a refusal ──

The process itself has no network where it is confined: what it wishes is decided, and each connection held, by the control plane
(wire/outbound.py). One daemon thread serves all connections of the instance.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence

from fornada_sdk.runner.outbound_client import CONNECTIONS_MOST, Client

LISTEN_BACKLOG = 128
STARVED_PAUSE_S = 0.05
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


def proxy_variables(port: int, network: Sequence[str]) -> Mapping[str, str]:
    """What tells a model's libraries of the proxy; `network` are the host:port pairs of its version.

    A name for this machine is asked directly, as servers of the model's own are, unless the version names it.
    """
    named = {pair.rpartition(":")[0].strip("[]").lower().rstrip(".") for pair in network}
    proxy = f"http://127.0.0.1:{port}"
    direct = ",".join(name for name in LOCAL_NAMES if name not in named)
    names = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": direct}
    return {**names, **{name.lower(): value for name, value in names.items()}}


def open_way_out(descriptors: Sequence[int], network: Sequence[str]) -> None:
    """Starts the proxy and tells this process' libraries of it. `descriptors` holds the runner's end of the outbound channel.

    Before any code of the model's: libraries read the variables when they are imported.
    """
    if len(descriptors) != 1:
        sys.stderr.write("fornada: this process was given no way to the hosts that model.toml names\n")
        return
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=descriptors[0])
    try:
        forwarder = Forwarder(channel)
    except OSError as error:
        # Where a process can't have a network of its own it has none, and the model may do without.
        sys.stderr.write(f"fornada: the hosts that model.toml names can't be reached here: no socket on 127.0.0.1: {error.strerror}\n")
        channel.close()
        return
    os.environ.update(proxy_variables(forwarder.port, network))
    os.register_at_fork(after_in_child=forwarder.close_in_child)
    forwarder.start()


class Forwarder:
    """Owns the runner's end of the outbound channel, the listening socket and every client."""

    def __init__(self, channel: socket.socket) -> None:
        """Raises OSError where there is no loopback to listen on."""
        self._channel = channel
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=LISTEN_BACKLOG)
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._clients: set[Client] = set()
        self._watched: dict[socket.socket, int] = {}
        self._thread = threading.Thread(target=self._run, name="fornada-outbound", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close_in_child(self) -> None:
        """In a process that model code forked: the parent's thread serves it too, and what it held open would never end."""
        for client in list(self._clients):
            client.close_in_child()
        for sock in (self._channel, self._listener):
            os.close(sock.detach())
        self._selector.close()

    def _run(self) -> None:
        while True:
            nearest = min((client.deadline for client in self._clients), default=float("inf"))
            wait_s = None if nearest == float("inf") else max(0.0, nearest - time.monotonic())
            for key, mask in self._selector.select(wait_s):
                if key.data is None:
                    self._accept()
                else:
                    self._turn(key.data, key.fileobj, mask)
            now = time.monotonic()
            for client in [client for client in self._clients if now >= client.deadline]:
                client.expire(now)
                self._watch(client)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(STARVED_PAUSE_S)  # no descriptor is free: the listener stays readable all the while
            return
        sock.setblocking(False)
        client = Client(sock, self._channel, time.monotonic())
        self._clients.add(client)
        if len(self._clients) > CONNECTIONS_MOST:
            client.refuse(503, f"{CONNECTIONS_MOST} connections are open already", time.monotonic())
        self._watch(client)

    def _turn(self, client: Client, sock: object, mask: int) -> None:
        if client.closed:
            return  # by the other of its sockets, in this very turn
        try:
            client.turn(sock, bool(mask & selectors.EVENT_READ), bool(mask & selectors.EVENT_WRITE), time.monotonic())
        except OSError:
            client.closed = True  # one of its two sides is gone
        self._watch(client)

    def _watch(self, client: Client) -> None:
        """Makes the selector look for what the client waits for now."""
        for sock in client.sockets:
            events = 0
            if not client.closed:
                reads, writes = client.waits_for(sock)
                events = (selectors.EVENT_READ if reads else 0) | (selectors.EVENT_WRITE if writes else 0)
            before = self._watched.get(sock, 0)
            if events and not before:
                self._selector.register(sock, events, client)
            elif before and not events:
                self._selector.unregister(sock)
            elif events != before:
                self._selector.modify(sock, events, client)
            if events:
                self._watched[sock] = events
            else:
                self._watched.pop(sock, None)
        if client.closed:
            self._clients.discard(client)
            client.close()
