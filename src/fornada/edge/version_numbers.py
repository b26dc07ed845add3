"""Versions as TensorFlow Serving knows them: whole numbers, of which the largest is the newest.

A version's number is the time at which it was registered, in milliseconds: it stays the same whatever is removed, as a count would not.
"""

from collections.abc import Callable
from typing import Any

from fornada.core.errors import UnknownModel
from fornada.core.names import VersionDigest
from fornada.core.ports import CatalogPort, Entry, OperationsPort, Version

VersionStatus = Callable[[Entry], list[dict[str, Any]]]


def number_of(version: Version) -> str:
    """As text, like every number of 64 bits in their JSON."""
    return str(max(1, int(version.created * 1000)))


class Numbered:
    """Looks versions up."""

    def __init__(self, catalog: CatalogPort) -> None:
        self._catalog = catalog

    def digest(self, entry: Entry, number: str) -> VersionDigest:
        """Raises UnknownModel."""
        for version in self.versions(entry):
            if number_of(version) == number.lstrip("0"):
                return version.digest
        raise UnknownModel(
            f"'{entry.name}' has no version {number[:40]}: its versions are {', '.join(map(number_of, self.versions(entry)))}"
        )

    def versions(self, entry: Entry) -> list[Version]:
        """All of a model, the oldest first."""
        known = {each.digest: each for each in (entry.answering, entry.stable, entry.canary, entry.previous) if each is not None}
        digests = entry.versions or (entry.answering.digest,)
        return [known.get(digest) or self._catalog.version(entry.name, digest) for digest in digests]


def status_by(operations: OperationsPort) -> VersionStatus:
    """`model_version_status` of a model: of the version that answers. One that is stopped or asleep is AVAILABLE, since a request brings
    it up; one that can't be loaded has come to its END."""

    def status(entry: Entry) -> list[dict[str, Any]]:
        view = operations.view(entry.name)
        failed = view.state == "failed"
        said = {"error_code": "UNAVAILABLE", "error_message": view.why} if failed else {"error_code": "OK", "error_message": ""}
        state = "END" if failed else "LOADING" if view.state == "pending" else "AVAILABLE"
        return [{"version": number_of(entry.answering), "state": state, "status": said}]

    return status
