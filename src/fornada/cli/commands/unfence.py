"""`fornada unfence`."""

from urllib.parse import quote

import click

from fornada.cli.client import Node, with_node
from fornada.cli.output import print_json
from fornada.cli.printable import printable


@click.command()
@click.argument("device")
@click.option("--json", "as_json", is_flag=True, help="Print the device as the API describes it.")
@with_node
def unfence(node: Node, device: str, as_json: bool) -> None:
    """Let models use a device again that was fenced after a fault of its own.

    Do it when the cause is gone: after a reset of the card, say. 'fornada why MODEL' shows the devices and why one is fenced.

    \b
    Example:
      fornada unfence cuda:0
    """
    found = node.patch(f"/api/v1/devices/{quote(device, safe=':')}", {"unfence": True})
    if as_json:
        print_json(found)
    else:
        click.echo(printable(f"{found.get('id', device)}: {found.get('state', '')}"))
