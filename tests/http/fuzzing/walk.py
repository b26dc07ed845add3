"""Schemathesis over a running node: `python walk.py URL EXAMPLES`. One line for each kind of fault, and exit code 1 if there is one.

It runs in an environment of its own (requirements.lock) and imports nothing of ours.
"""

import sys
from urllib.parse import parse_qsl, urlsplit

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import SchemathesisConfig

UNCHECKED = ("positive_data_acceptance", "ignored_auth")
"""A name that a schema allows needn't be that of a model; and without keys nobody is asked for one."""
ENDLESS = ("/api/v1/events",)
REFUSALS = (400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, "5xx")
"""Schemathesis' own list, and 413: whoever sends a list beyond its most items may send a body beyond its most bytes, which is told first."""
REAL = {"model": "@fuzz/custom", "name": "@fuzz/custom", "account": "local", "device": "cuda:0"}


@schemathesis.serializer("application/gzip")
def as_it_is(_context, value):
    """A bundle of random bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


def main(url: str, examples: int) -> int:
    load_all_checks()
    unchecked = [check for check in CHECKS.get_all() if check.__name__ in UNCHECKED]
    faults: dict[tuple[str, str], str] = {}
    tried = 0
    config = SchemathesisConfig.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": list(REFUSALS)}}})
    for found in schemathesis.openapi.from_url(f"{url}/openapi.json", config=config).get_all_operations():
        operation = found.ok()
        if operation.path not in ENDLESS:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                tried += walk(operation, mode, examples, unchecked, faults)
    for (label, kind), words in faults.items():
        print(f"{label}: {kind}: {' '.join(words.split())[:2000]}")
    print(f"{tried} requests, {len(faults)} faults")
    return 1 if faults else 0


def walk(operation, mode, examples, unchecked, faults) -> int:
    """Puts what was wrong with the answers to one operation's requests into `faults`; the number of requests."""
    tried = 0

    def attempt(case) -> None:
        nonlocal tried
        tried += 1
        if tried % 2 and mode is GenerationMode.POSITIVE:  # so that the requests come further than to the refusal of a name
            case.path_parameters.update({name: REAL[name] for name in case.path_parameters if name in REAL})
        status = 0
        try:
            response = case.call(timeout=60)
            status = response.status_code
            case.validate_response(response, excluded_checks=unchecked)
        except BaseExceptionGroup as group:
            found = group.exceptions
        except (AssertionError, OSError) as fault:
            found = (fault,)
        else:
            return
        for fault in found:
            if type(fault).__name__ == "AcceptedNegativeData" and has_empty(response.request.url):
                continue  # an empty parameter means its default, whatever its type
            faults.setdefault((operation.label, type(fault).__name__), f"{status}: {fault}\n{case.as_curl_command()[:1500]}")

    quietly = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        quietly(given(operation.as_strategy(generation_mode=mode))(attempt))()
    except Unsatisfiable:
        pass  # nothing is wrong for such an operation
    return tried


def has_empty(url: str) -> bool:
    """As it was sent: of an object without values or a list of one empty text nothing else is left. What came twice is no default."""
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    names = [name for name, _ in pairs]
    return any(value == "" and names.count(name) == 1 for name, value in pairs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
