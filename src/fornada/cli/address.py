"""Which node to talk to: flag, then environment, then what a node of this machine wrote down, then the default."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import click

DEFAULT_URL = "http://127.0.0.1:8250"
CLONE_DATA_DIR = ".fornada"
"""Where `make serve` keeps its data, seen from the clone."""


class Address(NamedTuple):
    """`chosen` says whether a person named the url: then nobody looks elsewhere."""

    url: str
    account: str
    token: str
    chosen: bool
    certificate: str = ""
    """The file with the certificate that the node of this machine shows; empty: whatever the machine trusts."""


def resolve(*, url: str | None, account: str | None, token: str | None, environ: Mapping[str, str]) -> Address:
    """`url`, `account` and `token` are flags, click having put FORNADA_URL, _ACCOUNT and _TOKEN in where they are not given."""
    written = {} if url else read_node_file(environ)
    return Address(
        url=complete(url or str(written.get("url") or DEFAULT_URL)),
        account=account or str(written.get("account") or "local"),
        token=_sendable((token or "").strip()),  # files that keys are kept in end with a newline
        chosen=bool(url),
        certificate=str(written.get("tls_cert") or ""),
    )


def _sendable(token: str) -> str:
    """Raises UsageError, which doesn't show it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise click.UsageError("the token holds a character that no key has; set FORNADA_TOKEN to what 'fornada keys create' printed")
    return token


def data_dirs(environ: Mapping[str, str]) -> list[Path]:
    """Where a node of this user would keep its data, the likeliest first."""
    from fornada.app.config import default_data_dir

    named = environ.get("FORNADA_DATA_DIR")
    return [Path(named)] if named else [Path(CLONE_DATA_DIR), Path(default_data_dir(environ))]


def read_node_file(environ: Mapping[str, str]) -> Mapping[str, object]:
    """run/node.json of the first data directory with a live node; {} where there is none."""
    return next((written for _, written in live_nodes(environ)), {})


def live_nodes(environ: Mapping[str, str]) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """The data directories with a live node, and what their run/node.json says.

    The token goes to the url that is written there, and `.fornada` is looked for in the current directory: so a file of another
    user is not believed, nor one that leads away from this machine.
    """
    from fornada.app.config import is_loopback

    for folder in data_dirs(environ):
        path = folder / "run" / "node.json"
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
            owner = path.stat().st_uid
        except (OSError, ValueError):
            continue
        if not isinstance(written, dict) or owner not in (0, os.geteuid()):
            continue
        alive = Path(f"/proc/{written.get('main_pid')}").exists()
        if alive and is_loopback(urlsplit(str(written.get("url"))).hostname or ""):
            yield folder, written


def complete(url: str) -> str:
    """`127.0.0.1:8250` is meant as http; a base of one of the APIs is meant as its node. Raises UsageError."""
    completed = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(completed)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise click.UsageError(f"'{url}' is no address of a node; write e.g. {DEFAULT_URL}")
    completed = completed.rstrip("/")
    for base in ("/client/v4", "/v1"):
        completed = completed.removesuffix(base)
    return completed
