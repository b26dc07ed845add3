"""From a model's files to its spec, complete and consistent: everything that model.toml points at is there and makes sense."""

import hashlib
import unicodedata
from collections.abc import Mapping

import jsonschema_rs
import msgspec

from fornada.core.errors import InvalidSpec
from fornada.core.names import LOCAL_ACCOUNT, VersionDigest, check_deployable
from fornada.core.ports import BundleFile
from fornada.core.schemas import LARGEST, measure
from fornada.core.specs import ModelSpec, read_spec, spec_from_table

SPEC_FILE = "model.toml"
ENTRY = "model.py"
_SHAPES = (b"handle_request", b"Model")


def spec_of(files: Mapping[str, BundleFile], *, name: str | None, top: str = "") -> ModelSpec:
    """The model's spec. `name` beats model.toml's; `top` is the folder's name, for a model that has no other. Raises InvalidSpec."""
    default = name or (f"@{LOCAL_ACCOUNT}/{top}" if top else "")
    if SPEC_FILE in files:
        try:
            text = files[SPEC_FILE].data.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidSpec(f"{SPEC_FILE} is not UTF-8") from None
        spec = read_spec(text, default_name=default)
    else:
        spec = _minimal(files, default)
    own = check_deployable(name or spec.name)
    aliases = dict.fromkeys(unicodedata.normalize("NFC", alias) for alias in spec.aliases)
    spec = msgspec.structs.replace(spec, name=own, aliases=[alias for alias in aliases if alias != own])
    if spec.engine == "python" and not spec.python.entry:
        spec = msgspec.structs.replace(spec, python=msgspec.structs.replace(spec.python, entry=ENTRY))
    _check(spec, files)
    return spec


def digest_of(files: Mapping[str, BundleFile], lock: str) -> VersionDigest:
    """What names a version: sha256 over paths, contents, executable bits and the lock. Times, owners and order don't matter."""
    digest = hashlib.sha256()
    for path in sorted(files):
        content, executable = files[path]
        digest.update(f"{path}\0{int(executable)}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    digest.update(b"\0" + lock.encode())
    return VersionDigest(digest.hexdigest())


def _minimal(files: Mapping[str, BundleFile], name: str) -> ModelSpec:
    """Omni's shape: model.py with handle_request, nothing else needed."""
    if ENTRY not in files:
        raise InvalidSpec(f"neither {SPEC_FILE} nor {ENTRY} is in the folder")
    if not any(shape in files[ENTRY].data for shape in _SHAPES):
        raise InvalidSpec(f"{ENTRY} has no handle_request(request, context), and there is no {SPEC_FILE} that says what it is")
    if not name:
        raise InvalidSpec(f"a model without {SPEC_FILE} needs a name: give one with the request, or pack its folder with its name")
    return spec_from_table({"name": name, "task": "custom", "python": {"entry": ENTRY}})


def _check(spec: ModelSpec, files: Mapping[str, BundleFile]) -> None:
    if spec.python.entry and spec.python.entry not in files:
        raise InvalidSpec(f"[python] entry '{spec.python.entry}' isn't in the folder")
    for where, path in (("input", spec.schema.input), ("output", spec.schema.output)):
        if path:
            _check_schema(f"[schema] {where} '{path}'", path, files)
    paths = [artifact.path for artifact in spec.artifacts]
    for artifact in spec.artifacts:
        if paths.count(artifact.path) > 1:
            raise InvalidSpec(f"[[artifacts]] path '{artifact.path}' is there twice")
        if artifact.path in files:
            raise InvalidSpec(f"[[artifacts]] path '{artifact.path}' is also a file of the folder")
        if artifact.convert and artifact.convert.script not in files:
            raise InvalidSpec(f"[[artifacts]] {artifact.path}: convert script '{artifact.convert.script}' isn't in the folder")


def _check_schema(where: str, path: str, files: Mapping[str, BundleFile]) -> None:
    if path not in files:
        raise InvalidSpec(f"{where} isn't in the folder")
    try:
        schema = msgspec.json.decode(files[path].data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidSpec(f"{where} is no JSON: {str(error)[:200]}") from None
    if not isinstance(schema, dict | bool):
        raise InvalidSpec(f"{where} is no JSON Schema: it must be an object")
    if measure(schema).subschemas > LARGEST:
        raise InvalidSpec(f"{where} is too large: with its references written out it has more than {LARGEST} parts")
    try:
        # offline: a schema of somebody else's must not make this node fetch addresses.
        jsonschema_rs.validator_for(schema, offline=True)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidSpec(f"{where} is no JSON Schema: {first[:200]}") from None
