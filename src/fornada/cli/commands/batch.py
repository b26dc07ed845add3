"""`fornada batch submit|status|result|cancel`: many requests as one job, which nobody has to wait for."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from fornada.cli.client import Node, run_path, with_node
from fornada.cli.completion import model_names
from fornada.cli.failures import CommandFailed
from fornada.cli.output import ago, json_text, key_values, print_json, print_json_line
from fornada.cli.progress import choose_display
from fornada.cli.request_input import NoJson, from_value, parsed, read_bytes, text_of

ASK_EVERY_S = 0.5
LONGEST_KEY = 255
ENDED = ("completed", "failed", "cancelled", "expired")


@click.group()
def batch() -> None:
    """Have many requests done when there is time for them, whatever is killed meanwhile.

    \b
    Example:
      fornada batch submit @fornada/minilm texts.jsonl
      fornada batch status JOB --wait
    """


@batch.command()
@click.argument("model", shell_complete=model_names)
@click.argument("path", metavar="FILE", type=click.Path())
@click.option("--key", metavar="TEXT", help="Idempotency key: the same file submitted with it again is the same job.")
@click.option("--wait", is_flag=True, help="Stay until the job has ended, and show how far it is.")
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def submit(node: Node, model: str, path: str, key: str | None, wait: bool, as_json: bool) -> None:
    """Hand in a file of requests; '-' is stdin. Prints the job's id: what was accepted is done.

    The file holds one JSON object a line, or a JSON array of them. `external_reference` in one of them comes back with its answer.

    \b
    Example:
      fornada batch submit @fornada/minilm texts.jsonl
    """
    body = from_value({"requests": _requests(path)}).content
    if key is not None and not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise click.UsageError(f"--key must be 1 to {LONGEST_KEY} printable characters of ASCII")
    headers = {"idempotency-key": key} if key else None
    said = _object(
        node.post_bytes(run_path(node.account, model), body, query={"queueRequest": "true"}, headers=headers, model=model), "result"
    )
    id = str(said.get("request_id", ""))
    if not wait:
        print_json(said) if as_json else click.echo(id)
        return
    if not as_json:
        click.echo(id)
    _finish(_wait(node, id), as_json=as_json)


@batch.command()
@click.argument("job")
@click.option("--wait", is_flag=True, help="Stay until the job has ended, and show how far it is.")
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def status(node: Node, job: str, wait: bool, as_json: bool) -> None:
    """Say how far a job is.

    \b
    Example:
      fornada batch status JOB
    """
    if wait:
        _finish(_wait(node, job), as_json=as_json)
    else:
        _show(node.get(job_path(job)), as_json=as_json)


@batch.command()
@click.argument("job")
@click.option("--out", "--output", "output", metavar="PATH", type=click.Path(), help="Write the answers to a file.")
@with_node
def result(node: Node, job: str, output: str | None) -> None:
    """Print the answers of a job, one JSON object a line, in the order of the requests.

    \b
    Example:
      fornada batch result JOB --out answers.jsonl
    """
    found = node.get(job_path(job))
    if job.startswith("batch_"):
        raise CommandFailed("that is a batch of OpenAI's API: its answers are the file output_file_id of /v1/batches/" + job)
    path = run_path(str(found["account"]), str(found["model"]))
    said = _object(node.post(path, {"request_id": job}), "result")
    if "responses" not in said:
        raise CommandFailed(f"the job is {said.get('status')} and has no answers yet; 'fornada batch status {job} --wait' waits for them")
    answers = sorted(said["responses"], key=lambda answer: int(answer["id"]))
    if output is None:
        for answer in answers:
            print_json_line(answer)
        return
    try:
        Path(output).write_text("".join(json_text(answer) + "\n" for answer in answers), encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{output} can't be written: {error.strerror or error}") from None
    click.echo(f"{output}: {len(answers)} answers")


@batch.command()
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print what the API answers.")
@with_node
def cancel(node: Node, job: str, as_json: bool) -> None:
    """End a job before its time. What it has answered already stays.

    \b
    Example:
      fornada batch cancel JOB
    """
    _show(node.post(f"{job_path(job)}/cancel"), as_json=as_json)


def job_path(job: str) -> str:
    if not job.strip("/.") or "/" in job:
        raise click.UsageError(f"'{job}' is no id of a job")
    return f"/api/v1/jobs/{quote(job, safe='')}"


def _requests(path: str) -> list[Any]:
    where = "standard input" if path == "-" else path
    content = read_bytes(path)
    found: Any
    try:
        found = parsed(content)
    except NoJson:
        found = [_request(line, number, where) for number, line in enumerate(text_of(content, where).split("\n"), 1) if line.strip()]
    else:
        found = found if isinstance(found, list) else [found]
    if len(found) == 1 and isinstance(found[0], dict) and list(found[0]) == ["requests"]:
        found = found[0]["requests"]  # the body that the API takes
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise click.UsageError(f"{where} must hold requests, each a JSON object: one a line, or an array of them")
    return found


def _request(line: str, number: int, where: str) -> Any:
    try:
        return parsed(line)
    except NoJson as error:
        raise click.UsageError(f"line {number} of {where} is no JSON ({error}); write one object a line, or an array of them") from None


def _wait(node: Node, id: str) -> dict[str, Any]:
    """The job when it has ended."""
    display = None
    try:
        while True:
            found = _object({"job": node.get(job_path(id))}, "job")
            if found.get("status") in ENDED:
                return found
            counts = found.get("counts") or {}
            total = max(1, len(found.get("items") or []))
            done = sum(int(counts.get(name, 0)) for name in ENDED)
            display = display or choose_display(str(found.get("model", "job")))
            display.show(str(found.get("status")), f"{done} of {total}", done / total)
            time.sleep(ASK_EVERY_S)
    finally:
        if display is not None:
            display.close()


def _finish(found: dict[str, Any], *, as_json: bool) -> None:
    _show(found, as_json=as_json)
    if found["status"] != "completed":
        raise click.exceptions.Exit(1)


def _show(found: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    counts = found.get("counts") or {}
    key_values(
        {
            "job": found.get("id"),
            "model": found.get("model"),
            "status": found.get("status"),
            "items": ", ".join(f"{count} {name}" for name, count in counts.items()),
            "accepted": ago(found.get("created_at")),
            "ended": ago(found["ended_at"]) if found.get("ended_at") else "",
        }
    )


def _object(answer: Any, name: str) -> dict[str, Any]:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, dict):
        raise CommandFailed("the node's answer has an unexpected shape; is it of another release than this command?")
    return found
