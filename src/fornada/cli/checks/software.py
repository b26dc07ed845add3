"""Python, uv, proxies and certificates: what environments of models are built with."""

import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from fornada.cli.checks.finding import Finding, fail, ok, warn
from fornada.cli.checks.machine import Machine
from fornada.cli.paths import unreachable

SUPPORTED = ((3, 11), (3, 13))
INTERPRETERS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
INDEXES = ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL")
CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def python(machine: Machine) -> Iterator[Finding]:
    running = f"{platform.python_implementation()} {platform.python_version()}"
    if SUPPORTED[0] <= sys.version_info[:2] <= SUPPORTED[1]:
        yield ok("python", f"{running} runs Fornada")
    else:
        yield fail("python", f"{running} runs Fornada", "install Fornada with Python 3.11, 3.12 or 3.13")
    search = machine.environ.get("PATH", "")
    found = [version for version in INTERPRETERS if shutil.which(f"python{version}", path=search)]
    yield ok("interpreters", f"models may ask for {', '.join(found) or 'the one that runs Fornada'} ([python] version)")


def uv(machine: Machine) -> Iterator[Finding]:
    try:
        version = importlib.metadata.version("uv")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    binary = Path(sys.executable).parent / "uv"
    found = str(binary) if binary.exists() else shutil.which("uv", path=machine.environ.get("PATH", ""))
    if found:
        yield ok("uv", f"{version or 'unknown version'} at {found}")
    else:
        yield fail("uv", "not found, and environments of models are built with it", "install Fornada again ('make install'): it brings uv")


def network(machine: Machine) -> Iterator[Finding]:
    """Proxies, indexes and certificates. Names only: the values may hold credentials."""
    environ = {name.upper(): value for name, value in machine.environ.items() if value}
    named = [name for name in PROXIES if name in environ]
    if named and not {"localhost", "127.0.0.1", "*"} & {host.strip() for host in environ.get("NO_PROXY", "").split(",")}:
        yield warn(
            "proxy",
            f"{', '.join(named)} set, NO_PROXY doesn't name localhost",
            "add localhost,127.0.0.1 to NO_PROXY, or clients ask the proxy",
        )
    else:
        yield ok("proxy", f"{', '.join(named)} set" if named else "none set")
    indexes = [name for name in INDEXES if name in environ]
    yield ok("package index", f"{', '.join(indexes)} set" if indexes else "uv's own ([provision] index changes it)")
    for name in CERTIFICATES:
        value = environ.get(name)
        if value and (reason := unreachable(value)):
            yield fail("certificates", f"{name} names {value}: {reason}", f"correct {name}, or unset it")
            return
    set_names = [name for name in CERTIFICATES if name in environ]
    yield ok("certificates", f"{', '.join(set_names)} set" if set_names else "the system's")
    mirror = environ.get("FORNADA_MIRROR", "")
    if mirror and "://" not in mirror and not os.path.isdir(mirror):
        yield fail(
            "mirror", f"FORNADA_MIRROR names {mirror}, which is no directory that can be read", "correct FORNADA_MIRROR, or unset it"
        )
    elif mirror:
        yield ok("mirror", "FORNADA_MIRROR is set: artifacts are asked for there first")
