"""The header `Idempotency-Key`: whoever doesn't know whether a submit arrived sends it again with the same one."""

from fornada.core.errors import BadRequest
from fornada.edge.headers import Facts

LONGEST_KEY = 255


def idempotency_key(facts: Facts) -> str | None:
    """Raises BadRequest."""
    raw = facts.get(b"idempotency-key")
    if raw is None:
        return None
    key = raw.decode("latin-1").strip()
    if not key or len(key) > LONGEST_KEY or not key.isprintable():
        raise BadRequest(f"Idempotency-Key must be 1 to {LONGEST_KEY} printable characters")
    return key
