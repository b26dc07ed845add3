"""`fornada why`."""

import click

from fornada.cli.client import Node, model_path, with_node
from fornada.cli.completion import model_names
from fornada.cli.explanation import headline, paragraphs
from fornada.cli.output import hanging, print_json
from fornada.cli.printable import printable


@click.command()
@click.argument("model", shell_complete=model_names)
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers, which is all that is known.")
@with_node
def why(node: Node, model: str, as_json: bool) -> None:
    """Say why a model is loaded or not, what comes next, and what you can do.

    \b
    Example:
      fornada why @local/echo
    """
    found = node.get(model_path(model, "why"), model=model)
    if as_json:
        print_json(found)
        return
    click.echo(hanging(printable(headline({"model": model, **found})), indent=0))
    told = list(paragraphs(found, model))
    width = max((len(label) for label, _ in told), default=0) + 2
    for label, lines in told:
        for number, line in enumerate(lines):
            start = f"{'' if number else label:<{width}}"
            click.echo(start + hanging(printable(line), indent=width))
