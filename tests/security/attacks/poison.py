"""A wheel whose code attacks wherever it is run: when an interpreter starts (a .pth file), and when it is imported."""

import json
from pathlib import Path

from tests.harness.bundles import archive
from tests.harness.wheels import make_wheel
from tests.security.attacks.bundle import shared_files
from tests.security.attacks.verdict import MARK, Told

NOT_AT_IMPORT = (17, 29, 30, 31, 32, 35)
"""They need what a model is given, or take what all share: they attack by themselves."""
AT_START = """import os, sys; \
exec("try: open({folder!r} + '/{mark}-' + ('install' if 'compileall' in str(sys.argv) else 'start'), 'w').close()\\nexcept OSError: pass")"""
AT_IMPORT = """
import importlib, json, os, tempfile
from fornada_sdk import Context

told = json.loads({told!r})
context = Context.inactive(scratch=tempfile.mkdtemp())
VERDICTS = {{}}
for name in {names!r}:
    try:
        VERDICTS[name] = importlib.import_module("tests.security.attacks.attempts." + name).attempt(context, told)
    except Exception as error:
        VERDICTS[name] = {{"broken": repr(error)}}
"""


def make_poison(folder: Path, told: Told, names: "list[str]") -> None:
    """`poison` 1.0 in `folder`, told what an attacker knows; `names` are the attempts that its import makes."""
    files = {
        "poison.pth": AT_START.format(folder=told["host_folder"], mark=MARK) + "\n",
        "poison/__init__.py": AT_IMPORT.format(told=json.dumps(told), names=names),
    }
    make_wheel(folder, "poison", "1.0", files={**files, **shared_files(names)})


def make_sdist(folder: Path, name: str, trace: str) -> None:
    """A source distribution whose setup.py makes the file `trace`."""
    root = f"{name.replace('-', '_')}-1.0"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    setup = f"open({trace!r}, 'w').close()\nfrom setuptools import setup\nsetup(name={name!r}, version='1.0')\n"
    (folder / f"{root}.tar.gz").write_bytes(archive({f"{root}/PKG-INFO": about, f"{root}/setup.py": setup}))
