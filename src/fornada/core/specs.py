"""What a model declares: model.toml, read into frozen types.

`read_spec` is the only reader. Every refusal is an InvalidSpec whose message names the place ("[serving] concurrency"),
what stands there and what may stand there.
"""

import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from fornada.core.errors import InvalidSpec
from fornada.core.names import check_deployable
from fornada.core.policy.outbound import parse_place
from fornada.core.resources import ByteCount, parse_size

Engine = Literal["python", "tensorflow", "litert", "onnx", "torch", "gguf", "command"]
Dtype = Literal["BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16", "BYTES"]
GIB = 1024**3
MIB = 1024**2
MEMORY_BY_ENGINE = {"tensorflow": 2 * GIB, "torch": 2 * GIB}
LONGEST_TEXT = 32768
"""Characters of a model.toml: reading dotted keys takes time by the square of their number."""
PLACES_MOST = 64
"""Of [resources] network."""
SOURCE_SCHEMES = ("https", "http", "pypi", "npm", "hf", "s3", "oci", "file")


class PythonSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[python]: the code and what it depends on."""

    entry: str = ""
    """File with the model's code; empty: model.py where the engine needs code, none around another engine."""
    version: str = ""
    """"3.11"; empty: the node's own interpreter."""
    dependencies: list[str] = []
    """Requirements; or a requirements.txt, or a PEP 723 header in the code. Locked with hashes at deploy."""
    preload: list[str] = []
    """Modules that are imported ahead of need, once for all instances; import them, run nothing of theirs. The engine's own needn't be named."""


class ResourcesSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[resources]: what an instance may use."""

    memory: ByteCount = ByteCount(512 * MIB)
    """Host memory of one instance with all that it starts; 2 GiB unless said for tensorflow and torch. Beyond it an allocation fails
    or the instance is ended: at isolation full by the kernel, else by the node, which looks twice a second. At none the bound of
    each process' data segment alone. More than the node has for models counts as all of that."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N. auto takes a GPU only if device_memory is more than 0."""
    device_memory: ByteCount = ByteCount(0)
    """Memory of the GPU: an upper estimate, which the measured peak replaces."""
    threads: int = 1
    """Threads that libraries may start for one operation."""
    cpus: float = 1.0
    """CPU seconds per second; at isolation full only. A shared process has no such bound."""
    pids: int = 64
    """Processes and threads that an instance may have at a time. No bound at isolation landlock where the node isn't root's; at none
    it counts all of the node's user (and nothing holds root)."""
    scratch: ByteCount = ByteCount(GIB)
    """Room in context.scratch. At isolation full and namespaces it is part of the instance's memory, and full where either is; else
    (and with [node] scratch_in_memory = false) it is on disk: who holds more, in files of any number, is ended, and one file may be as
    large, and 64 MiB at least."""
    network: list[str] = []
    """host:port pairs that it may reach, or "none". They are reached through the proxy that HTTPS_PROXY and its like name; others are
    refused there. There is no way around it at isolation full and namespaces, no network at all at landlock, and no wall at none."""


class ServingSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[serving]: how requests meet instances."""

    concurrency: int = 1
    """Requests at the same time in one instance."""
    max_batch: int = 1
    """Requests that run_batch gets together; 1: run gets them one by one."""
    max_wait_ms: float = 0
    """How long a batch that is not full waits for more, beyond what waits already."""
    queue: int = 64
    """Requests that may wait; the next one is refused with Retry-After."""
    timeout_s: float = 60
    """Deadline of a request that names none."""
    load_timeout_s: float = 300
    """How long a load may go without progress."""
    idle_timeout_s: float = 300
    """Then it sleeps or stops; counted from the last byte of the last answer."""
    min_instances: int = 0
    """Kept running without requests."""
    max_instances: int = 1
    """Copies under load, in room that nobody else wants; those beyond `min_instances` go again."""
    max_body: ByteCount = ByteCount(10 * MIB)
    """Largest body of a request."""
    packed: bool = True
    """May share its process with others of the same account and environment: for engines onnx and litert without code around them."""
    park: bool = True
    """May be stopped while it has no requests (`[node] park_after_s`): its threads and processes too. false: for a model that works
    between requests."""


class ConvertSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a fetched file becomes what the engine loads; runs once, as a build."""

    script: str
    """File in the folder; called with the fetched file and the place for the result."""
    dependencies: list[str] = []
    """Requirements of the script, locked as the model's own."""


class ArtifactSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file that doesn't lie in the bundle."""

    path: str
    """Name under which the model finds it: context.artifacts[path]."""
    sha256: str
    """Of the fetched file, 64 hex digits. Another file is never used."""
    source: list[str] = []
    """Tried in order after the mirror: https:, pypi:PACKAGE==VERSION#path/inside, npm:, hf:, s3:, oci:, file:."""
    convert: ConvertSpec | None = None
    """Turns what was fetched into what the engine loads; runs once."""


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One input or output tensor; -1 in `shape` is free."""

    name: str
    """As requests and the engine call it."""
    dtype: Dtype
    """BOOL, UINT8 ... FP64, BF16, or BYTES."""
    shape: list[int]
    """-1 is free."""
    optional: bool = False
    """Of an input: requests may leave it out."""


class TensorsSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[tensors]: what goes in and out, where the engine can't tell."""

    inputs: list[TensorSpec] = []
    """[[tensors.inputs]]"""
    outputs: list[TensorSpec] = []
    """[[tensors.outputs]]"""


class SchemaSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[schema]: JSON Schema files in the bundle."""

    input: str = ""
    """JSON Schema of the request."""
    output: str = ""
    """JSON Schema of the answer."""


class CommandSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """[command]: an external server (engine = "command")."""

    args: list[str] = []
    """The command and its arguments; {socket}, {port}, {artifact:PATH}, {scratch}, {folder}, {device} and {threads} are filled in."""
    socket: str = ""
    """Name of the Unix socket in scratch that it listens on."""
    port: int = 0
    """Port of 127.0.0.1 that it listens on, where there is no socket; 0: a free one."""
    health: str = ""
    """Path that answers with success when it is ready; empty: /health."""
    sleep: str = ""
    """Call that gives device memory back: a path for POST, or a method and a path."""
    wake: str = ""
    """Call that takes it again."""


class ModelSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """model.toml, checked and completed with defaults."""

    name: str
    """author/model, in letters, digits, '-', '_', '.', '+', '~' and single spaces; may be left out where the deploy gives one."""
    aliases: list[str] = []
    """Further names, under the same rule."""
    task: str = "custom"
    """custom, or a task type of Workers AI: it decides input, output and checks."""
    engine: Engine = "python"
    """What executes the weights."""
    description: str = ""
    """One line."""
    license: str = ""
    """An SPDX identifier."""
    visibility: Literal["account", "node"] | None = None
    """Who may see and run it: its account, or all of the node. Unless said, the node's mode decides (open mode: node)."""
    python: PythonSpec = PythonSpec()
    resources: ResourcesSpec = ResourcesSpec()
    serving: ServingSpec = ServingSpec()
    settings: dict[str, Any] = {}
    """A free table, given to the code as context.settings."""
    env: dict[str, str] = {}
    """Variables of the runner."""
    command: CommandSpec = CommandSpec()
    properties: dict[str, str] = {}
    """What the catalogue is to say of it, by Workers AI's names: beta, info, terms, vision, reasoning, context_window, max_input_tokens,
    output_dimensions, planned_deprecation_date (YYYY-MM-DD), ..."""
    price: dict[str, float] = {}
    """Neurons for each request, second (of the runner), token, input_token, output_token, image (one a request, unless the model counts
    them), or whatever else the model's code counts in context.usage, by its name."""
    artifacts: list[ArtifactSpec] = []
    """[[artifacts]]"""
    tensors: TensorsSpec = TensorsSpec()
    schema: SchemaSpec = SchemaSpec()


TABLES: Mapping[str, type[msgspec.Struct]] = {
    "python": PythonSpec,
    "resources": ResourcesSpec,
    "serving": ServingSpec,
    "command": CommandSpec,
    "tensors": TensorsSpec,
    "schema": SchemaSpec,
}
NUMBER_MOST = 10**9
"""Of anything but bytes: more seconds than a machine lives, and as much as every place of these numbers takes."""
_BYTE_KEYS = {("resources", "memory"), ("resources", "device_memory"), ("resources", "scratch"), ("serving", "max_body")}
_AT_LEAST: Mapping[tuple[str, str], float] = {
    ("resources", "memory"): 16 * MIB,
    ("resources", "threads"): 1,
    ("resources", "cpus"): 0.01,
    ("resources", "pids"): 1,
    ("serving", "concurrency"): 1,
    ("serving", "max_batch"): 1,
    ("serving", "max_wait_ms"): 0,
    ("serving", "queue"): 0,
    ("serving", "timeout_s"): 0.001,
    ("serving", "load_timeout_s"): 0.001,
    ("serving", "idle_timeout_s"): 0,
    ("serving", "min_instances"): 0,
    ("serving", "max_instances"): 1,
    ("serving", "max_body"): 1,
}
_DEVICE = re.compile(r"(auto|cpu|cuda|cuda:\d{1,3})\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_PYTHON_VERSION = re.compile(r"3\.\d{1,2}(\.\d{1,2})?\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def read_spec(text: str, *, default_name: str = "") -> ModelSpec:
    """model.toml's text as a ModelSpec. `default_name` serves where it names none. Raises InvalidSpec."""
    if len(text) > LONGEST_TEXT:
        raise InvalidSpec(f"model.toml has {len(text)} characters, more than the {LONGEST_TEXT} allowed")
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets of thousands of levels
        raise InvalidSpec(f"model.toml is no TOML: {error}") from None
    return spec_from_table(table, default_name=default_name)


def spec_from_table(table: Mapping[str, Any], *, default_name: str = "") -> ModelSpec:
    """A parsed model.toml as a ModelSpec. Raises InvalidSpec."""
    given = dict(table)
    if default_name:
        given.setdefault("name", default_name)
    if "name" not in given:
        raise InvalidSpec('model.toml has no name; add e.g. name = "@local/my-model"')
    _refuse_unknown_keys(given)
    given = _with_bytes(given)
    engine = given.get("engine", "python")
    if isinstance(engine, str) and "memory" not in given.get("resources", {}):
        given["resources"] = {**given.get("resources", {}), "memory": MEMORY_BY_ENGINE.get(engine, 512 * MIB)}
    if given.get("resources", {}).get("network") == "none":
        given["resources"] = {**given["resources"], "network": []}
    try:
        spec = msgspec.convert(given, ModelSpec)
    except msgspec.ValidationError as error:
        raise InvalidSpec(f"model.toml: {error}") from None
    _check(spec)
    return spec


def _refuse_unknown_keys(given: Mapping[str, Any]) -> None:
    _refuse_unknown(given, ModelSpec, "model.toml")
    for name, struct in TABLES.items():
        table = given.get(name, {})
        if not isinstance(table, dict):
            raise InvalidSpec(f"model.toml: [{name}] must be a table")
        _refuse_unknown(table, struct, f"[{name}]")
    for name in ("settings", "env", "properties", "price"):
        if not isinstance(given.get(name, {}), dict):
            raise InvalidSpec(f"model.toml: [{name}] must be a table")


def _refuse_unknown(table: Mapping[str, Any], struct: type[msgspec.Struct], where: str) -> None:
    known = struct.__struct_fields__
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else f"; known are {', '.join(known)}"
            raise InvalidSpec(f"model.toml: {where} has no key '{key}'{hint}")


def _with_bytes(given: dict[str, Any]) -> dict[str, Any]:
    for table, key in _BYTE_KEYS:
        value = given.get(table, {}).get(key)
        if value is not None:
            try:
                given[table] = {**given[table], key: parse_size(value)}
            except ValueError as error:
                raise InvalidSpec(f"model.toml: [{table}] {key}: {error}") from None
    return given


def _check(spec: ModelSpec) -> None:
    check_deployable(spec.name)
    for alias in spec.aliases:
        check_deployable(alias)
    for (table, key), least in _AT_LEAST.items():
        value = getattr(getattr(spec, table), key)
        if not value >= least or value == float("inf"):
            raise InvalidSpec(f"model.toml: [{table}] {key} = {value:g} must be a finite number of at least {least:g}")
        if (table, key) not in _BYTE_KEYS and value > NUMBER_MOST:
            raise InvalidSpec(f"model.toml: [{table}] {key} = {value:g} is more than {NUMBER_MOST}")
    for name, number in spec.price.items():
        if not (math.isfinite(number) and number >= 0):
            raise InvalidSpec(f"model.toml: [price] {name} must be a finite number, and not negative")
    if spec.serving.min_instances > spec.serving.max_instances:
        raise InvalidSpec("model.toml: [serving] min_instances exceeds max_instances")
    if not _DEVICE.match(spec.resources.device):
        raise InvalidSpec(f"model.toml: [resources] device = '{spec.resources.device}'; it may be auto, cpu, cuda or cuda:N")
    for pair in spec.resources.network:
        try:
            parse_place(pair)
        except ValueError as error:
            raise InvalidSpec(f'model.toml: [resources] network: {error}; write host:port, e.g. "api.example.com:443"') from None
    if len(spec.resources.network) > PLACES_MOST:
        raise InvalidSpec(f"model.toml: [resources] network names {len(spec.resources.network)} places, more than {PLACES_MOST}")
    if spec.python.version and not _PYTHON_VERSION.match(spec.python.version):
        raise InvalidSpec(f"model.toml: [python] version = '{spec.python.version}'; write e.g. \"3.11\"")
    for name, value in spec.env.items():
        if not _VARIABLE.match(name):
            raise InvalidSpec(f"model.toml: [env] '{name}' is no name of a variable")
        if "\0" in value:
            raise InvalidSpec(f"model.toml: [env] {name} holds a NUL, which no variable can")
    for artifact in spec.artifacts:
        check_inside(artifact.path, "[[artifacts]] path")
        if not _SHA256.match(artifact.sha256):
            raise InvalidSpec(f"model.toml: [[artifacts]] {artifact.path}: sha256 must be 64 hex digits in lower case")
        for source in artifact.source:
            if source.split(":", 1)[0] not in SOURCE_SCHEMES or ":" not in source:
                raise InvalidSpec(
                    f"model.toml: [[artifacts]] {artifact.path}: no such source '{source}'; schemes are {', '.join(SOURCE_SCHEMES)}"
                )
        if artifact.convert:
            check_inside(artifact.convert.script, "[[artifacts]] convert.script")
    _check_command(spec)
    for place in (spec.python.entry, spec.schema.input, spec.schema.output):
        if place:
            check_inside(place, "a path")


def _check_command(spec: ModelSpec) -> None:
    command = spec.command
    if spec.engine == "command" and not (command.args and command.args[0]):
        raise InvalidSpec('model.toml: engine = "command" needs [command] args, the command that starts the server')
    if spec.engine != "command" and command != CommandSpec():
        raise InvalidSpec(f'model.toml: [command] is for engine = "command", and the engine is {spec.engine}')
    if any("\0" in arg for arg in command.args):
        raise InvalidSpec("model.toml: [command] args holds a NUL, which no argument can")
    if not 0 <= command.port <= 65535:
        raise InvalidSpec(f"model.toml: [command] port = {command.port} must be 1 to 65535, or 0 for a free one")
    if command.socket:
        check_inside(command.socket, "[command] socket")
        if command.port:
            raise InvalidSpec("model.toml: [command] socket and port exclude each other")
    for key in ("health", "sleep", "wake"):
        words = getattr(command, key).split()
        if words and not (len(words) <= 2 and words[-1].startswith("/")):
            raise InvalidSpec(f"model.toml: [command] {key} = '{getattr(command, key)}' must be a path, or a method and a path")


def check_inside(path: str, where: str) -> None:
    """Raises InvalidSpec for a path that is absolute or leads out of the folder it belongs to."""
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise InvalidSpec(f"model.toml: {where} '{path}' must be a relative path without '..'")


ENGINES: tuple[str, ...] = get_args(Engine)
