"""The secret by which receivers of webhooks know that they come from this node: set by the operator, or made once."""

import contextlib
import os
import secrets
from pathlib import Path

SECRET = "webhook.secret"


def webhook_secret(data_dir: Path, named: str) -> bytes:
    """`named` is [jobs] webhook_secret; empty: what DATA_DIR/webhook.secret holds, which only the node's user may read. Where that can't be
    written, on a full disk say, it holds until the next start."""
    if named:
        return named.encode()
    path = data_dir / SECRET
    with contextlib.suppress(OSError):
        if found := path.read_bytes().strip():
            return found
    made = secrets.token_hex(32).encode()
    with contextlib.suppress(OSError):
        _keep(path, made)
    return made


def _keep(path: Path, made: bytes) -> None:
    draft = path.with_name(f"{SECRET}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(made + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
