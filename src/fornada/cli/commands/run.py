"""`fornada run`."""

import errno
import json
import mimetypes
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fornada.cli import request_input
from fornada.cli.client import Answer, Node, model_path, run_path, with_node
from fornada.cli.completion import model_names
from fornada.cli.failures import CommandFailed, Refused
from fornada.cli.output import print_json
from fornada.cli.paths import unreachable
from fornada.cli.progress import watching
from fornada.core.errors import Busy, DeadlinePassed

if TYPE_CHECKING:
    from fornada.cli.answers import shapes

Asked = TypeVar("Asked")


@click.command()
@click.argument("model", shell_complete=model_names)
@click.argument("source", required=False, metavar="[-]")
@click.option("--input", "text", metavar="JSON", help="The input as JSON; '-' reads it from stdin.")
@click.option(
    "--file",
    "path",
    metavar="PATH",
    type=click.Path(),
    help="A file as the model's one input (a picture, sound), or a JSON object; '-' is stdin.",
)
@click.option("-i", "pairs", multiple=True, metavar="KEY=VALUE", help="One field of the input; JSON where it parses, @PATH reads a file.")
@click.option("--stream/--no-stream", default=None, help="Show the answer while it is made.  [default: on a terminal, of generated text]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; with --stream one line per item.")
@click.option(
    "--out",
    "--output",
    "output",
    metavar="PATH",
    type=click.Path(),
    help="Write the result to a file: a picture or sound that was made; what was found, drawn on the picture that was sent "
    "(.png, .jpg, .webp); subtitles (.vtt); else JSON.",
)
@with_node
def run(
    node: Node,
    model: str,
    source: str | None,
    text: str | None,
    path: str | None,
    pairs: tuple[str, ...],
    stream: bool | None,
    as_json: bool,
    output: str | None,
) -> None:
    """Send one request to a model; it is loaded if need be.

    \b
    Example:
      fornada run @fornada/coco-ssd --file coffee.jpg --out found.png
      fornada run @fornada/whisper-tiny-en --file speech.wav
      fornada run @fornada/smollm2-135m-instruct -i prompt='Why is the sky blue?'
      echo '{"text": "hello"}' | fornada run MODEL -
    """
    if source not in (None, "-"):
        raise click.UsageError(f"'{source}': the input is given by --input, --file, -i, or '-' for stdin")
    body = request_input.read(text=text, path=path, pairs=pairs, stdin=source == "-")
    if stream and body.value is None and body.type == "application/json":
        raise click.UsageError("--stream needs a JSON object or a file as input")
    if stream and output:
        raise click.UsageError("--out and --stream exclude one another")
    if output:
        _refuse_unwritable(output)
    path_of = run_path(node.account, model)
    with ExitStack() as open_answer:
        with watching(node, model, quiet=as_json and not sys.stderr.isatty()):
            found = node.model(model)
            task = str(found.get("task") or "")
            cold = found.get("state") != "ready"
            if stream is None and not output:
                # Events of a stream aren't for people: whoever asks for one in the input is shown what they say.
                asked_for = body.value is not None and body.value.get("stream") is True
                stream = asked_for or (not as_json and sys.stdout.isatty() and _is_a_talk(task, body))
            if stream:
                asked = body if body.value is None else request_input.from_value({**body.value, "stream": True})
                query = {"stream": "true"} if body.value is None else {}
                items = _loaded_if_need_be(
                    lambda: open_answer.enter_context(
                        node.stream("POST", path_of, body=asked.content, type=asked.type, model=model, query=query)
                    ),
                    node,
                    model,
                    cold=cold,
                )
            else:
                answer = _loaded_if_need_be(
                    lambda: node.request(path_of, body.content, type=body.type, model=model), node, model, cold=cold
                )
        if not stream:
            _show_answer(answer, body, task, as_json, output)
        elif items.type == "text/event-stream":
            from fornada.cli.answers.streaming import show_stream

            show_stream(items, model, as_json)
        else:
            _show_answer(items.read(), body, task, as_json, output)  # a model that doesn't stream answers at once


def _loaded_if_need_be(ask: Callable[[], Asked], node: Node, model: str, *, cold: bool) -> Asked:
    """What the node answers. The request itself loads the model, so that nothing is loaded for an input that the model doesn't take."""
    try:
        return ask()
    except Refused as refusal:
        # The time limit is the request's, and building an environment or fetching weights may take longer. That goes on: wait for
        # it, and ask once more, with all of the time for the model's work. A model without a queue refuses whoever comes before it is ready.
        if not cold or refusal.code not in (DeadlinePassed.code, Busy.code):
            raise
    node.post(model_path(model, "load"), model=model)
    return ask()


def _refuse_unwritable(path: str) -> None:
    """What can be known before a model has worked for it."""
    if os.path.isdir(path):
        raise _unwritable(path, os.strerror(errno.EISDIR))
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise _unwritable(path, unreachable(folder) or os.strerror(errno.ENOTDIR))
    if not os.access(path if os.path.lexists(path) else folder, os.W_OK):
        raise _unwritable(path, os.strerror(errno.EACCES))


def _unwritable(path: str, reason: str) -> CommandFailed:
    return CommandFailed(f"{path}: {reason}; --out must name a file that can be written")


def _is_a_talk(task: str, body: request_input.Body) -> bool:
    """One text, which a person reads while it is written. Several at once would be mixed up."""
    return task == "text-generation" and body.value is not None and "stream" not in body.value and body.value.get("n") in (None, 1)


def _show_answer(answer: Answer, body: request_input.Body, task: str, as_json: bool, output: str | None) -> None:
    if answer.type != "application/json":
        _show_bytes(answer, output)
        return
    from fornada.cli.answers import shapes, tables

    said = answer.json()
    if isinstance(said, dict) and said.get("nonfinite"):
        click.echo("fornada: the answer held numbers that are not finite; they are shown as null", err=True)
    result = said["result"] if isinstance(said, dict) and "result" in said and "success" in said else said
    found = shapes.read(result, task=task)
    if output:
        _save(output, result, found, body)
        if isinstance(found, shapes.Encoded) or not _is_made_of_it(output):
            return
    if as_json:
        print_json(result)
    elif isinstance(found, shapes.Encoded):
        _show_bytes(Answer(found.type, found.content), None)
    else:
        tables.show(found, asked=body.value)


def _is_made_of_it(path: str) -> bool:
    """Whether the file holds something else than the answer, which is shown beside it."""
    from fornada.cli.answers.drawing import is_picture_path

    return is_picture_path(path) or path.endswith(".vtt")


def _save(path: str, result: Any, found: "shapes.Answer", body: request_input.Body) -> None:
    from fornada.cli.answers import shapes
    from fornada.cli.answers.drawing import annotated, is_picture_path

    if isinstance(found, shapes.Encoded) and not path.endswith(".json"):
        _write(path, found.content)
    elif is_picture_path(path):
        if not isinstance(found, shapes.Labels | shapes.Pose | shapes.ReadText | shapes.Segmentation) or not body.picture():
            raise CommandFailed(f"nothing can be drawn into {path}: a picture must be sent, and something found in it; --out answer.json")
        _write(path, annotated(body.picture(), found, path=path))
    elif path.endswith(".vtt"):
        if not isinstance(found, shapes.Speech):
            raise CommandFailed(f"there are no subtitles for {path}: the model wrote down no speech; --out answer.json saves its answer")
        _write(path, found.vtt.encode())
    else:
        _write(path, (json.dumps(result, ensure_ascii=False) + "\n").encode())


def _show_bytes(answer: Answer, output: str | None) -> None:
    if output and output != "-":
        _write(output, answer.content)
    elif answer.type.startswith("text/"):
        from fornada.cli.answers.tables import shown

        click.echo(shown(answer.content.decode("utf-8", "replace")))
    elif sys.stdout.isatty() and not output:
        suffix = mimetypes.guess_extension(answer.type) or ".bin"
        raise CommandFailed(
            f"the answer is {len(answer.content)} bytes of {answer.type}, nothing for a terminal; --out answer{suffix} saves it"
        )
    else:
        sys.stdout.buffer.write(answer.content)
        sys.stdout.flush()


def _write(path: str, content: bytes) -> None:
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from None
    click.echo(f"{path}: {len(content)} bytes", err=True)
