"""An environment for each peer, built from its lock and kept outside the tree's history, by what the lock says."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.servers import NotInstalled

LOCKS = Path(__file__).parent
CACHE = Path(os.environ.get("FORNADA_BENCH_CACHE") or Path(sys.prefix) / "bench-cache")
BUILD_S = 900.0


def environment(peer: str) -> Path:
    """The folder with the programs of `peer`. Raises NotInstalled with the last line of what went wrong."""
    lock = LOCKS / peer / "requirements.lock"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    place = CACHE / f"{peer}-{hashlib.sha256(lock.read_bytes() + version.encode()).hexdigest()[:16]}"
    if (place / "whole").exists():
        return place / "bin"
    uv = str(Path(sys.executable).parent / "uv")
    shutil.rmtree(place, ignore_errors=True)
    _done([uv, "venv", "--quiet", "--python", sys.executable, str(place)])
    _done([uv, "pip", "install", "--quiet", "--python", str(place / "bin/python"), "--require-hashes", "-r", str(lock)])
    (place / "whole").touch()
    return place / "bin"


def _done(command: list[str]) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from None
    if ended.returncode:
        lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        raise NotInstalled(lines[-1] if lines else f"{command[0]} ended with {ended.returncode}")
