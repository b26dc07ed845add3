"""What a model's inputs must look like: its JSON Schemas, compiled once a version.

A schema that lets everything through isn't applied at all: such a body is only checked for being JSON, and goes to the runner
as it came. Schemas are hostile, too: they can't fetch anything, and their patterns run in linear time.
"""

import os.path
from collections.abc import Mapping
from typing import Any

import jsonschema_rs
import msgspec

from fornada.core.errors import BadRequest, InvalidSpec
from fornada.core.names import ModelName, VersionDigest
from fornada.core.ports import CatalogPort, Resolved
from fornada.core.schemas import LARGEST, measure
from fornada.core.specs import ModelSpec
from fornada.edge.observer import Meter, Observer
from fornada.edge.schema_errors import describe
from fornada.edge.tasks import Schema, Task, task_of
from fornada.edge.text_schemas import CHAT_OUT, OPENAI_FAMILY_IN

KEPT = 4096
"""Contracts remembered. A contract is small; a catalogue has hundreds of models."""
FAMILIES = ("workers-ai", "openai")
"""How `ai/run` shows generated text: {"response": …} or a chat.completion."""
SCHEMA_BYTES = 1024 * 1024
_WORDS_WITHOUT_FORCE = frozenset(
    ["$comment", "$id", "$schema", "additionalProperties", "default", "deprecated", "description", "examples", "title", "type"]
)


class Contract:
    """What the edge needs to know of one version of a model."""

    __slots__ = (
        "binary",
        "drop_nulls",
        "explainable",
        "generates",
        "input",
        "max_body",
        "meter",
        "objects_only",
        "open",
        "openai_family",
        "output",
        "plain",
        "properties",
        "raw",
        "required",
        "task",
        "validator",
    )

    def __init__(
        self, task: Task, *, input: Schema | None, output: Schema | None, max_body: int, meter: Meter, openai_family: bool = False
    ) -> None:
        """`input` and `output` are the model's own schemas, where it has any. Raises InvalidSpec for one that isn't valid."""
        self.generates = task.slug == "text-generation"
        self.openai_family = openai_family
        """`ai/run` answers OpenAI's objects (FAMILIES)."""
        self.task = task
        self.meter = meter
        self.max_body = max_body
        taken = OPENAI_FAMILY_IN if openai_family else task.input
        self.input: Schema = taken if input is None else input
        usual = CHAT_OUT if openai_family else task.output
        self.output: Schema = usual if output is None else output
        properties = self.input.get("properties")
        self.properties: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
        required = self.input.get("required")
        self.required = frozenset(required) if isinstance(required, list) else frozenset()
        self.drop_nulls = input is None and bool(self.properties)
        """`null` means absent in the schemas of tasks; a model's own schema says itself what null means."""
        self.raw = task.raw
        self.binary = frozenset(task.binary)
        self.open = _lets_everything_through(self.input)
        self.plain = self.open and not self.binary and self.input.get("type") == "object"
        """An object, whatever is in it: the runner gets the body as it came."""
        self.objects_only = self.input.get("type") == "object"
        self.validator = None if self.open else compiled(self._checked())
        self.explainable = self.open or measure(self.input).explainable

    def check(self, value: object) -> None:
        """Raises BadRequest that names the field. Binary fields are left out: whoever turned them into bytes has checked them."""
        if self.validator is not None:
            _check(value, self.validator, self.input, explainable=self.explainable)

    def _checked(self) -> dict[str, Any]:
        """The input's schema as it is applied: bytes stand for themselves."""
        if not self.binary & self.properties.keys():
            return dict(self.input)
        return {**self.input, "properties": {name: True if name in self.binary else schema for name, schema in self.properties.items()}}


class Shared:
    """A schema that doesn't depend on the model: compiled when it is first needed."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._validator: jsonschema_rs.Validator | None = None
        self._explainable = False

    def check(self, value: object) -> None:
        """As Contract.check."""
        if self._validator is None:
            self._validator = compiled(self.schema)
            self._explainable = measure(self.schema).explainable
        _check(value, self._validator, self.schema, explainable=self._explainable)


class Contracts:
    """The contracts of all versions that were asked for."""

    def __init__(self, *, observer: Observer, catalog: CatalogPort) -> None:
        self._observer = observer
        self._catalog = catalog
        self._meters: dict[str, Meter] = {}
        self._kept: dict[tuple[ModelName, VersionDigest], Contract] = {}
        """By both: one folder that was deployed under two names is one digest, and each name counts its own requests."""

    def of(self, resolved: Resolved) -> Contract:
        """The contract of what a reference means. Raises InvalidSpec where the model's own schema can't be used."""
        entry = resolved.entry
        digest = resolved.version or entry.answering.digest
        key = entry.name, digest
        found = self._kept.get(key)
        if found is None:
            found = self._read(resolved, digest)
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = found
        return found

    def _read(self, resolved: Resolved, digest: VersionDigest) -> Contract:
        name, answering = resolved.entry.name, resolved.entry.answering
        version = answering if answering.digest == digest else self._catalog.version(name, digest)
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = self._observer.meter(name)
        spec = version.spec
        return Contract(
            task_of(spec.task),
            input=read_schema(version.folder, spec.schema.input) if spec.schema.input else None,
            output=read_schema(version.folder, spec.schema.output) if spec.schema.output else None,
            max_body=spec.serving.max_body,
            meter=meter,
            openai_family=_family_of(spec) == "openai",
        )


def _check(value: object, validator: jsonschema_rs.Validator, schema: Schema, *, explainable: bool) -> None:
    try:
        if validator.is_valid(value):
            return
        complaint = describe(validator.iter_errors(value) if explainable else (), schema)
    except ValueError:  # its own bound of nesting
        complaint = "the input is nested too deeply"
    raise BadRequest(complaint)


def _family_of(spec: ModelSpec) -> object:
    """[settings] output_family of a model that generates text. Raises InvalidSpec."""
    family = spec.settings.get("output_family", FAMILIES[0]) if spec.task == "text-generation" else FAMILIES[0]
    if family not in FAMILIES:
        raise InvalidSpec(f"[settings] output_family must be one of {', '.join(FAMILIES)}, and is {family!r}")
    return family


def read_schema(folder: str, path: str) -> Schema:
    """A schema file of a bundle. Raises InvalidSpec."""
    try:
        with open(os.path.join(folder, path), "rb") as file:
            text = file.read(SCHEMA_BYTES + 1)
    except OSError as error:
        raise InvalidSpec(f"the model's {path} can't be read: {error.strerror}") from None
    if len(text) > SCHEMA_BYTES:
        raise InvalidSpec(f"the model's {path} has more than {SCHEMA_BYTES} bytes")
    try:
        schema = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        raise InvalidSpec(f"the model's {path} is no JSON") from None
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise InvalidSpec(f"the model's {path} is no JSON Schema: it must be an object")
    return schema


def compiled(schema: Schema) -> jsonschema_rs.Validator:
    """A validator that fetches nothing. Raises InvalidSpec."""
    if measure(schema).subschemas > LARGEST:
        raise InvalidSpec(f"the model's schema can't be used: with its references written out it has more than {LARGEST} parts")
    try:
        return jsonschema_rs.validator_for(dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions(), mask="it")
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError) as error:
        raise InvalidSpec(f"the model's schema can't be used: {str(error).splitlines()[0][:300]}") from None


def _lets_everything_through(schema: Schema) -> bool:
    return (
        schema.keys() <= _WORDS_WITHOUT_FORCE
        and schema.get("additionalProperties", True) in (True, {})
        and schema.get("type", "object") == "object"
    )
