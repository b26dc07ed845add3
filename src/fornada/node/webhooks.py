"""core.webhooks.HookPort: a POST to an address that was looked up, judged, and connected to as it was judged."""

import asyncio
from collections.abc import Iterable, Mapping

import httpx

from fornada.core.policy.outbound import outbound
from fornada.core.webhooks import HookFailed, HookRefused
from fornada.node.provision.outbound import AddressRefused, CheckedTransport, Proxies

TIMEOUT_S = 10.0
"""Of a whole try, from looking the name up to the answer's status."""


class HookClient:
    """Follows no redirect: where it leads nobody has agreed to. Reads no body."""

    def __init__(self, *, allow_private: Iterable[str], inherited: Mapping[str, str], timeout_s: float = TIMEOUT_S) -> None:
        """`allow_private` is [outbound] allow_private; `inherited` the node's environment, for its proxies."""
        self._timeout_s = timeout_s
        self._client = httpx.AsyncClient(
            transport=CheckedTransport(outbound(allow_private), Proxies(inherited)),
            timeout=timeout_s,
            trust_env=False,
            follow_redirects=False,
        )

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> None:
        try:
            # httpx bounds each read: who sends a byte now and then would be listened to for ever.
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", url, content=body, headers={**headers, "user-agent": "fornada"}) as response,
            ):
                status = response.status_code
        except TimeoutError:
            raise HookFailed(f"no answer within {self._timeout_s:g} s") from None
        except AddressRefused:
            raise HookRefused("its address isn't public, and [outbound] allow_private doesn't name it") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise HookFailed(f"no answer: {type(error).__name__}") from None
        if not 200 <= status < 300:
            raise HookFailed(f"it answered {status}")

    async def close(self) -> None:
        await self._client.aclose()
