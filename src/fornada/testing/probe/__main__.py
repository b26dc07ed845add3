"""python -m fornada.testing.probe DIR --name @test/a --set load_s=3 --serving idle_timeout_s=2 --resources memory=64MiB"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fornada.testing.probe.writer import Refused, value_of, write_probe

REPEATED = ("--set", "--serving", "--resources", "--dependency")


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the copy and prints its folder. 0, or 2 with one line that says what is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m fornada.testing.probe", description="Writes a copy of the probe model, ready to deploy."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="where the copy goes; made where it is missing")
    parser.add_argument("--name", default="@local/probe")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="[settings]")
    parser.add_argument("--serving", action="append", default=[], metavar="KEY=VALUE", help="[serving]")
    parser.add_argument("--resources", action="append", default=[], metavar="KEY=VALUE", help="[resources]")
    parser.add_argument("--dependency", action="append", default=[], metavar="NAME==VERSION", help="[python] dependencies")
    given = parser.parse_args(_one_value_each(sys.argv[1:] if arguments is None else arguments))
    try:
        write_probe(
            given.folder,
            name=given.name,
            settings=_pairs("--set", given.settings),
            serving=_pairs("--serving", given.serving),
            resources=_pairs("--resources", given.resources),
            dependencies=given.dependency,
        )
    except (Refused, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(given.folder)
    return 0


def _one_value_each(arguments: Sequence[str]) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`; argparse's own lists would swallow a DIR that follows."""
    found: list[str] = []
    flag = ""
    for argument in arguments:
        if argument in REPEATED:
            flag = argument
        elif argument.startswith("-") or "=" not in argument:
            flag = ""
        elif flag and found[-1] != flag:
            found.append(flag)
        found.append(argument)
    return found


def _pairs(flag: str, pairs: Sequence[str]) -> dict[str, Any]:
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise Refused(f"{flag} {pair}: write KEY=VALUE")
        values[key.strip()] = value_of(text)
    return values


if __name__ == "__main__":
    sys.exit(main())
