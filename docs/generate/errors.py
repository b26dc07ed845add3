"""docs/reference/errors.md from core.errors and edge.problems."""

from collections.abc import Iterator

from docs.generate.markdown import code, table
from fornada.cli.failures import ADVICE
from fornada.core import errors
from fornada.edge.problems import MODEL_REFUSAL_CODE, ROUTE_BELOW_ACCOUNT_CODE, Style, status_of

INTRODUCTION = """\
# Errors

Every refusal says whose fault it is and whether trying again helps. The code is the same on every route; the body has the form of the API
that was called:

- under `/client/v4`: `{"result": {}, "success": false, "errors": [{"code", "message"}], "messages": []}`
- everywhere else the same with `"type": "error"` and `"error": {"message", "type", "param", "code"}` added, which OpenAI's and Anthropic's
  clients read

Where waiting helps, `Retry-After` says how long; where it never does, `x-should-retry: false` keeps clients from trying. A failure in the
middle of a stream is one `error` event with the second body; then the connection closes, without `[DONE]`.

The command line prints an error as one line and exits with 1: what happened, `[code, whose fault]`, what to do.
"""
GROUPS: list[tuple[type[errors.FornadaError], str]] = [
    (errors.CallerFault, "The request's fault: it can't be served as it is"),
    (errors.NoCapacity, "The node's fault, for now"),
    (errors.ModelFault, "The model's fault: its author must change something"),
    (errors.InternalFault, "A bug in Fornada"),
]


def page() -> str:
    parts = [INTRODUCTION]
    for group, heading in GROUPS:
        rows = [_row(error) for error in family(group) if "code" in error.__dict__]
        parts += [f"## {heading}\n", table(["error", "code", "HTTP", "again?", "meaning", "what to do"], rows)]
    parts.append("## Codes without an error of their own\n")
    parts.append(
        table(
            ["code", "meaning"],
            [
                (code(str(MODEL_REFUSAL_CODE)), "The model's own code refused, with a status of its own choice."),
                (code(str(ROUTE_BELOW_ACCOUNT_CODE)), "The account exists, the route below it doesn't."),
            ],
        )
    )
    return "\n".join(parts)


def family(error: type[errors.FornadaError]) -> Iterator[type[errors.FornadaError]]:
    yield error
    for child in error.__subclasses__():
        yield from family(child)


def _row(error: type[errors.FornadaError]) -> tuple[str, ...]:
    here, elsewhere = status_of(error, Style.ENVELOPE), status_of(error, Style.SUPERSET)
    status = str(here) if here == elsewhere else f"{here}; {elsewhere} outside `/client/v4`"
    again = "no" if error.retry is False or issubclass(error, errors.CallerFault) else "yes"
    advice = ADVICE.get(error.code, "").replace("'", "`")
    return (code(error.__name__), code(str(error.code)), status, again, (error.__doc__ or "").splitlines()[0], advice)
