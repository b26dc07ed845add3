"""[command] of model.toml, filled in: what to execute, and where its server will listen.

Placeholders in `args`: {socket} {port} {artifact:PATH} {scratch} {folder} {device} {threads}. Braces around anything that isn't a
word (JSON, for one) are left alone.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from fornada_sdk.runner.assignment import Assignment
from fornada_sdk.runner.engines import LoadError

HOST = "127.0.0.1"
DEFAULT_HEALTH = "/health"
SOCKET_PATH_LONGEST = 107
METHODS = ("GET", "POST", "PUT", "DELETE")
_PLACEHOLDER = re.compile(r"\{(artifact:[^{}]+|[a-z_]+)\}")


class Address(NamedTuple):
    """Where the server listens: a Unix socket's path, or a port of this machine."""

    socket: str = ""
    """Empty: it is a port."""
    port: int = 0

    def __str__(self) -> str:
        return self.socket or f"{HOST}:{self.port}"


class Route(NamedTuple):
    """A call of the server's, as [command] names it: "/sleep", or "POST /sleep"."""

    method: str
    path: str


class Line(NamedTuple):
    """[command], filled in."""

    argv: list[str]
    cwd: str
    address: Address
    health: Route
    health_given: bool
    """model.toml names the path; else it is a guess, and a server that doesn't know it is no worse for it."""
    sleep: Route | None
    wake: Route | None


def read_line(assignment: Assignment, scratch: str) -> Line:
    """Chooses a free port where none is named. Raises LoadError."""
    command = assignment.command
    args = command.get("args") or []
    if not args:
        raise LoadError("[command] args is empty: it must hold the command that starts the server")
    address, named = _address(command, scratch)
    values = {
        "socket": named,
        "port": str(address.port),
        "scratch": scratch,
        "folder": assignment.folder,
        "device": assignment.device_id,
        "threads": str(assignment.threads),
    }
    if not address.socket:
        del values["socket"]
    argv = [_filled(arg, values, assignment.artifacts) for arg in args]
    if "/" in argv[0]:
        argv[0] = os.path.join(assignment.folder, argv[0])
    health = command.get("health") or ""
    sleep, wake = command.get("sleep") or "", command.get("wake") or ""
    return Line(
        argv=argv,
        cwd=scratch,
        address=address,
        health=_route(health or DEFAULT_HEALTH, "GET", "health"),
        health_given=bool(health),
        sleep=_route(sleep, "POST", "sleep") if sleep else None,
        wake=_route(wake, "POST", "wake") if wake else None,
    )


def _address(command: Mapping[str, Any], scratch: str) -> tuple[Address, str]:
    """The address, and what {socket} stands for: the name alone where the whole path is too long for a socket."""
    name = command.get("socket") or ""
    if name:
        path = os.path.join(scratch, name)
        return Address(socket=path), path if len(os.fsencode(path)) <= SOCKET_PATH_LONGEST else name
    port = command.get("port") or 0
    # Somebody else's server on that port would get this model's requests.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            return Address(port=probe.getsockname()[1]), ""
        except OSError as error:
            raise LoadError(f"[command] port {port}: {error.strerror or error}") from None


def _filled(arg: str, values: Mapping[str, str], artifacts: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name.startswith("artifact:"):
            path = name[len("artifact:") :]
            if path not in artifacts:
                raise LoadError(f"[command] args: there is no artifact '{path}'; there are {', '.join(artifacts) or 'none'}")
            return artifacts[path]
        if name not in values:
            known = ", ".join(f"{{{each}}}" for each in [*values, "artifact:PATH"])
            raise LoadError(f"[command] args: {{{name}}} is no placeholder here; there are {known}")
        return values[name]

    return _PLACEHOLDER.sub(value, arg)


def _route(text: str, method: str, key: str) -> Route:
    words = text.split()
    if len(words) == 2 and words[0] in METHODS:
        method, words = words[0], words[1:]
    if len(words) != 1 or not words[0].startswith("/"):
        raise LoadError(f"[command] {key} = '{text}' must be a path, or a method and a path")
    return Route(method, words[0])
