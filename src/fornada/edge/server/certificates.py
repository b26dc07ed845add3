"""TLS by files, which may be replaced while the node serves.

Whoever renews a certificate writes two files, one after the other: between the two they don't belong together. So files that have changed
are tried apart first, and what was there before goes on as long as they can't be used.
"""

import os
import re
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

Stamp = tuple[tuple[int, int, int, int], ...]
"""Of both files: device, inode, size, time of the last change in nanoseconds."""


_NEEDED = "[server] tls_cert and tls_key must name files that the node can read"
_CERTIFICATE = re.compile(rb"-----BEGIN (X509 |TRUSTED )?CERTIFICATE-----")
_KEY = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----")
_LOCKED = re.compile(rb"-----BEGIN ENCRYPTED PRIVATE KEY-----|^Proc-Type: *4,ENCRYPTED", re.MULTILINE)


class Unusable(Exception):
    """The files can't serve. The message is one line: which, why, what to do."""


class Certificates:
    """A node's. `context` stays the same object: what it holds is of the handshakes that begin from now on."""

    def __init__(self, cert: Path, key: Path | None, *, told: Callable[[str, str], None]) -> None:
        """`key` None: it stands in `cert`, too. `told` gets an event's name and a reason, empty where all is well."""
        self._cert, self._key = cert, key
        self._told = told
        self._seen: Stamp | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.look()

    def look(self) -> None:
        """Takes the files as they are now, if they have changed since the last look. Files that can't be used are told of once; without
        any that could, handshakes fail."""
        stamp = _stamp(self._cert, self._key)
        if stamp == self._seen:
            return
        self._seen = stamp
        try:
            check(self._cert, self._key)
            _load(self.context, self._cert, self._key)
        except Unusable as error:
            self._told("tls.unusable", str(error))
        else:
            self._told("tls.loaded", "")


def check(cert: Path, key: Path | None) -> None:
    """Raises Unusable."""
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), cert, key)


def _load(context: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    texts = {path: _read(path) for path in filter(None, (cert, key))}
    if not _CERTIFICATE.search(texts[cert]):
        raise Unusable(f"{cert} holds no certificate in PEM (BEGIN CERTIFICATE); [server] tls_cert names one, with those that signed it")
    secret = cert if key is None else key
    if not _KEY.search(texts[secret]):
        where = "[server] tls_key names its file" if key is None else "[server] tls_key names a file with one"
        raise Unusable(f"{secret} holds no private key in PEM (BEGIN PRIVATE KEY); {where}")
    if _LOCKED.search(texts[secret]):
        raise Unusable(
            f"the private key in {secret} has a password, which nobody is there to type; write it without one: openssl pkey -in … -out …"
        )
    try:
        # Without a password at hand OpenSSL would ask for one on the terminal.
        context.load_cert_chain(cert, key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        named = str(cert) if key is None else f"{cert} and {key}"
        words = str(getattr(error, "reason", None) or "damaged").replace("_", " ").lower()
        needed = "it takes a certificate chain and its key in PEM, the key without a password"
        raise Unusable(f"{named} can't be used: {words}; {needed}") from None


def _read(path: Path) -> bytes:
    try:
        # Of a pipe nobody would ever come back, and the node is waiting.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Unusable(f"{path} is no file; {_NEEDED}")
        return path.read_bytes()
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror or error}; {_NEEDED}") from None


def _stamp(*paths: Path | None) -> Stamp:
    found = []
    for path in filter(None, paths):
        try:
            status = os.stat(path)
        except OSError:
            found.append((0, 0, 0, 0))
        else:
            found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)
