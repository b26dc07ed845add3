"""A request of which only the body matters, for stands that speak to a link or a node directly."""

from collections.abc import Sequence

from fornada.core.names import LOCAL_ACCOUNT, ModelName
from fornada.core.requests import InferenceRequest


def plain_request(body: Sequence[bytes], *, head: bytes = b"{}") -> InferenceRequest:
    """For @test/a, without a deadline of its own; `body` in its pieces."""
    return InferenceRequest(
        request_id="r", trace_id="t", account=LOCAL_ACCOUNT, model=ModelName("@test/a"), version=None, deadline=None, head=head, body=body
    )
