"""`fornada run`."""

import json
import mimetypes
import sys
from pathlib import Path
from typing import Any

import click

from fornada.cli import request_input, results
from fornada.cli.client import Answer, Node, Stream, model_path, run_path, with_node
from fornada.cli.failures import CommandFailed, refusal
from fornada.cli.output import print_json, print_json_line
from fornada.cli.progress import watching

LOAD_FIRST = frozenset({"stopped", "pending", "asleep", "failed"})


@click.command()
@click.argument("model")
@click.argument("source", required=False, metavar="[-]")
@click.option("--input", "text", metavar="JSON", help="The input as JSON; '-' reads it from stdin.")
@click.option("--file", "path", metavar="PATH", help="A file as the model's one input (a picture, say), or a JSON object; '-' is stdin.")
@click.option("-i", "pairs", multiple=True, metavar="KEY=VALUE", help="One field of the input; JSON where it parses, @PATH reads a file.")
@click.option("--stream", is_flag=True, help="Show the answer while it is made.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; with --stream one line per item.")
@click.option("--output", "output", metavar="PATH", help="Write the result to a file: for pictures and sound.")
@with_node
def run(
    node: Node,
    model: str,
    source: str | None,
    text: str | None,
    path: str | None,
    pairs: tuple[str, ...],
    stream: bool,
    as_json: bool,
    output: str | None,
) -> None:
    """Send one request to a model; it is loaded if need be.

    \b
    Example:
      fornada run @local/echo -i name=world -i 'numbers=[1,2]'
      fornada run @cf/microsoft/resnet-50 --file coffee.png
      echo '{"text": "hello"}' | fornada run MODEL -
    """
    if source not in (None, "-"):
        raise click.UsageError(f"'{source}': the input is given by --input, --file, -i, or '-' for stdin")
    body = request_input.read(text=text, path=path, pairs=pairs, stdin=source == "-")
    if stream and body.value is None and body.type == "application/json":
        raise click.UsageError("--stream needs a JSON object or a file as input")
    with watching(node, model, quiet=as_json and not sys.stderr.isatty()):
        _make_ready(node, model)
        if not stream:
            answer = node.request(run_path(node.account, model), body.content, type=body.type, model=model)
    if stream:
        asked = body if body.value is None else request_input.from_value({**body.value, "stream": True})
        query = {"stream": "true"} if body.value is None else {}
        with node.stream("POST", run_path(node.account, model), body=asked.content, type=asked.type, model=model, query=query) as items:
            _show_stream(items, model, as_json, output)
    else:
        _show_answer(answer, as_json, output)


def _make_ready(node: Node, model: str) -> None:
    # A request has the model's own time limit, and building an environment may take longer than that: load first, then ask.
    if node.model(model).get("state") in LOAD_FIRST:
        node.post(model_path(model, "load"), model=model)


def _show_answer(answer: Answer, as_json: bool, output: str | None) -> None:
    if answer.type != "application/json":
        _show_bytes(answer, output)
        return
    body = answer.json()
    if isinstance(body, dict) and body.get("nonfinite"):
        click.echo("fornada: the answer held numbers that are not finite; they are shown as null", err=True)
    result = body["result"] if isinstance(body, dict) and "result" in body and "success" in body else body
    if output:
        _write(output, (json.dumps(result, ensure_ascii=False) + "\n").encode())
    elif as_json:
        print_json(result)
    else:
        results.show(result)


def _show_bytes(answer: Answer, output: str | None) -> None:
    if output and output != "-":
        _write(output, answer.content)
    elif answer.type.startswith("text/"):
        click.echo(results.shown(answer.content.decode("utf-8", "replace")))
    elif sys.stdout.isatty() and not output:
        suffix = mimetypes.guess_extension(answer.type) or ".bin"
        raise CommandFailed(
            f"the answer is {len(answer.content)} bytes of {answer.type}, nothing for a terminal; --output answer{suffix} saves it"
        )
    else:
        sys.stdout.buffer.write(answer.content)
        sys.stdout.flush()


def _write(path: str, content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror or error}; --output must name a file that can be written") from None
    click.echo(f"{path}: {len(content)} bytes", err=True)


def _show_stream(items: Stream, model: str, as_json: bool, output: str | None) -> None:
    if items.type != "text/event-stream":
        _show_answer(items.read(), as_json, output)  # a model that doesn't stream answers at once
        return
    if output:
        raise click.UsageError("--output and --stream exclude one another")
    line_open = complete = False
    for name, data in items.events():
        if data == "[DONE]":
            complete = True
            break
        item = _item(data)
        if name == "error" or (isinstance(item, dict) and set(item) & {"error", "errors"} and item.get("success") is False):
            if line_open:
                click.echo()
            raise _stream_error(item, model)
        if as_json:
            print_json_line(item)
            continue
        text, continues = results.piece(item)
        if line_open and not continues:
            click.echo()
        click.echo(results.shown(text), nl=not continues)
        line_open = continues
    if line_open:
        click.echo()
    if not complete:
        raise CommandFailed(
            f"the stream ended before the model had finished (the node's fault, or the network's); 'fornada logs {model}' may say more"
        )


def _item(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


def _stream_error(item: Any, model: str) -> CommandFailed:
    if isinstance(item, dict):
        errors = item.get("errors")
        first = errors[0] if isinstance(errors, list) and errors else item.get("error", item)
        if isinstance(first, dict):
            return refusal(first, model=model)
    return CommandFailed(f"the stream broke: {item}; 'fornada logs {model}' may say more")
