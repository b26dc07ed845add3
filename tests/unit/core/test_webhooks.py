"""What a webhook says, where it may go, and how often it is tried."""

import hashlib
import hmac

import pytest

from fornada.core.errors import BadRequest
from fornada.core.jobs import JobId
from fornada.core.policy.outbound import Outbound, outbound
from fornada.core.webhooks import LONGEST_WAIT_S, MOST_TRIES, Hook, HookState, after, check_url, sending

JOB = JobId("job")


def test_a_receiver_can_tell_who_sent_it_and_when():
    said = sending(b'{"id":"job"}', job=JOB, secret=b"secret", now=1700000000.9)
    fields = dict(part.split("=", 1) for part in said.headers["x-fornada-signature"].split(","))
    assert fields["t"] == "1700000000"
    assert fields["v1"] == hmac.new(b"secret", b'1700000000.{"id":"job"}', hashlib.sha256).hexdigest()
    assert said.headers["x-fornada-job"] == "job"


def test_it_is_tried_a_bounded_number_of_times_with_growing_waits():
    hook, waits, now = Hook(JOB, "https://x.test/"), [], 0.0
    while hook.state is HookState.WAITING:
        hook = after(hook, "no answer", sent=False, hopeless=False, now=now)
        waits.append(hook.next_at - now)
        now = hook.next_at
    assert (hook.state, hook.tries) == (HookState.GIVEN_UP, MOST_TRIES)
    assert waits[:3] == [1.0, 2.0, 4.0] and max(waits) <= LONGEST_WAIT_S


def test_a_success_ends_it_and_so_does_an_address_that_is_never_permitted():
    hook = Hook(JOB, "https://x.test/")
    assert after(hook, "answered", sent=True, hopeless=False, now=0.0).state is HookState.SENT
    assert after(hook, "private", sent=False, hopeless=True, now=0.0).state is HookState.GIVEN_UP


@pytest.mark.parametrize(
    "url", ["https://example.org/x?y=1", "http://example.org:8080", "https://93.184.215.14/", "https://[2606:2800:21f:cb07::1]/"]
)
def test_public_addresses_are_taken(url: str):
    check_url(url, Outbound())


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://192.168.1.1:80/",
        "http://[fd00::1]/",
        "http://0.0.0.0/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://x.localhost:8250/",
        "http://printer.local/",
        "http://metadata.google.internal/",
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "https://user:secret@example.org/",
        "https:///x",
        "https://example.org:0/",
        "https://example.org:99999/",
        "https://exa mple.org/",
        "https://example.org/\r\nx: y",
        "example.org",
        "",
        "https://example.org/" + "x" * 3000,
    ],
)
def test_everything_else_is_refused_before_anybody_connects(url: str):
    with pytest.raises(BadRequest, match="webhook"):
        check_url(url, Outbound())


def test_the_operator_may_permit_a_private_address_at_one_port():
    policy = outbound(["127.0.0.1:9000", "hooks.local:80"])
    check_url("http://127.0.0.1:9000/x", policy)
    check_url("http://hooks.local/x", policy)
    for url in ("http://127.0.0.1:9001/", "http://127.0.0.2:9000/", "http://hooks.local:81/"):
        with pytest.raises(BadRequest):
            check_url(url, policy)
