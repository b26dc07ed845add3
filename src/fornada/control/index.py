"""Names and aliases of the catalogue: pure, rebuilt at each change, read on the hot path."""

import unicodedata
from collections.abc import Callable, Iterable

from fornada.core.errors import Conflict
from fornada.core.names import ModelName
from fornada.core.ports import Entry


class Index:
    """Entries by name. A model's own name beats an alias, a deployed model beats one that ships with the package."""

    def __init__(self, builtin: Iterable[Entry], deployed: Iterable[Entry]) -> None:
        shipped = {entry.name: entry for entry in builtin}
        stored = {entry.name: entry for entry in deployed}
        self.entries: dict[str, Entry] = {name: (shipped | stored)[name] for name in sorted(shipped | stored)}
        self.aliases: dict[str, ModelName] = {}
        for entry in [*stored.values(), *shipped.values()]:
            for alias in entry.stable.spec.aliases:
                self.aliases.setdefault(alias, entry.name)

    def find(self, name: str) -> Entry | None:
        """The model of that name or alias, however its characters are composed."""
        entry = self.entries.get(name)
        if entry is not None:
            return entry
        owner = self.aliases.get(name)
        if owner is not None:
            return self.entries[owner]
        composed = unicodedata.normalize("NFC", name)
        return self.find(composed) if composed != name else None

    def refuse_taken_aliases(self, name: str, aliases: Iterable[str], *, may_know: Callable[[Entry], bool]) -> None:
        """Raises Conflict for an alias that means another model than `name`, which is named where it may be known."""
        for alias in aliases:
            if alias in self.entries and alias != name:
                raise Conflict(f"alias '{alias}' is the name of another model")
            owner = self.aliases.get(alias, name)
            if owner != name:
                shown = f"'{owner}'" if may_know(self.entries[owner]) else "another model"
                raise Conflict(f"alias '{alias}' belongs to {shown}")
