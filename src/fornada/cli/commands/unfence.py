"""`fornada unfence`."""

from urllib.parse import quote

import click

from fornada.cli.client import Node, with_node
from fornada.cli.failures import CommandFailed, Refused
from fornada.cli.output import print_json
from fornada.cli.printable import printable
from fornada.core.errors import BadRequest


@click.command()
@click.argument("device")
@click.option("--json", "as_json", is_flag=True, help="Print the device as the API describes it.")
@with_node
def unfence(node: Node, device: str, as_json: bool) -> None:
    """Let models use a device again that was fenced after a fault of its own.

    Do it when the cause is gone: after a reset of the card, say. 'fornada top' shows the devices and why one is fenced.

    \b
    Example:
      fornada unfence cuda:0
    """
    try:
        found = node.patch(f"/api/v1/devices/{quote(device, safe=':')}", {"unfence": True})
    except Refused as refusal:
        if refusal.code != BadRequest.code:
            raise
        raise CommandFailed(f"{device} can't be unfenced: 'fornada top --once' shows the devices, and which are fenced") from None
    if as_json:
        print_json(found)
    else:
        click.echo(printable(f"{found.get('id', device)}: {found.get('state', '')}"))
