"""Whether a node may start with the TLS files that it was given."""

from pathlib import Path

from fornada.app.config import ConfigError
from fornada.core.settings import Settings
from fornada.edge.server.certificates import Unusable, check


def refuse_unusable_certificates(settings: Settings) -> None:
    """Raises ConfigError: later on files that can't be used leave what was there before, but at first there is nothing."""
    server = settings.server
    if not server.tls_cert:
        return
    try:
        check(Path(server.tls_cert), Path(server.tls_key) if server.tls_key else None)
    except Unusable as error:
        raise ConfigError(str(error)) from None
