"""A request of the binding protocol as the Workers runtime sends it, and the one that it stands for (WORKERS_AI.md, 14).

    POST /binding/KEY/    MF-URL: https://workers-binding.ai/run?version=3    MF-Header-cf-consn-model-id: @cf/x/y
    POST /binding/KEY/run?version=3                                           cf-consn-model-id: @cf/x/y
       └─► POST /binding/-/run/@cf/x/y?version=3    Authorization: Bearer KEY

The runtime can send no header of ours, so that the key stands in the path. From here on it is one in a header, as everybody else's:
whatever logs, counts or quotes a path sees `-` in its place. And whatever MF-URL says ends below /binding/, where only the binding is.
"""

import re
from urllib.parse import quote

from fornada.core.errors import BadRequest
from fornada.edge.headers import CREDENTIALS

PREFIX = b"/binding/"
NO_KEY = b"-"
"""In the place of a key: none, or one that has been read."""
_HOST = re.compile(rb"https?://workers-binding\.ai(?=[/?#]|\Z)", re.IGNORECASE)
_TARGET = re.compile(rb"[\x21-\x7e]*\Z")
_WRAPPED = b"mf-header-"
_NOT_THE_WORKER_S = CREDENTIALS | frozenset(
    (
        b"host",
        b"origin",
        b"connection",
        b"keep-alive",
        b"content-length",
        b"transfer-encoding",
        b"te",
        b"trailer",
        b"expect",
        b"upgrade",
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-protocol",
        b"sec-websocket-extensions",
    )
)
"""What of the connection, and of who may come in, is said by the outer request alone: a Worker passes on what its own callers send."""
_NAMES_A_MODEL = frozenset((b"/run", b"/ai-gateway/run"))
MODEL_HEADER = b"cf-consn-model-id"

Fields = list[tuple[bytes, bytes]]


def is_wrapped(path: bytes, fields: Fields) -> bool:
    """Whether this is the binding's. `path`: the request's target in origin form."""
    return path.startswith(PREFIX) or any(name.lower() == b"mf-url" for name, _ in fields)


def unwrap(path: bytes, fields: Fields) -> tuple[bytes, Fields]:
    """Target and header fields of the request that is meant. Raises BadRequest."""
    key, inner = NO_KEY, b"/"
    if path.startswith(PREFIX):
        key, inner = _split(path[len(PREFIX) :])
    addresses = [value for name, value in fields if name.lower() == b"mf-url"]
    if addresses:
        inner = _address(addresses)
        fields = _merged(fields)
    if key != NO_KEY:
        fields = [pair for pair in fields if pair[0].lower() not in CREDENTIALS]
        fields.append((b"authorization", b"Bearer " + key))
    return b"/binding/-" + _with_model(inner, fields), fields


def _split(rest: bytes) -> tuple[bytes, bytes]:
    """KEY/run?version=3 → the key, and what follows it."""
    end = next((at for at, byte in enumerate(rest) if byte in b"/?"), len(rest))
    inner = rest[end:]
    return rest[:end] or NO_KEY, inner if inner.startswith(b"/") else b"/" + inner


def _address(values: list[bytes]) -> bytes:
    host = _HOST.match(values[0])
    if host is None or len(values) > 1 or not _TARGET.match(values[0]):
        raise BadRequest("MF-URL must be one address at https://workers-binding.ai")
    inner = values[0][host.end() :].partition(b"#")[0]
    return inner if inner.startswith(b"/") else b"/" + inner


def _merged(fields: Fields) -> Fields:
    inner = [(name[len(_WRAPPED) :], value) for name, value in fields if name.lower().startswith(_WRAPPED)]
    inner = [(name, value) for name, value in inner if name and name.lower() not in _NOT_THE_WORKER_S]
    named = {name.lower() for name, _ in inner}
    outer = [(name, value) for name, value in fields if not name.lower().startswith(b"mf-") and name.lower() not in named]
    return [*outer, *inner]


def _with_model(target: bytes, fields: Fields) -> bytes:
    """The model stands in the path from here on, as at every other door: its limits are known before the body is read."""
    path, mark, query = target.partition(b"?")
    if path.rstrip(b"/") not in _NAMES_A_MODEL:
        return target
    model = next((value for name, value in fields if name.lower() == MODEL_HEADER), b"")
    prefix, colon, rest = model.partition(b":")
    if colon and b"/" not in prefix and b"/" in rest:  # `options.prefix` of the binding; behind a model's name no slash follows a colon
        model = rest
    return b"%b/%b%b%b" % (path.rstrip(b"/"), quote(model, safe="@/:").encode(), mark, query)
