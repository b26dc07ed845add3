"""The gRPC server of one control plane.

grpcio listens by itself, so that the port isn't the keeper's: while no control plane lives, connections are refused, and clients of
gRPC try again by themselves. During an upgrade the new one listens beside the old one (SO_REUSEPORT), which takes nothing new from the
moment it lets go.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]

from fornada.edge.dialects.oip.rpc.service import Service

MESSAGE_BYTES = 64 * 1024 * 1024
"""Of one message, whatever a model's max_body says."""
CALLS_MOST = 256
"""Under way at the same time; the next one is RESOURCE_EXHAUSTED."""
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 32 * 1024),
    ("grpc.max_connection_idle_ms", 75_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
)


class RpcServer:
    """`start` once, `stop` once."""

    def __init__(self, service: Service, *, addresses: Sequence[str], tls: tuple[Path, Path] | None, connections: int) -> None:
        """`addresses`: host:port, an IPv6 host in brackets. `tls`: files with the certificate chain and its key. `connections`: open at the
        same time at each address, handshakes among them; the next one is closed unread. Raises OSError where files can't be read or an
        address can't be had."""
        options = (*OPTIONS, ("grpc.max_allowed_incoming_connections", connections))
        self._server = grpc.aio.server(options=options, maximum_concurrent_rpcs=CALLS_MOST)
        self._server.add_generic_rpc_handlers((service,))
        self._tls = _Files(*tls) if tls is not None else None
        self.ports = [self._listen(address) for address in addresses]

    def _listen(self, address: str) -> int:
        try:
            if self._tls is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, self._tls.credentials())
        except RuntimeError as error:
            raise OSError(str(error)) from None
        return int(port)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self, grace_s: float) -> None:
        """Takes nothing new; what runs has `grace_s` seconds."""
        await self._server.stop(grace_s)


class _Files:
    """Certificates that may be replaced while the node serves: looked at by each handshake."""

    def __init__(self, cert: Path, key: Path) -> None:
        self._cert, self._key = cert, key
        self._seen = self._stamp()

    def credentials(self) -> Any:
        return grpc.dynamic_ssl_server_credentials(self._read(), self._renewed)

    def _read(self) -> Any:
        return grpc.ssl_server_certificate_configuration([(self._key.read_bytes(), self._cert.read_bytes())])

    def _renewed(self) -> Any:
        """None: as before. Files that don't belong together fail the handshakes until they do, as nothing here can try them apart."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            found = self._read()
        except OSError:
            return None
        self._seen = stamp
        return found

    def _stamp(self) -> tuple[int, ...]:
        return tuple(
            value for path in (self._cert, self._key) for value in (path.stat().st_mtime_ns, path.stat().st_ino, path.stat().st_size)
        )
