"""llama.cpp's server code in this process: requests go in and chunks come out by function calls.

Nothing here listens on TCP. The library insists on a listener, without authentication: it gets a Unix socket in scratch and a key
that nobody knows, and the socket's name is removed once the library is up, so that nothing can connect to it.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Callable

from fornada_sdk.api import BadRequest
from fornada_sdk.runner.engines import LoadError

SOCKET = "llama.sock"
CPU_BATCH = 64
"""Tokens of a prompt that are read between two looks at `cancelled`: about half a second for a small model on one slow core."""
GPU_BATCH = 512
ERRORS_ONLY = 1
STOP_S = 30.0
"""How long a request that nobody wants any more may keep its slot: the rest of one batch."""
TOO_LONG = "exceed_context_size_error"


class Llama:
    """Loaded weights with `slots` places for requests that run at the same time."""

    def __init__(self, path: str, *, context: int, slots: int, threads: int, gpu: bool, scratch: str, adapters: Sequence[str] = ()) -> None:
        """`context` is the number of tokens of one slot. `adapters` are GGUF files of LoRA adapters, which may go once it is loaded: a
        request says for each {"lora": [{"id": its place in here, "scale": 1.0 or 0.0}, …]}. One that doesn't fit the model makes the
        library wait for ever. Raises LoadError."""
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_parallel = slots
        params.n_ctx = context * slots
        params.n_batch = params.n_ubatch = max(GPU_BATCH if gpu else CPU_BATCH, slots)
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.n_gpu_layers = -1 if gpu else 0
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(adapter, 0.0) for adapter in adapters]
        # It would fit the context to the memory it sees, which isn't what this model may use.
        params.fit_params = False
        # Prompts of old requests would be kept in up to 8 GiB of host memory.
        params.cache_ram_mib = 0
        params.verbosity = ERRORS_ONLY
        params.hostnames = [SOCKET]
        params.port = 0
        params.api_keys = [secrets.token_hex(16)]
        params.n_threads_http = 1
        params.ui = params.endpoint_slots = params.endpoint_props = params.endpoint_metrics = False
        params.offline = True
        # A socket's path may have 107 bytes, and scratch can be deeper than that: so it is named from within.
        with _within(scratch), _nameless(SOCKET):
            try:
                self._server = xllamacpp.Server(params)
            except (RuntimeError, ValueError) as error:
                raise LoadError(f"llama.cpp can't load {os.path.basename(path)} (its own words are in the log): {error}") from None
        if not self._server.listening_address.startswith("unix:"):
            raise LoadError(f"llama.cpp listens on {self._server.listening_address}, and must not")

    def chunks(self, body: dict[str, Any], *, chat: bool, cancelled: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """The answer's chunks as llama.cpp makes them; closing the iterator, or `cancelled`, ends the work at the next token.

        Raises BadRequest for what llama.cpp refuses, RuntimeError for what fails in it.
        """
        try:
            text = json.dumps({**body, "stream": True, "return_progress": True}, ensure_ascii=False)
            text.encode()
        except UnicodeEncodeError:
            raise BadRequest("the input holds half of a surrogate pair, which is no character") from None
        handle = self._server.handle_chat_completions if chat else self._server.handle_completions
        arrived: queue.SimpleQueue[str | _End] = queue.SimpleQueue()
        left = threading.Event()

        def chunk(text: str) -> bool:
            if left.is_set() or cancelled():
                return True
            arrived.put(text)
            return False

        def work() -> None:
            try:
                handle(text, chunk)
            except BaseException as error:  # noqa: BLE001 - it is raised where the chunks are awaited
                arrived.put(_End(error))
            else:
                arrived.put(_End(None))

        worker = threading.Thread(target=work, name="fornada-gguf", daemon=True)
        worker.start()
        try:
            # Each of these waits is one token or one batch of the prompt long; the request's deadline sets `cancelled`.
            while not isinstance(piece := arrived.get(), _End):
                value = json.loads(piece)
                if "error" in value:
                    raise _refusal(value["error"])
                if not value.get("prompt_progress"):
                    yield value
            if piece.error is not None:
                raise _fault(piece.error)
        finally:
            left.set()
            # The slot is free only when the library has let go.
            worker.join(STOP_S)


class _End:
    __slots__ = ("error",)

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def _refusal(error: dict[str, Any]) -> Exception:
    message = str(error.get("message", ""))
    if error.get("type") == TOO_LONG:
        return BadRequest(f"the prompt has {error.get('n_prompt_tokens')} tokens, and the model's context holds {error.get('n_ctx')}")
    if error.get("code") == 400:
        return BadRequest(f"llama.cpp refuses it: {message}")
    return RuntimeError(f"llama.cpp failed: {message}")


def _fault(error: BaseException) -> BaseException:
    # What it raises, and doesn't report, it raises while it reads the request: templates and schemas that can't be used.
    if isinstance(error, (ValueError, RuntimeError)):
        return BadRequest(f"llama.cpp refuses it: {' '.join(str(error).split())[-300:]}")
    return error


@contextmanager
def _within(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _nameless(name: str) -> Iterator[None]:
    with suppress(FileNotFoundError):
        os.unlink(name)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
