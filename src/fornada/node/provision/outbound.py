"""HTTP to addresses that somebody else names: each is looked up, checked, and connected to as it was checked.

client ── request (each redirect is one) ──► place ── look up ──► addresses ── permitted? ──► connect to that very one

Asking the name service a second time would let it say something else than what was checked. Where the operator has set a
proxy for the address, the proxy looks names up and connects: then only what the address itself says is checked here.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Mapping

import httpx

from fornada.core.policy.outbound import Outbound, Permitted, Place, place
from fornada.node.own_addresses import own_among

LOOK_UP_S = 10.0
MOST_ADDRESSES = 4
"""Of one name that are tried."""
LOOKED_AT_MOST = 64
_PORTS = {"http": 80, "https": 443}
_LOCAL_NAMES = ("localhost", "local", "internal", "localdomain")
"""Names that end so mean something private by definition; a proxy is not asked for them."""

LookUp = Callable[[str, int], Awaitable[list[str]]]


class AddressRefused(Exception):
    """The address is none that may be connected to. The message is half a line."""


class Proxies:
    """The operator's, as variables of the environment name them."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        # Where both are set the one in small letters counts, as in curl.
        names = sorted((name for name in environ if name.lower().endswith("_proxy")), key=str.islower)
        self._by_scheme = {name.lower().removesuffix("_proxy"): environ[name] for name in names if environ[name]}

    def of(self, url: httpx.URL) -> str:
        """The proxy for the address, empty where it is asked directly."""
        proxy = self._by_scheme.get(url.scheme) or self._by_scheme.get("all", "")
        if not proxy or self._is_near(url):
            return ""
        return proxy if "://" in proxy else f"http://{proxy}"

    def _is_near(self, url: httpx.URL) -> bool:
        """Whether NO_PROXY names it: `*`, an address, a name with all below it, each with a port or without."""
        named = [entry.strip().lower().removeprefix(".") for entry in self._by_scheme.get("no", "").split(",")]
        port = _PORTS.get(url.scheme) if url.port is None else url.port
        spellings = (url.host.lower(), f"{url.host.lower()}:{port}")
        return "*" in named or any(text == entry or text.endswith(f".{entry}") for text in spellings for entry in named if entry)


class CheckedTransport(httpx.AsyncBaseTransport):
    """Sends a request to an address that `outbound` permits; None: to any. Raises AddressRefused, and httpx's errors."""

    def __init__(self, outbound: Outbound | None, proxies: Proxies, *, look_up: LookUp | None = None) -> None:
        self._outbound = outbound
        self._proxies = proxies
        self._look_up = look_up or _look_up
        # Connections aren't kept: two names at one address would share one whose certificate was only checked for the first.
        self._limits = httpx.Limits(max_keepalive_connections=0)
        self._direct = httpx.AsyncHTTPTransport(limits=self._limits)
        self._through: dict[str, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        wanted = place_of(request.url)
        proxy = self._proxies.of(request.url)
        if proxy:
            self._check_unresolved(wanted)
            return await self._proxied(proxy).handle_async_request(request)
        addresses = await self._addresses(wanted)
        for address in addresses[:-1]:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await self._ask(request, address)
        return await self._ask(request, addresses[-1])

    async def aclose(self) -> None:
        for transport in (self._direct, *self._through.values()):
            await transport.aclose()

    async def _ask(self, request: httpx.Request, address: str) -> httpx.Response:
        name = request.url.host
        asked = httpx.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,  # with the Host of before
            stream=request.stream,
            # Whose certificate it must be is still the name.
            extensions={**request.extensions, "sni_hostname": name},
        )
        return await self._direct.handle_async_request(asked)

    async def _addresses(self, wanted: Place) -> list[str]:
        """Those that may be connected to, at least one."""
        try:
            async with asyncio.timeout(LOOK_UP_S):
                found = await self._look_up(wanted.host, wanted.port)
        except TimeoutError:
            raise httpx.ConnectTimeout(f"no address was found for {wanted.host} within {LOOK_UP_S:g} s") from None
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError(f"no address is known for {wanted.host}: {getattr(error, 'strerror', None) or error}") from None
        if self._outbound is None:
            return found[:MOST_ADDRESSES]
        found = list(dict.fromkeys(found))[:LOOKED_AT_MOST]
        verdict = self._outbound.judge(wanted, found, own=own_among(found))
        if not isinstance(verdict, Permitted):
            raise _refused(wanted)
        return list(verdict.addresses[:MOST_ADDRESSES])

    def _check_unresolved(self, wanted: Place) -> None:
        if self._outbound is None:
            return
        last = wanted.host.rpartition(".")[2]
        if ":" in wanted.host or last.isdecimal():
            private = not isinstance(self._outbound.judge(wanted, [wanted.host], own=own_among([wanted.host])), Permitted)
        else:
            private = last in _LOCAL_NAMES and wanted not in self._outbound.allowed
        if private:
            raise _refused(wanted)

    def _proxied(self, proxy: str) -> httpx.AsyncHTTPTransport:
        if proxy not in self._through:
            try:
                self._through[proxy] = httpx.AsyncHTTPTransport(proxy=proxy, limits=self._limits)
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                raise httpx.UnsupportedProtocol(f"the proxy set in the environment can't be used: {str(error)[:100]}") from None
        return self._through[proxy]


def place_of(url: httpx.URL) -> Place:
    """Host and port of an address. Raises UnsupportedProtocol where it is none of HTTP, AddressRefused where its host is none."""
    if url.scheme not in _PORTS:
        raise httpx.UnsupportedProtocol(f"'{url.scheme}' addresses can't be fetched")
    try:
        return place(url.raw_host.decode("ascii"), _PORTS[url.scheme] if url.port is None else url.port)
    except ValueError:
        raise AddressRefused("its address names no host and port that can be connected to") from None


def _refused(wanted: Place) -> AddressRefused:
    # Which address it has is not told: whoever deploys would learn what the names of this network are.
    return AddressRefused(
        f'has no public address, and nothing is fetched from others unless [outbound] allow_private = ["{wanted}"] is set'
    )


async def _look_up(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for _, _, _, _, address in found]
