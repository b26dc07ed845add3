"""Node.js and npm's packages for clients that are written for it, in environments of their own, kept between runs.

Node comes from npm/requirements.lock (`uv pip compile` makes it from requirements.in with the options that `make lock` has), packages from
npm/package-lock.json (`npm install --package-lock-only --omit-lockfile-registry-resolved`). Scripts of packages aren't run.
"""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.bounds import bound
from tests.harness.node import node_environ
from tests.models.environments import UV, digest, environment, made, run

HERE = Path(__file__).parent / "npm"
LOCKS = ("package.json", "package-lock.json")


class Npm:
    """A folder with all packages, and the Node that runs them."""

    def __init__(self, bin: Path, modules: Path) -> None:
        self._bin = bin
        self.modules = modules

    def run(self, command: list[str], *, cwd: Path, environ: Mapping[str, str] | None = None) -> str:
        """What a script or a package's command printed, which must succeed. The packages are found from `cwd`."""
        link = cwd / "node_modules"
        if not link.exists():
            link.symlink_to(self.modules)
        path = f"{self.modules / '.bin'}:{self._bin}:/usr/bin:/bin"
        # A home of its own: what a client keeps there is nobody's but this test's.
        given = {**node_environ(environ), "PATH": path, "HOME": str(cwd), "XDG_CONFIG_HOME": str(cwd / "config"), "NO_COLOR": "1"}
        done = subprocess.run(command, cwd=cwd, env=given, capture_output=True, text=True, timeout=bound(240), check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def bundle(self, source: Path, *, cwd: Path) -> Path:
        """One module with all that it imports, as wrangler makes it of a Worker."""
        made = cwd / "bundled.mjs"
        copied = self._copied(source, cwd)
        self.run(["esbuild", str(copied), "--bundle", "--format=esm", "--conditions=workerd,worker,browser", f"--outfile={made}"], cwd=cwd)
        return made

    def _copied(self, source: Path, cwd: Path) -> Path:
        """A module beside which the packages are, with those that it may import by a path."""
        for module in source.parent.glob("*.mjs"):
            shutil.copyfile(module, cwd / module.name)
        return cwd / source.name

    def script(self, text: str | Path, *words: str, cwd: Path) -> str:
        """What a module printed; its source, or the file that is it."""
        if isinstance(text, Path):
            copy = self._copied(text, cwd)
        else:
            copy = cwd / "script.mjs"
            copy.write_text(text)
        return self.run(["node", str(copy), *words], cwd=cwd)


def npm() -> Npm:
    """Everything that HERE's locks name; the test is skipped where packages can't be fetched."""
    try:
        bin = environment(HERE / "requirements.lock").parent
    except subprocess.CalledProcessError:
        package = (HERE / "requirements.lock").read_text().split(maxsplit=1)[0]
        if _answers([str(UV), "pip", "compile", "--quiet", "--no-cache", "--no-deps", "-"], package):
            raise
        pytest.skip("Node.js isn't in the cache, and packages can't be fetched")
    try:
        folder = made(f"npm-{digest(*((HERE / name).read_bytes() for name in LOCKS))}", lambda target: _install(bin, target))
    except subprocess.CalledProcessError:
        if _answers(["env", f"PATH={bin}:/usr/bin:/bin", str(bin / "npm"), "view", "--prefer-online", "zod", "version"]):
            raise
        pytest.skip("npm's packages aren't in the cache, and can't be fetched")
    return Npm(bin, folder / "node_modules")


def _answers(command: list[str], input: str = "") -> bool:
    """Whether packages of this kind can be fetched at all."""
    return subprocess.run(command, input=input, text=True, capture_output=True, timeout=bound(120), check=False).returncode == 0


def _install(bin: Path, target: Path) -> None:
    target.mkdir()
    for name in LOCKS:
        shutil.copyfile(HERE / name, target / name)
    run("env", f"PATH={bin}:/usr/bin:/bin", bin / "npm", "ci", "--prefix", target, "--ignore-scripts", "--no-audit", "--no-fund")
