"""The models that ship with the package: folders read at each start, never written to the store."""

from collections.abc import Iterator
from pathlib import Path

from fornada.control.bundle import is_left_out
from fornada.control.reading import SPEC_FILE, digest_of, spec_of
from fornada.core.errors import InvalidSpec
from fornada.core.names import LOCAL_ACCOUNT, ModelName
from fornada.core.ports import BundleFile, Entry, ProvisionPort, Version


def folders_in(root: Path) -> Iterator[Path]:
    """Model folders right below `root`, by name."""
    if root.is_dir():
        yield from (path for path in sorted(root.iterdir()) if (path / SPEC_FILE).is_file())


def read_builtin(folder: Path, provision: ProvisionPort) -> Entry:
    """The model in the folder, as an entry that belongs to the node. Raises InvalidSpec."""
    files = _files_below(folder)
    spec = spec_of(files, name=None, top="")
    lock = provision.ready_lock(spec, files)
    version = Version(
        model=ModelName(spec.name),
        digest=digest_of(files, lock),
        account=LOCAL_ACCOUNT,
        spec=spec,
        folder=str(folder.absolute()),
        lock=lock,
        created=(folder / SPEC_FILE).stat().st_mtime,
        builtin=True,
    )
    return Entry(name=version.model, account=LOCAL_ACCOUNT, stable=version, versions=(version.digest,))


def _files_below(folder: Path) -> dict[str, BundleFile]:
    try:
        found = {}
        for path in sorted(folder.rglob("*")):
            relative = path.relative_to(folder).as_posix()
            if path.is_file() and not is_left_out(relative):
                found[relative] = BundleFile(path.read_bytes(), bool(path.stat().st_mode & 0o100))
        return found
    except OSError as error:
        raise InvalidSpec(f"{folder} can't be read: {error.strerror}") from None
