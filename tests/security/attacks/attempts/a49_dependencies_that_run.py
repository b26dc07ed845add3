"""Asks for dependencies that run code while they are installed, or that come from where it likes."""

from collections.abc import Iterator

from tests.security.attacks.verdict import Told

WALL = "400: wheels only, by name and version, from the operator's index"

MODEL = "def handle_request(request, context):\n    return {}\n"
HEADER = "# /// script\n# dependencies = [{}]\n# ///\n"
SDIST = "evil-sdist"
"""The index of the operator (here: a folder) has it as a source distribution only; its setup.py leaves a trace."""
LINES = (
    f"{SDIST}==1.0",
    SDIST,
    "evil @ git+file:///tmp/evil",
    "git+file:///tmp/evil",
    "git+https://127.0.0.1:1/evil",
    "evil @ file:///tmp/evil",
    "evil @ https://127.0.0.1:1/evil-1.0-py3-none-any.whl",
    "https://127.0.0.1:1/evil-1.0-py3-none-any.whl",
    "--index-url=https://127.0.0.1:1/",
    "--extra-index-url https://127.0.0.1:1/",
    "--find-links /tmp",
    "--no-binary :all:",
    "-e /tmp/evil",
    "-r /etc/passwd",
    "-c /etc/passwd",
    "./evil",
    "/tmp/evil",
    "../evil",
)
EMBEDDED = (
    f'[tool.uv.sources]\n{SDIST} = {{ path = "/tmp/evil" }}',
    '[tool.uv]\nindex-url = "https://127.0.0.1:1/"',
    '[[tool.uv.index]]\nurl = "https://127.0.0.1:1/"',
)


def bundles(told: Told) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(what, name in the path, files) of each deploy that must be refused."""
    name = "@attack/depends"
    for line in LINES:
        yield f"model.toml {line}", name, {"model.toml": f"[python]\ndependencies = [{line!r}]\n", "model.py": MODEL}
        yield f"requirements.txt {line}", name, {"model.toml": "", "model.py": MODEL, "requirements.txt": f"{line}\n"}
        quoted = '"' + line + '"'
        yield f"header {line}", name, {"model.toml": "", "model.py": HEADER.format(quoted) + MODEL}
    for table in EMBEDDED:
        lines = "".join(f"# {line}\n" for line in [f'dependencies = ["{SDIST}==1.0"]', *table.split("\n")])
        yield f"header with {table!r}", name, {"model.toml": "", "model.py": f"# /// script\n{lines}# ///\n{MODEL}"}
        more = {"uv.toml": table.replace("tool.uv.", "").replace("[tool.uv]\n", ""), "pyproject.toml": table}
        toml = f'[python]\ndependencies = ["{SDIST}==1.0"]\n'
        yield f"files with {table!r}", name, {"model.toml": toml, "model.py": MODEL, **more}
