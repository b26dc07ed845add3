"""The loaded weights, and beside them the LoRA adapters that requests asked for.

    no adapter, or one that is loaded     goes on at once: several with different ones run at the same time
    one that isn't                        waits for the requests that run, then the weights are loaded anew with it among them; those that
                                          come meanwhile wait, too

llama.cpp takes adapters only when it loads. The weights come from the page cache then, so that this takes about as long as waking up.
MOST_LOADED stay; the one that was asked for longest ago makes room. Files that changed are an adapter of their own.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from fornada_sdk.api import BadRequest
from fornada_sdk.runner.engines import LoadError
from fornada_sdk.runner.engines.gguf_adapter import CONFIG, WEIGHTS, AdapterError, Base, convert
from fornada_sdk.runner.engines.gguf_library import Llama

MOST_LOADED = 8
POLL_S = 0.1
"""How often whoever waits for others looks whether he is still wanted."""
_ID = re.compile(r"[0-9A-Za-z-]{1,64}\Z")


class Adapter(NamedTuple):
    """One adapter as its files are now."""

    id: str
    stamp: tuple[int, ...]


class Lent(NamedTuple):
    """What a request works with."""

    library: Llama
    parameters: dict[str, Any]
    """To be added to what llama.cpp is asked."""


class Weights:
    """Loaded until `sleep`."""

    def __init__(self, load: Callable[[Sequence[str]], Llama], base: Callable[[], Base], *, adapters: str, scratch: str) -> None:
        """`load` gets the adapters' GGUF files, which may go once it returns. `base` is asked when the first adapter is. `adapters`: the
        folder of this model's adapters, one folder for each; empty: there are none. Raises what `load` raises."""
        self._load = load
        self._base = base
        self._folder = adapters
        self._scratch = scratch
        self._turn = threading.Condition()
        self._changing = False
        self._running = 0
        self._loaded: list[Adapter] = []
        """In llama.cpp's order."""
        self._asked: list[Adapter] = []
        """The same, the one asked for longest ago first."""
        self._library: Llama | None = load(())

    def sleep(self) -> None:
        """Lets go of the weights and of all contexts."""
        self._library = None

    def wake(self) -> None:
        """Loads them again, with the adapters that there were. Raises LoadError."""
        self._reload(self._loaded)

    @contextmanager
    def lend(self, adapter: str, *, cancelled: Callable[[], bool]) -> Iterator[Lent | None]:
        """The library, with the adapter of this id; empty: none. Gives None where the request is `cancelled` before it has its turn.
        Raises BadRequest for an adapter that can't be applied."""
        wanted = self._found(adapter) if adapter else None
        lent = self._enter(wanted, cancelled)
        try:
            yield lent
        finally:
            if lent is not None:
                with self._turn:
                    self._running -= 1
                    self._turn.notify_all()

    def _found(self, id: str) -> Adapter:
        if not self._folder or not _ID.fullmatch(id):
            raise BadRequest('"lora" names no fine-tune of this model')
        try:
            states = [os.stat(os.path.join(self._folder, id, name)) for name in (CONFIG, WEIGHTS)]
        except OSError:
            raise BadRequest(f'"lora": the files of the fine-tune {id} aren\'t there') from None
        return Adapter(id, tuple(number for state in states for number in (state.st_mtime_ns, state.st_size, state.st_ino)))

    def _enter(self, wanted: Adapter | None, cancelled: Callable[[], bool]) -> Lent | None:
        with self._turn:
            while self._changing:
                if cancelled():
                    return None
                self._turn.wait(POLL_S)
            if self._library is None or (wanted is not None and wanted not in self._loaded):
                self._changing = True
                try:
                    while self._running:
                        if cancelled():
                            return None
                        self._turn.wait(POLL_S)
                    self._change(wanted)
                finally:
                    self._changing = False
                    self._turn.notify_all()
            assert self._library is not None
            self._running += 1
            if wanted is not None:
                self._asked.remove(wanted)
                self._asked.append(wanted)
            # Whoever wants none says so, too: what another adapter made of a prompt would be taken for what it is without.
            weights = [{"id": number, "scale": float(each == wanted)} for number, each in enumerate(self._loaded)]
            return Lent(self._library, {"lora": weights} if weights else {})

    def _change(self, wanted: Adapter | None) -> None:
        if wanted is None:  # it failed to load the last time
            self._reload(self._loaded)
            return
        # An adapter whose files were replaced goes at once.
        kept = [each for each in self._asked if each.id != wanted.id][-(MOST_LOADED - 1) :]
        before = self._loaded
        try:
            self._reload([*kept, wanted], wanted=wanted)
        except (AdapterError, LoadError, OSError) as error:
            # What else was there stays of use; if it is the weights themselves, they say so now.
            if self._library is None:
                self._reload([each for each in before if each.id != wanted.id])
            raise BadRequest(f'"lora" can\'t be applied: {error}') from None

    def _reload(self, adapters: Sequence[Adapter], *, wanted: Adapter | None = None) -> None:
        """Those that were deleted, or broke since, are left out, but for the one that is wanted. Raises AdapterError, LoadError, OSError."""
        made: list[str] = []
        usable: dict[str, Adapter] = {}
        try:
            for adapter in adapters:
                target = os.path.join(self._scratch, f"adapter-{adapter.id}.gguf")
                made.append(target)
                try:
                    convert(os.path.join(self._folder, adapter.id), target, self._base())
                except (AdapterError, OSError):
                    if adapter is wanted:
                        raise
                    continue
                usable[target] = adapter
            self._library = None
            self._library = self._load(list(usable))
            self._loaded = list(usable.values())
            self._asked = [each for each in self._asked if each in self._loaded]
            self._asked += [each for each in self._loaded if each not in self._asked]
        finally:
            for path in made:
                with suppress(OSError):
                    os.unlink(path)
