"""What whoever deploys may make the node ask: public addresses, and what the operator lists."""

import hashlib
import socket
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from fornada.core.errors import LoadFailed
from fornada.core.policy.outbound import outbound
from fornada.node.provision.outbound import MOST_ADDRESSES, AddressRefused, CheckedTransport, Proxies

CONTENT = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NO_PROXIES = Proxies({})


@pytest.fixture
def version(version_of):
    def make(*sources):
        return version_of(artifacts=[{"path": "w.bin", "sha256": SHA256, "source": list(sources)}])

    return make


def at(url, **changed):
    """The address with another host."""
    return url.replace("127.0.0.1", changed["host"])


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST.", "127.1", "0x7f.1", "2130706433", "0", "[::ffff:127.0.0.1]", "0.0.0.0"]
)
async def test_this_machine_s_own_services_are_not_asked(host, provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    with pytest.raises(LoadFailed, match=r"no public address.*allow_private|no host and port") as failure:
        await provisioners(offline=False, allow_private=()).artifacts(version(at(f"{web.url}/x", host=host)), steps)
    assert web.asked == []
    assert "\n" not in failure.value.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_what_the_operator_lists_is_asked(host, provisioners, version, steps, web):
    web.files["/x"] = CONTENT
    port = urlsplit(web.url).port
    found = await provisioners(offline=False, allow_private=[f"{host}:{port}"]).artifacts(version(at(f"{web.url}/x", host=host)), steps)
    assert found


async def test_a_redirect_is_checked_like_the_first_address(provisioners, version, steps, web):
    """The place that is allowed sends the node on to another one of this machine."""
    web.files["/x"] = CONTENT
    web.redirects["/moved"] = at(f"{web.url}/x", host="127.0.0.2")
    with pytest.raises(LoadFailed, match="no public address"):
        await provisioners(offline=False).artifacts(version(f"{web.url}/moved"), steps)
    assert [asked.path for asked in web.asked] == ["/moved"]


async def test_the_operator_s_own_words_need_no_line_but_lead_no_further(provisioners, version, steps, web):
    web.files[f"/sha256/{SHA256}"] = CONTENT
    assert await provisioners(mirror=web.url, allow_private=()).artifacts(version(), steps)
    web.redirects["/org/repo/resolve/main/w"] = at(f"{web.url}/x", host="127.0.0.2")
    hub = {"HF_ENDPOINT": web.url}
    with pytest.raises(LoadFailed, match="no public address"):
        await provisioners(offline=False, inherited=hub, allow_private=()).artifacts(_other(version, "hf:org/repo/w"), steps)


async def test_what_ships_with_the_node_is_asked_wherever_it_lies(provisioners, version, steps, web):
    """Some networks have copies of public hosts at addresses of their own."""
    web.files["/x"] = CONTENT
    wanted = version(f"{web.url}/x")
    with pytest.raises(LoadFailed, match="no public address"):
        await provisioners(offline=False, allow_private=()).artifacts(wanted, steps)
    assert await provisioners(offline=False, allow_private=()).artifacts(msgspec.structs.replace(wanted, builtin=True), steps)


def _other(version, source):
    wanted = version(source)
    wanted.spec.artifacts[0] = type(wanted.spec.artifacts[0])(path="w.bin", sha256="b" * 64, source=[source])
    return wanted


class Names:
    """A name service that answers what the test says, each time the next."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host, port):
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def ask(url, names, allowed=(), proxies=NO_PROXIES):
    async with httpx.AsyncClient(transport=CheckedTransport(outbound(allowed), proxies, look_up=names), trust_env=False) as client:
        return await client.get(url)


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to(web):
    """A name that says something else when it is asked again."""
    web.files["/x"] = CONTENT
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    answer = await ask(at(f"{web.url}/x", host="rebound.example"), names, [f"rebound.example:{urlsplit(web.url).port}"])
    assert (answer.content, names.asked) == (CONTENT, 1)
    assert web.asked[0].headers["host"] == f"rebound.example:{urlsplit(web.url).port}"


async def test_a_name_of_which_no_address_may_be_connected_to_is_refused(web):
    with pytest.raises(AddressRefused, match="no public address"):
        await ask(at(f"{web.url}/x", host="many.example"), Names(["127.0.0.1", "::1", "10.0.0.1", "169.254.169.254"]))
    assert web.asked == []


async def test_the_next_address_is_tried_where_one_can_t_be_connected_to(web):
    web.files["/x"] = CONTENT
    port = urlsplit(web.url).port
    allowed = [f"many.example:{port}"]
    url = at(f"{web.url}/x", host="many.example")
    assert (await ask(url, Names(["127.0.0.2", "127.0.0.1"]), allowed)).content == CONTENT
    with pytest.raises(httpx.ConnectError):
        await ask(url, Names([f"127.0.0.{number}" for number in range(2, 3 + MOST_ADDRESSES)] + ["127.0.0.1"]), allowed)


async def test_a_name_without_an_address_is_a_broken_line():
    with pytest.raises(httpx.ConnectError, match="no address is known for gone"):
        await ask("http://gone.example/", Names(socket.gaierror(socket.EAI_NONAME, "Name or service not known")))


def test_a_proxy_is_found_as_curl_finds_it():
    proxies = Proxies(
        {"HTTP_PROXY": "http://big:1", "http_proxy": "small:2", "ALL_PROXY": "http://all:3", "NO_PROXY": "near.example,.far.example"}
    )
    assert proxies.of(httpx.URL("http://x.example/")) == "http://small:2"
    assert proxies.of(httpx.URL("https://x.example/")) == "http://all:3"
    assert proxies.of(httpx.URL("https://near.example/")) == ""
    assert proxies.of(httpx.URL("https://a.far.example/")) == ""
    assert proxies.of(httpx.URL("https://notfar.example/")) == "http://all:3"
    some = Proxies({"all_proxy": "all:3", "no_proxy": "x.example:8443, 10.0.0.1,[::1]"})
    assert some.of(httpx.URL("https://x.example:8443/")) == "" and some.of(httpx.URL("https://x.example/")) == "http://all:3"
    assert some.of(httpx.URL("https://10.0.0.1/")) == "" and some.of(httpx.URL("https://10.0.0.11/")) == "http://all:3"
    assert Proxies({"all_proxy": "all:3", "no_proxy": "*"}).of(httpx.URL("https://x.example/")) == ""
    assert Proxies({}).of(httpx.URL("http://x.example/")) == ""


async def test_a_proxy_is_asked_for_names_and_never_for_this_network(web):
    """Names are the proxy's to look up; what is private by the address alone is refused before anybody is asked."""
    proxies = Proxies({"HTTP_PROXY": web.url})
    names = Names(AssertionError("nobody asks for names where there is a proxy"))
    assert (await ask("http://far.example/x", names, proxies=proxies)).status_code == 404
    assert web.asked[0].path == "http://far.example/x"
    for host in (
        "127.0.0.1",
        "127.1",
        "2130706433",
        "10.0.0.1",
        "localhost",
        "x.localhost",
        "metadata.google.internal",
        "[::1]",
        "[fd00::1]",
    ):
        with pytest.raises(AddressRefused):
            await ask(f"http://{host}/x", names, proxies=proxies)
    assert len(web.asked) == 1
    assert (await ask("http://10.0.0.1/x", names, ["10.0.0.1:80"], proxies=proxies)).status_code == 404


async def test_a_proxy_that_can_t_be_used_is_told():
    with pytest.raises(httpx.UnsupportedProtocol, match="proxy set in the environment"):
        await ask("http://far.example/x", Names(), proxies=Proxies({"ALL_PROXY": "gopher://x:1"}))
