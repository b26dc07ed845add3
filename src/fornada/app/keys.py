"""The keys of a data directory, for commands, whether a node runs on it or not; and whether a node may start without any."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from fornada.app.config import ConfigError, is_loopback
from fornada.app.data_directory import STORE, DataDirectoryRefused, locked
from fornada.app.owner import as_its_owner
from fornada.app.reserve import keep, spend
from fornada.core.errors import Conflict
from fornada.core.keys import KeysPort, without_keys
from fornada.core.settings import Settings
from fornada.node.whole_path import whole_path
from fornada.store.keys import has_keys
from fornada.store.sqlite import SqliteStore, StoreUnusable, foreign_schema
from fornada.telemetry import AUDIT
from fornada.telemetry.files import RotatingFile
from fornada.telemetry.times import rfc3339


@contextlib.contextmanager
def keys_of(folder: Path, *, ending: bool = False) -> Iterator[KeysPort]:
    """The keys, to be read and changed; the directory is made where there is none. `ending`: one of them, for which there is room even
    on a full disk. Raises Conflict with one line, DiskFull."""
    folder = whole_path(folder)
    path = folder / STORE
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(as_its_owner(folder))
            if not path.exists() or foreign_schema(path):
                # It is to be made, or to be made this release's: that must not happen under a node.
                stack.enter_context(locked(folder))
            if ending:
                spend(folder)
            stack.callback(keep, folder)
            store = SqliteStore(path)
            stack.callback(store.close)
            yield store
    except (DataDirectoryRefused, StoreUnusable) as refusal:
        raise Conflict(str(refusal)) from None
    except PermissionError as error:
        raise Conflict(f"{error.filename or path} can't be read: {error.strerror}; run this as the user of the node") from None


def note(folder: Path, action: str, **fields: object) -> None:
    """A line of the audit about what was done to keys, and by which user of the machine."""
    folder = whole_path(folder)
    entry = {"time": rfc3339(time.time()), "level": "info", "event": "audit", "action": action, **fields, "uid": os.getuid()}
    with as_its_owner(folder):
        file = RotatingFile(folder / AUDIT, max_bytes=1 << 62)  # the node alone turns it: it holds it open
        file.append(without_keys(msgspec.json.encode(entry)) + b"\n")
        file.close()


def refuse_open_doors(settings: Settings) -> None:
    """Raises ConfigError where the node would listen beyond this machine and nobody had to show a key."""
    if not is_loopback(settings.host) and not has_keys(Path(settings.data_dir) / STORE):
        raise ConfigError(
            f"--host {settings.host} is refused: without keys only a loopback address is safe; create a key with "
            f"'fornada keys create --data-dir {settings.data_dir} --account local --role admin', or use 127.0.0.1"
        )
