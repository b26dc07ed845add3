"""Which certificates the commands take. Where there is no TLS none of this is imported: loading certificates takes 30 ms."""

import ssl
from pathlib import Path

from fornada.cli.failures import CommandFailed

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def trusted(certificate: str) -> ssl.SSLContext:
    """What the machine trusts (and SSL_CERT_FILE names); or `certificate`, a file, alone: a node of this machine is asked by its address,
    which is in no certificate, so it has to show exactly that one. Raises CommandFailed."""
    if not certificate:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=_first(Path(certificate)))
    except (OSError, ValueError) as error:
        raise CommandFailed(f"the node's certificate {certificate} can't be read ({error}); name the node with FORNADA_URL") from None
    return context


def _first(path: Path) -> str:
    """The server's own of a PEM file; those after it are of who signed it. Raises OSError, ValueError."""
    text = path.read_text(encoding="ascii", errors="replace")
    begin, end = text.find(BEGIN), text.find(END)
    if begin < 0 or end < begin:
        raise ValueError("it holds no certificate in PEM")
    return text[begin : end + len(END)] + "\n"
