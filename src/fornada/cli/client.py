"""A node's HTTP API as the commands use it. Every failure leaves here as a CommandFailed with one line."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, urlsplit

import click

from fornada.cli.address import Address, resolve
from fornada.cli.failures import CommandFailed, Refused, one_line, refusal

CONNECT_S = 5.0
ANSWER_S = 30.0
"""For questions. What may take long (a load, a request) has the node's own deadlines, and waits for its answer without another."""

P = ParamSpec("P")
R = TypeVar("R")


class Node:
    """One node. A context manager: it holds connections. `patience_s` bounds the wait for an answer to a question."""

    def __init__(self, address: Address, *, patience_s: float = ANSWER_S) -> None:
        self._patience_s = patience_s
        self.url = address.url
        self.account = address.account
        self.chosen = address.chosen
        import httpx

        from fornada.cli.trust import trusted

        self._httpx = httpx
        host = urlsplit(self.url).hostname or ""
        headers = {"user-agent": "fornada-cli"}
        if address.token:
            headers["authorization"] = f"Bearer {address.token}"
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(patience_s, connect=min(CONNECT_S, patience_s)),
            verify=trusted(address.certificate) if self.url.startswith("https:") else False,
            trust_env=not _is_this_machine(host),  # a proxy can't reach our loopback address
        )

    def __enter__(self) -> "Node":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def get(self, path: str, *, query: Mapping[str, str] | None = None, model: str = "") -> Any:
        """The JSON that `path` answers. `model` is who the advice in a refusal talks about."""
        return _json(self._send("GET", path, query=query, model=model))

    def text(self, path: str) -> str:
        """An answer that is no JSON."""
        answer: str = self._send("GET", path).text
        return answer

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, model: str = "", query: Mapping[str, str] | None = None) -> Any:
        """Waits as long as the node does; `model` is who the advice in a refusal talks about."""
        return _json(self._send("POST", path, body=_encode(body or {}), query=query, patient=True, model=model))

    def post_bytes(self, path: str, body: bytes, *, model: str, query: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Any:
        """As `post`, of a body that is JSON already."""
        return _json(self._send("POST", path, body=body, query=query, headers=headers, patient=True, model=model))

    def put(self, path: str, content: bytes, *, type: str, model: str, query: Mapping[str, str]) -> Any:
        return _json(self._send("PUT", path, body=content, type=type, query=query, patient=True, model=model))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        return _json(self._send("PATCH", path, body=_encode(body)))

    def delete(self, path: str, *, model: str) -> Any:
        return _json(self._send("DELETE", path, patient=True, model=model))

    def request(self, path: str, body: bytes, *, type: str, model: str) -> "Answer":
        """An inference request: the answer as it came."""
        response = self._send("POST", path, body=body, type=type, patient=True, model=model)
        return Answer(response.headers.get("content-type", ""), response.content)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        type: str = "application/json",
        model: str = "",
        query: Mapping[str, str] | None = None,
    ) -> Iterator["Stream"]:
        """An answer that is read while it comes."""
        request = self._request(method, path, body, type, query or {}, patient=True)
        with self._explained(model):
            response = self._client.send(request, stream=True)
            try:
                if not response.is_success:
                    response.read()
                    raise self._refused(response, model)
                yield Stream(response)
            finally:
                response.close()

    def model(self, name: str) -> dict[str, Any]:
        """M of one model."""
        found = self._send("GET", model_path(name), model=name)
        return _object(_json(found))

    def _send(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        type: str = "application/json",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        patient: bool = False,
        model: str = "",
    ) -> Any:
        request = self._request(method, path, body, type, query or {}, patient=patient)
        request.headers.update(dict(headers or {}))
        with self._explained(model):
            response = self._client.send(request)
        if not response.is_success:
            raise self._refused(response, model)
        return response

    def _request(self, method: str, path: str, body: bytes, type: str, query: Mapping[str, str], *, patient: bool) -> Any:
        timeout = self._httpx.Timeout(None if patient else self._patience_s, connect=min(CONNECT_S, self._patience_s))
        headers = {"content-type": type} if body else {}
        return self._client.build_request(
            method, self.url + path, content=body or None, headers=headers, params=dict(query) or None, timeout=timeout
        )

    @contextmanager
    def _explained(self, model: str) -> Iterator[None]:
        httpx = self._httpx
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise self._nobody_there(error) from None
        except httpx.TimeoutException:
            raise CommandFailed(
                f"the node at {self.url} took the request and has not answered for {self._patience_s:.0f} s (the node's fault); "
                f"look at its log, or at {self.url}/health/live"
            ) from None
        except httpx.TransportError as error:
            about = f"; 'fornada why {model}' says how the model is" if model else ""
            # What a node with TLS does, too, when it is spoken to without.
            secured = (
                f", or it speaks TLS: write {self.url.replace('http', 'https', 1)}" if self.chosen and self.url.startswith("http:") else ""
            )
            raise CommandFailed(
                f"the node at {self.url} closed the connection before it had answered ({one_line(str(error)) or 'no reason given'}); "
                f"it was stopped or restarted: try again{secured}{about}"
            ) from None

    def _nobody_there(self, error: Exception) -> CommandFailed:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            why = str(error).partition("verify failed: ")[2].partition(" (_ssl")[0] or one_line(str(error))
            advice = "let SSL_CERT_FILE name a file with the certificate of who signed it"
            if "ismatch" in why:
                advice = "write the address as the certificate has it"
            elif "expired" in why:
                advice = "renew it, and look at the clock of this machine"
            return CommandFailed(f"the certificate of {self.url} isn't trusted here ({why.rstrip('.')}); {advice}")
        if "WRONG_VERSION_NUMBER" in str(error):
            return CommandFailed(f"what answers at {self.url} speaks no TLS; write {self.url.replace('https', 'http', 1)}")
        host = urlsplit(self.url).hostname or ""
        if _is_this_machine(host):
            start = f"'fornada serve --port {urlsplit(self.url).port or 80}'" if self.chosen else "'fornada serve'"
            return NoNode(f"no node answers at {self.url}; start one with {start} (in a clone: 'make serve'), or set FORNADA_URL")
        return NoNode(f"no node answers at {self.url} ({one_line(str(error))}); check FORNADA_URL, and that the node runs there")

    def _refused(self, response: Any, model: str) -> Refused:
        """The superset body, the envelope, or whatever stands between us and the node."""
        try:
            body = response.json()
        except ValueError:
            body = None
        if isinstance(body, dict):
            errors = body.get("errors")
            first = errors[0] if isinstance(errors, list) and errors else body.get("error")
            if isinstance(first, dict):
                return refusal(first, model=model, retry_after_s=response.headers.get("retry-after", ""))
        return Refused(f"{self.url} answered {response.status_code} {response.reason_phrase} and no reason; is that a Fornada node?")


class NoNode(CommandFailed):
    """Nobody answers at the address."""


class Answer:
    """Type and bytes of an answer."""

    def __init__(self, type: str, content: bytes) -> None:
        self.type = type.split(";")[0].strip().lower()
        self.content = content

    def json(self) -> Any:
        try:
            return json.loads(self.content)
        except RecursionError:
            raise CommandFailed("the node's answer is nested too deeply to be shown (the model's fault); curl gets it as it is") from None
        except ValueError:
            raise CommandFailed("the node's answer is no JSON although it says so (a bug in Fornada, or a proxy in between)") from None


class Stream:
    """An answer while it comes."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.type = response.headers.get("content-type", "").split(";")[0].strip().lower()

    def lines(self) -> Iterator[str]:
        yield from self._response.iter_lines()

    def read(self) -> Answer:
        return Answer(self.type, self._response.read())

    def events(self) -> Iterator[tuple[str, str]]:
        """Server-sent events as (name, data); comments and keep-alives are left out."""
        name = "message"
        data: list[str] = []
        for line in self._response.iter_lines():
            if not line:
                if data:
                    yield name, "\n".join(data)
                name, data = "message", []
                continue
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                data.append(value)
        if data:
            yield name, "\n".join(data)


def with_node(command: Callable[Concatenate[Node, P], R]) -> Callable[P, R]:
    """Adds the flags that say which node, and hands the command the Node."""

    @click.option("--url", envvar="FORNADA_URL", metavar="URL", help="Address of the node.  [env: FORNADA_URL]")
    @click.option("--token", envvar="FORNADA_TOKEN", metavar="TOKEN", help="Key to show it.  [env: FORNADA_TOKEN]")
    @click.option("--account", envvar="FORNADA_ACCOUNT", metavar="ID", help="Account to act for.  [env: FORNADA_ACCOUNT]")
    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        from fornada.app.config import environment

        named = {key: kwargs.pop(key) for key in ("url", "token", "account")}
        address = resolve(url=_text(named["url"]), token=_text(named["token"]), account=_text(named["account"]), environ=environment())
        with Node(address) as node:
            return command(node, *args, **kwargs)

    return wrapped


def model_path(name: str, verb: str = "") -> str:
    """/api/v1/models/NAME[/VERB]; the name may hold slashes, a colon, unicode."""
    path = f"/api/v1/models/{_quoted(name)}"
    return f"{path}/{verb}" if verb else path


def run_path(account: str, name: str) -> str:
    return f"/client/v4/accounts/{quote(account, safe='')}/ai/run/{_quoted(name)}"


def _quoted(name: str) -> str:
    # A '..' would be resolved on the way, and reach another route than the one that was meant.
    if not name.strip("/") or any(segment in ("..", ".", "") for segment in name.strip("/").split("/")):
        raise click.UsageError(f"'{name}' is no name of a model: it can't be empty, nor hold '..', '.' or an empty segment")
    return quote(name, safe="@/:")


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _encode(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode()


def _json(response: Any) -> Any:
    if not response.content:
        return {}
    try:
        return response.json()
    except ValueError:
        raise CommandFailed(f"{response.url} answered something that is no JSON; is that a Fornada node?") from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CommandFailed("the node's answer has an unexpected shape; is it of another release than this command?")
    return value


def _is_this_machine(host: str) -> bool:
    from fornada.app.config import is_loopback

    return is_loopback(host)
