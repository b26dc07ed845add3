"""`fornada deploy`."""

import time
from pathlib import Path
from typing import Any

import click

from fornada.cli import bundle
from fornada.cli.client import Node, model_path, with_node
from fornada.cli.commands.life import summary
from fornada.cli.commands.nodes import listed
from fornada.cli.failures import CommandFailed, Refused
from fornada.cli.output import print_json, shorten, version_digits
from fornada.cli.printable import printable
from fornada.cli.progress import watching

ASK_EVERY_S = 0.3


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="Name of the model.  [default: what model.toml says, else @local/DIR]")
@click.option("--label", type=click.Choice(["stable", "canary"]), default="stable", show_default=True, help="What the version becomes.")
@click.option("--wait", "wait", is_flag=True, help="Wait until the version is ready; fail where it can't be.")
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def deploy(node: Node, folder: Path, name: str | None, label: str, wait: bool, as_json: bool) -> None:
    """Make a folder a model of the node, or a new version of one.

    The folder is packed and sent; the node locks its dependencies and builds. Where a version serves already, it goes on until the
    new one is warm; one that can't be loaded changes nothing.

    \b
    Example:
      fornada deploy examples/echo
      fornada deploy my-model --name @acme/my-model --wait
    """
    if wait and label != "stable":
        raise click.UsageError("--wait is for the stable version; a canary is loaded by its first request")
    packed = bundle.pack(folder, largest=_largest(node))
    model = name or packed.name or bundle.default_name(folder)
    with watching(node, model, quiet=not wait):
        done = node.put(model_path(model), packed.content, type="application/gzip", model=model, query={"label": label})
        model = str(done.get("name", model))
        version = str(done.get("version", ""))
        found = _wait(node, model, version) if wait else None
    if as_json:
        print_json(found or done)
        return
    click.echo(f"{model}: version {version} ({len(packed.files)} file{'s' * (len(packed.files) != 1)}, {len(packed.content)} bytes)")
    if found:
        click.echo(printable(summary(found)))
    else:
        click.echo(f"{done.get('state', '')}; 'fornada models {model}' shows how it goes, --wait waits", err=True)


def _largest(node: Node) -> int:
    """The node's own bound where it tells one: it may have been raised."""
    try:
        told = next((entry.get("max_bundle_bytes") for entry in listed(node.get("/api/v1/nodes"))), None)
    except Refused:  # an administrator's question; the node itself refuses what is too large, too
        told = None
    return told if isinstance(told, int) and told > 0 else bundle.LARGEST


def _wait(node: Node, model: str, version: str) -> dict[str, Any]:
    """The model once `version` is what answers. The node bounds the wait: a load that makes no progress fails."""
    try:
        node.post(model_path(model, "load"), model=model)
    except Refused:
        _fail_beside_another(node.model(model), version)
        raise
    while True:
        found = node.model(model)
        if found.get("version") == version:
            return found
        _fail_beside_another(found, version)
        _fail_if_superseded(found, version)
        time.sleep(ASK_EVERY_S)


def _fail_beside_another(found: dict[str, Any], version: str) -> None:
    """Raises CommandFailed where `version` failed and another one serves: then nothing is lost, which is worth saying."""
    serving = found.get("version")
    for entry in found.get("versions") or []:
        if entry.get("version") == version != serving and entry.get("state") == "failed":
            raise CommandFailed(
                f"version {version_digits(version)} of {found.get('name')} can't be loaded: {shorten(str(entry.get('why')), 300)} "
                f"(the model's fault); version {version_digits(serving)} goes on serving; 'fornada logs {found.get('name')}' shows more; "
                "mend it and deploy again"
            )


def _fail_if_superseded(found: dict[str, Any], version: str) -> None:
    """Raises CommandFailed where somebody deployed, rolled back or removed meanwhile: `version` would be waited for in vain."""
    wanted = next((entry.get("version") for entry in found.get("versions") or [] if "stable" in (entry.get("labels") or [])), version)
    if wanted != version:
        raise CommandFailed(
            f"version {version_digits(version)} of {found.get('name')} is no longer the wanted one: version {version_digits(wanted)} has "
            f"taken its place (another deploy's doing); 'fornada versions {found.get('name')}' shows all"
        )
