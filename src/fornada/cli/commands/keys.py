"""`fornada keys`: works on the data directory, so that whoever may read it needs no key to make the first one."""

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fornada.cli.address import data_dirs, live_nodes
from fornada.cli.failures import CommandFailed
from fornada.cli.output import ago, print_json, print_table

if TYPE_CHECKING:
    from fornada.core.keys import Key, KeysPort

ROLES = ("user", "deployer", "admin")
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Data directory of the node.  [default: the running node's, else as for 'fornada serve']",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def keys() -> None:
    """Create, list and revoke keys.

    As long as there is none a node is open to everybody on its machine. From the first one on every request needs a key. A change counts
    at once, also for a node that runs.

    \b
    Example:
      fornada keys create --account research --role user
    """


@keys.command()
@click.option("--account", required=True, metavar="ID", help="Account that the key acts for.")
@click.option("--role", required=True, type=click.Choice(ROLES), help="user runs models; deployer also deploys; admin everything.")
@click.option("--rpm", type=click.IntRange(min=0), default=0, metavar="N", help="Requests a minute that it may send; 0: no limit.")
@click.option("--neurons", type=click.FloatRange(min=0), default=0.0, metavar="N", help="Neurons a day (UTC) that it may use; 0: no limit.")
@click.option("--models", multiple=True, metavar="NAME,...", help="The models that it may run; unless said, all that its account may.")
@data_dir_option
@json_option
def create(account: str, role: str, rpm: int, neurons: float, models: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Create a key and print it. It is shown this once: what is kept can't be turned back into it.

    \b
    Example:
      fornada keys create --account research --role deployer
      export FORNADA_TOKEN=$(fornada keys create --account research --role user)
    """
    from fornada.core.keys import ROLES as KNOWN
    from fornada.core.keys import new_key
    from fornada.core.names import AccountId

    named = [name.strip() for words in models for name in words.split(",") if name.strip()]
    if models and not named:
        # Most likely a variable of a script that isn't set: such a key must not open everything.
        raise click.UsageError("--models names no model; leave it out for a key that may run all that its account may")
    try:
        key, text = new_key(
            AccountId(account),
            KNOWN[role],
            now=time.time(),
            chance=secrets.token_bytes,
            requests_per_minute=rpm,
            neurons_per_day=neurons,
            models=named,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with _keys(data_dir, make=True) as (port, folder):
        first = not port.keys()
        port.put_key(key)
        _note(folder, "createKey", key=key.id, account=key.account, role=role)
    if as_json:
        print_json({"id": key.id, "key": text, **_public(key)})
        return
    click.echo(text)
    click.echo(f"key {key.id} of account {account}, role {role}: keep it, it is shown this once", err=True)
    if first:
        click.echo("it is the first one: from now on every request needs a key", err=True)


@keys.command("list")
@data_dir_option
@json_option
def list_keys(data_dir: Path | None, as_json: bool) -> None:
    """List the keys, without their secrets.

    \b
    Example:
      fornada keys list
    """
    with _keys(data_dir) as (port, _):
        found = port.keys()
    if as_json:
        print_json({"keys": [{"id": key.id, **_public(key)} for key in found]})
        return
    columns = ["id", "account", "role", "rpm", "neurons", "models", "created", "state"]
    rows = [
        [
            key.id,
            key.account,
            key.role.name.lower(),
            str(key.requests_per_minute or "-"),
            f"{key.neurons_per_day:g}" if key.neurons_per_day else "-",
            ", ".join(key.models) or "all",
            ago(_time(key.created)),
            "valid" if key.valid else "revoked",
        ]
        for key in found
    ]
    print_table(columns, rows, empty="no keys: the node is open to everybody on its machine", spare=["created", "models"])


@keys.command()
@click.argument("id")
@data_dir_option
@json_option
def revoke(id: str, data_dir: Path | None, as_json: bool) -> None:
    """End a key, by its id or by the key itself. With the last one nobody comes in any more, until another is created.

    \b
    Example:
      fornada keys revoke 0123456789abcdef
    """
    from fornada.core.keys import id_of

    wanted = id_of(id)
    with _keys(data_dir, ending=True) as (port, folder):
        key = port.revoke_key(wanted, now=time.time())
        if key is not None:
            _note(folder, "revokeKey", key=key.id, account=key.account)
        left = [each for each in port.keys() if each.valid]  # noqa: SIM118 - no mapping
    if key is None:
        raise CommandFailed(f"there is no key '{wanted}' in {folder}; 'fornada keys list' shows all")
    if as_json:
        print_json({"id": key.id, **_public(key)})
        return
    click.echo(f"key {key.id} of account {key.account} is revoked")
    if not left:
        click.echo("no key is left: nobody can come in until you create one", err=True)


@keys.command()
@click.option("--yes", is_flag=True, help="Don't ask.")
@data_dir_option
@json_option
def forget(yes: bool, data_dir: Path | None, as_json: bool) -> None:
    """Delete all keys, and that there were any: a node on a loopback address is open again.

    \b
    Example:
      fornada keys forget --yes
    """
    with _keys(data_dir) as (port, folder):
        if not yes:
            click.confirm(f"Delete all keys of {folder}? Everybody on this machine may use a node without keys.", abort=True, err=True)
        count = port.forget_keys()
        _note(folder, "forgetKeys", keys=count)
    if as_json:
        print_json({"forgotten": count})
        return
    click.echo(f"forgot {count} key{'s' * (count != 1)}")


@contextmanager
def _keys(named: Path | None, *, make: bool = False, ending: bool = False) -> "Iterator[tuple[KeysPort, Path]]":
    """The keys of the data directory that is meant. `make`: it may be one that isn't there yet; `ending`: as in keys_of."""
    from fornada.app.keys import keys_of
    from fornada.core.errors import FornadaError

    folder = named or meant()
    if not make and not (folder / "store.sqlite").exists():
        raise CommandFailed(f"there are no keys in {folder}: no node has used it yet; --data-dir names the data directory of a node")
    try:
        with keys_of(folder, ending=ending) as port:
            yield port, folder
    except FornadaError as error:
        raise CommandFailed(error.message) from None
    except OSError as error:
        raise CommandFailed(f"{error.filename or folder} can't be used: {error.strerror}; run this as the user of the node") from None


def _note(folder: Path, action: str, **fields: object) -> None:
    from fornada.app.keys import note

    note(folder, action, **fields)


def meant() -> Path:
    """Of the running node, else of one that ran, else where the next one would keep its data."""
    from fornada.app.config import environment

    environ = environment()
    running = [folder for folder, _ in live_nodes(environ)]
    candidates = data_dirs(environ)
    return next(iter([*running, *(folder for folder in candidates if os.path.isdir(folder))]), candidates[-1])


def _public(key: "Key") -> dict[str, Any]:
    return {
        "account": key.account,
        "role": key.role.name.lower(),
        "requests_per_minute": key.requests_per_minute,
        "neurons_per_day": key.neurons_per_day,
        "models": list(key.models),
        "created": _time(key.created),
        "revoked": None if key.revoked is None else _time(key.revoked),
    }


def _time(seconds: float) -> str:
    from fornada.telemetry.times import rfc3339

    return rfc3339(seconds)
