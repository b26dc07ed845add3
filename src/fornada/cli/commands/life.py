"""`fornada load | unload | sleep | pin | reset`: each answers when it is true."""

from typing import Any

import click

from fornada.cli.client import Node, model_path, with_node
from fornada.cli.completion import model_names
from fornada.cli.numbers import Finite
from fornada.cli.output import bytes_text, print_json, shorten
from fornada.cli.printable import printable
from fornada.cli.progress import watching

JSON = click.option("--json", "as_json", is_flag=True, help="Print the model as the API describes it.")


@click.command()
@click.argument("model", shell_complete=model_names)
@JSON
@with_node
def load(node: Node, model: str, as_json: bool) -> None:
    """Load a model now, and wait until it is ready.

    If you leave, the load goes on.

    \b
    Example:
      fornada load @local/echo
    """
    with watching(node, model):
        found = node.post(model_path(model, "load"), model=model)
    _say(found, as_json)


@click.command()
@click.argument("model", shell_complete=model_names)
@click.option("--grace", type=Finite(min=0), metavar="S", help="Seconds that running requests get.  [default: [node] drain_s]")
@JSON
@with_node
def unload(node: Node, model: str, grace: float | None, as_json: bool) -> None:
    """End a model's processes; the next request or load starts it again.

    \b
    Example:
      fornada unload @local/echo
      fornada unload @local/echo --grace 0
    """
    query = {} if grace is None else {"grace": f"{grace:g}"}
    _say(node.post(model_path(model, "unload"), model=model, query=query), as_json)


@click.command()
@click.argument("model", shell_complete=model_names)
@JSON
@with_node
def sleep(node: Node, model: str, as_json: bool) -> None:
    """Let a model give its device memory back, keeping what makes it quick to wake.

    A model can whose code defines sleep and wake, or whose server does ([command] sleep and wake). Of any other the node says that it
    can't. The next request, or `fornada load`, wakes it.

    \b
    Example:
      fornada sleep @local/echo
    """
    _say(node.post(model_path(model, "sleep"), model=model), as_json)


@click.command()
@click.argument("model", shell_complete=model_names)
@click.option("--off", is_flag=True, help="Undo it.")
@JSON
@with_node
def pin(node: Node, model: str, off: bool, as_json: bool) -> None:
    """Keep a model: it is never evicted nor left idle until unpinned.

    \b
    Example:
      fornada pin @local/echo
      fornada pin @local/echo --off
    """
    found = node.post(model_path(model, "pin"), {"pinned": False} if off else {"pinned": True}, model=model)
    if as_json:
        print_json(found)
    else:
        click.echo(f"{found.get('name', model)}: {'pinned' if found.get('pinned') else 'no longer pinned'}")


@click.command()
@click.argument("model", shell_complete=model_names)
@JSON
@with_node
def reset(node: Node, model: str, as_json: bool) -> None:
    """Forget a model's failures, so that it may be tried again at once.

    \b
    Example:
      fornada reset @local/echo
    """
    _say(node.post(model_path(model, "reset"), model=model), as_json)


def _say(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        click.echo(printable(summary(found)))


def summary(found: dict[str, Any]) -> str:
    """`@a/b: ready, pid 4711 on cpu, 120 MiB`; a process that isn't ready says what it is: of a version that leaves, mostly."""
    said = f"{found.get('name', '')}: {found.get('state', '')}"
    for instance in found.get("instances") or []:
        if found.get("state") == "ready":
            said += f", pid {instance.get('pid')} on {instance.get('device')}"
            said += f", {instance['state']}" if instance.get("state") not in (None, "ready") else ""
            said += f", {bytes_text(instance['resident_bytes'])}" if instance.get("resident_bytes") else ""
    return said + (f" ({shorten(str(found['why']), 200)})" if found.get("why") and found.get("state") != "ready" else "")
