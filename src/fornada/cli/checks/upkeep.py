"""What a node that has worked for a while needs somebody to look after: its backups, who may come in, and its certificate."""

import os
import socket
import ssl
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from fornada.app.backup import last_backup
from fornada.app.data_directory import STORE
from fornada.cli.address import live_nodes
from fornada.cli.checks.finding import Finding, ok, warn
from fornada.cli.checks.machine import Machine
from fornada.cli.failures import CommandFailed
from fornada.cli.trust import trusted
from fornada.store.keys import has_keys

DAY_S = 86400.0
OLD_S = 7 * DAY_S
SOON_S = 14 * DAY_S
CONNECT_S = 5.0


def backups(machine: Machine) -> Iterator[Finding]:
    """Nothing where there is no store yet, or this user may not look."""
    if not os.path.exists(machine.data_dir / STORE):
        return
    advice = "'fornada backup FILE' makes one while the node serves"
    last = last_backup(machine.data_dir)
    if last is None:
        yield warn("backup", f"none was made of {machine.data_dir} that this user could see", advice)
        return
    age_s = max(0.0, time.time() - last.at)
    seen = f"{last.path}, {f'{age_s / DAY_S:.0f} days' if age_s >= 2 * DAY_S else f'{age_s / 3600:.0f} hours'} ago"
    if age_s > OLD_S:
        yield warn("backup", seen, f"{advice}; let a timer do it every night")
    else:
        yield ok("backup", seen)


def keys(machine: Machine) -> Iterator[Finding]:
    store = machine.data_dir / STORE
    if not os.path.exists(store):
        return
    if has_keys(store):
        yield ok("keys", "every request needs one")
    else:
        yield ok("keys", "none: open to everybody on this machine, and to no other", "'fornada keys create' locks it")


def certificate(machine: Machine) -> Iterator[Finding]:
    """As the running node shows it; nothing where none runs, or it speaks no TLS."""
    written = next((written for folder, written in live_nodes(machine.environ) if folder == machine.data_dir), {})
    file, url = str(written.get("tls_cert") or ""), urlsplit(str(written.get("url")))
    if not file or not url.port:
        return
    advice = f"replace {file} and its key: the node takes them within seconds"
    try:
        with socket.create_connection((str(url.hostname), url.port), timeout=CONNECT_S) as plain:
            with trusted(file).wrap_socket(plain) as secured:
                shown = secured.getpeercert() or {}
    except ssl.SSLCertVerificationError as error:
        yield warn("certificate", f"{file}: {error.verify_message}", advice)
    except (OSError, CommandFailed) as error:
        yield warn("certificate", f"{file}: {error}", advice)
    else:
        left_s = ssl.cert_time_to_seconds(str(shown["notAfter"])) - time.time()
        (say, hint) = (warn, advice) if left_s < SOON_S else (ok, "")
        yield say("certificate", f"{file}, for {left_s / DAY_S:.0f} more days", hint)
