"""What the docs name exists in the code, and what exists in the code is named in the docs."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from docs.generate import metrics
from docs.generate.__main__ import REFERENCE, outdated
from docs.generate.errors import family
from fornada.app.config import ENVIRONMENT
from fornada.cli.main import COMMANDS, fornada
from fornada.core import errors, settings, specs
from fornada.core.lifecycle.states import State, outside
from fornada.edge.problems import MODEL_REFUSAL_CODE, ROUTE_BELOW_ACCOUNT_CODE
from tests.docs.pages import WRITTEN, blocks, inline_code, name, prose

ALL_COMMANDS = {command for names in COMMANDS.values() for command in names}
CODES = {error.code for error in family(errors.FornadaError) if "code" in error.__dict__} | {MODEL_REFUSAL_CODE, ROUTE_BELOW_ACCOUNT_CODE}
METRICS = {found for found, *_ in metrics.families()}
VARIABLES = {*ENVIRONMENT, "FORNADA_CONFIG", "FORNADA_MIRROR", "FORNADA_URL", "FORNADA_TOKEN", "FORNADA_ACCOUNT"}


def test_the_reference_says_what_the_code_says():
    assert outdated() == [], "run python -m docs.generate"


def reference(page: str) -> str:
    return (REFERENCE / page).read_text()


def test_the_reference_is_complete():
    for command in ALL_COMMANDS:
        assert f"### {command}\n" in reference("commands.md")
    for code in CODES:
        assert f"| `{code}` |" in reference("errors.md")
    for metric in METRICS:
        assert f"| `{metric}` |" in reference("metrics.md")
    for state in State:
        assert f"| `{state.value}` | `{outside(state)}` |" in reference("states.md")
    for section, struct in settings.SECTIONS.items():
        assert f"## [{section}]" in reference("settings.md")
        for key in struct.__struct_fields__:
            assert re.search(rf"\| `{key}(\.\w+)?` \|", reference("settings.md")), f"[{section}] {key}"
    for table, struct in specs.TABLES.items():
        assert f"## [{table}]" in reference("model-toml.md")
        for key in struct.__struct_fields__:
            assert f"| `{key}` |" in reference("model-toml.md") or f"[[{table}.{key}]]" in reference("model-toml.md")


# ---- what people wrote ---------------------------------------------------------------------------------------------------------


def commands_in(page: Path) -> Iterator[list[str]]:
    """Every call of `fornada` in the page's shell blocks and inline code, as words."""
    for block in blocks(page):
        if block.language == "sh":
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from _calls(line)
    for text in inline_code(page):
        if text.startswith("fornada "):
            yield from _calls(text)


def _calls(line: str) -> Iterator[list[str]]:
    for part in re.split(r"&&|\||;", line.split("  #")[0]):
        words = shlex.split(part, comments=True)
        while words and re.match(r"[A-Z_]+=", words[0]):
            words.pop(0)
        if words and words[0] == "fornada" and len(words) > 1:
            yield words[1:]


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_command_line_in_a_page_could_be_typed(page: Path):
    for words in commands_in(page):
        while words and words[0].startswith("-"):
            assert words.pop(0) in ("--help", "--debug", "--version")
        if not words or words[0] in ("…", "COMMAND"):
            continue
        assert words[0] in ALL_COMMANDS, f"{name(page)}: fornada {' '.join(words)}"
        command = fornada.get_command(click.Context(fornada), words[0])
        if isinstance(command, click.Group) and len(words) > 1 and not words[1].startswith("-"):
            words = words[1:]
            command = command.commands.get(words[0])
        assert command is not None, f"{name(page)}: {' '.join(words)}"
        known = {option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts} | {"--help"}
        for word in words[1:]:
            if word.startswith("-") and word != "-":
                assert word.split("=")[0] in known, f"{name(page)}: fornada {' '.join(words)}: {words[0]} has no {word}"


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_setting_that_a_page_names_exists(page: Path):
    sections: dict[str, type[msgspec.Struct]] = {**settings.SECTIONS, **specs.TABLES}
    free = {"settings", "env", "properties", "price", "artifacts"}
    named = [found for text in inline_code(page) for found in re.findall(r"\[([a-z]+)\] ([a-z_]+)\b", text)]
    for section, key in named:
        if section in free:
            continue
        assert section in sections, f"{name(page)}: [{section}]"
        assert key in sections[section].__struct_fields__, f"{name(page)}: [{section}] {key}"


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_every_metric_and_variable_that_a_page_names_exists(page: Path):
    text = page.read_text()
    for found in set(re.findall(r"`(fornada_[a-z_]+)`", text)) - {"fornada_sdk"}:
        assert found in METRICS, f"{name(page)}: {found}"
    for found in set(re.findall(r"(?<![_A-Z])FORNADA_[A-Z_]+\b", text)) - VARIABLES:
        assert found.startswith("FORNADA_TEST_") or "internals" in page.parts, f"{name(page)}: {found}"


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.parent.name in ("how-to", "tutorials")], ids=name)
def test_every_error_code_that_a_page_names_exists(page: Path):
    for found in re.findall(r"^\| (\d{4,5}) \|", prose(page), re.MULTILINE):
        assert int(found) in CODES, f"{name(page)}: {found}"


@pytest.mark.parametrize("page", [page for page in WRITTEN if page.parent.name in ("how-to", "tutorials")], ids=name)
def test_every_toml_block_is_read_by_the_reader_it_is_meant_for(page: Path):
    import tomllib

    for block in blocks(page):
        if block.language != "toml" or "…" in block.text:
            continue
        table = tomllib.loads(block.text)
        if set(table) <= set(settings.SECTIONS):
            msgspec.convert(table, settings.Settings)
        else:
            specs.spec_from_table(table, default_name="@local/example")
