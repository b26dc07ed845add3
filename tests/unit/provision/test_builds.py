"""Builds: what they may see, what they print, how they end."""

import asyncio
import os
import sys

import pytest

from fornada.core.errors import DiskFull
from fornada.core.ports import Sandbox
from fornada.core.settings import ProvisionSettings
from fornada.node.provision.builds import LOGS_KEPT, BuildFailed, Builds, last_error
from fornada.node.provision.variables import Variables
from tests.bounds import bound

UV = """\
Using Python 3.11.7 environment at: x
error: Request failed after 3 retries in 6.7s
  cause: Failed to fetch: http://127.0.0.1:9/simple/x/
  cause: Connection refused (os error 111)

hint: something long
"""


@pytest.fixture
def builds(keeper, tmp_path):
    return Builds(keeper, tmp_path / "logs")


async def python(builds, code, tmp_path, **more):
    return await builds.run("test", [sys.executable, "-I", "-c", code], env={}, cwd=tmp_path, sandbox=Sandbox(), **more)


async def test_what_a_build_prints_is_its_answer_and_its_log_is_gone(builds, tmp_path):
    assert await python(builds, "print('hello')", tmp_path) == "hello\n"
    assert os.listdir(tmp_path / "logs") == []


async def test_the_log_of_a_failed_build_stays_and_old_ones_go(builds, tmp_path):
    for number in range(LOGS_KEPT + 3):
        with pytest.raises(BuildFailed, match=f"failure {number}$"):
            await python(builds, f"raise SystemExit('failure {number}')", tmp_path)
    assert len(os.listdir(tmp_path / "logs")) == LOGS_KEPT


async def test_its_last_line_is_told_while_it_runs(builds, tmp_path):
    told: list[str] = []
    code = "import time, sys\nfor n in range(4): print('line', n, flush=True); time.sleep(0.3)"
    await python(builds, code, tmp_path, told=told.append)
    assert set(told) <= {f"line {n}" for n in range(4)} and told


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os._exit(3)", "exit code 3 and no word"),
        ("import os; os.kill(os.getpid(), 9)", "signal 9 and no word"),
        ("raise KeyError('x')", "^KeyError: 'x'$"),
    ],
)
async def test_how_it_ended_is_told(builds, tmp_path, code, reason):
    with pytest.raises(BuildFailed, match=reason):
        await python(builds, code, tmp_path)


async def test_a_program_that_is_not_there_is_told(builds, tmp_path):
    with pytest.raises(BuildFailed, match="can't be started"):
        await builds.run("test", ["/nowhere/uv"], env={}, cwd=tmp_path, sandbox=Sandbox())


async def test_one_that_takes_too_long_is_ended(builds, tmp_path):
    with pytest.raises(BuildFailed, match=r"longer than 0\.2 s"):
        await python(builds, "import time; time.sleep(60)", tmp_path, longest_s=0.2)


async def test_a_full_disk_is_recognised_by_what_the_tool_prints(builds, tmp_path):
    with pytest.raises(DiskFull, match=str(tmp_path)):
        await python(builds, "raise SystemExit('error: No space left on device (os error 28)')", tmp_path)


async def test_a_few_run_at_the_same_time(keeper, tmp_path):
    builds = Builds(keeper, tmp_path / "logs", at_once=2)
    tasks = [asyncio.create_task(python(builds, "import time; time.sleep(0.1)", tmp_path)) for _ in range(4)]
    most = 0
    async with asyncio.timeout(bound(20)):
        while not all(task.done() for task in tasks):
            most = max(most, builds.running)
            await asyncio.sleep(0.01)
    assert most == 2


def test_errors_of_uv_npm_and_python_become_one_line():
    assert last_error(UV) == (
        "Request failed after 3 retries in 6.7s; Failed to fetch: http://127.0.0.1:9/simple/x/; Connection refused (os error 111)"
    )
    assert last_error("npm error code E404\nnpm error 404 Not Found\n").startswith("npm error code E404")
    assert last_error("Traceback (most recent call last):\n  File x\nValueError: bad\n") == "ValueError: bad"
    assert last_error("") == ""
    assert len(last_error("error: " + "x" * 10_000)) <= 600


# ---- the environment of builds


def variables(tmp_path, inherited, **settings):
    return Variables(inherited, ProvisionSettings(**settings), cache=tmp_path / "cache", home=tmp_path / "home")


def test_uv_inherits_certificates_proxies_and_index_and_nothing_else(tmp_path):
    env = variables(
        tmp_path,
        {
            "SSL_CERT_FILE": "/certs",
            "HTTPS_PROXY": "http://proxy",
            "UV_DEFAULT_INDEX": "http://index",
            "UV_INDEX_MINE_PASSWORD": "p",
            "UV_PYTHON": "evil",
            "UV_SYSTEM_PYTHON": "1",
            "UV_CACHE_DIR": "/theirs",
            "VIRTUAL_ENV": "x",
            "PYTHONPATH": "x",
            "LD_PRELOAD": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "HOME": "/root",
            "PATH": "/somewhere",
        },
    ).uv()
    assert (env["SSL_CERT_FILE"], env["HTTPS_PROXY"], env["UV_DEFAULT_INDEX"], env["UV_INDEX_MINE_PASSWORD"]) == (
        "/certs",
        "http://proxy",
        "http://index",
        "p",
    )
    assert env["UV_CACHE_DIR"] == str(tmp_path / "cache/uv") and env["HOME"] == str(tmp_path / "home")
    assert env["UV_NO_CONFIG"] == "1" and "/somewhere" not in env["PATH"]
    assert not env.keys() & {"UV_PYTHON", "UV_SYSTEM_PYTHON", "VIRTUAL_ENV", "PYTHONPATH", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY"}


def test_pips_variables_are_said_in_uvs_words(tmp_path):
    env = variables(
        tmp_path,
        {
            "PIP_INDEX_URL": "http://index",
            "PIP_EXTRA_INDEX_URL": "http://a http://b",
            "PIP_FIND_LINKS": "/wheels http://c",
            "PIP_CERT": "/certs",
            "PIP_TRUSTED_HOST": "h",
            "PIP_NO_INDEX": "true",
            "PIP_PROXY": "http://proxy",
        },
    ).uv()
    wanted = {
        "UV_DEFAULT_INDEX": "http://index",
        "UV_INDEX": "http://a http://b",
        "UV_FIND_LINKS": "/wheels,http://c",
        "SSL_CERT_FILE": "/certs",
        "UV_INSECURE_HOST": "h",
        "UV_NO_INDEX": "1",
        "ALL_PROXY": "http://proxy",
    }
    assert {name: env[name] for name in wanted} == wanted


def test_uvs_own_variables_beat_pips_and_the_settings_beat_both(tmp_path):
    inherited = {"PIP_INDEX_URL": "http://pip", "UV_INDEX_URL": "http://uv", "PIP_FIND_LINKS": "/pip"}
    env = variables(tmp_path, inherited).uv()
    assert (env["UV_INDEX_URL"], "UV_DEFAULT_INDEX" in env) == ("http://uv", False)
    env = variables(tmp_path, inherited, index="http://ours", find_links=["/ours"], offline=True, cache_dir="/cache").uv()
    assert (env["UV_DEFAULT_INDEX"], env["UV_FIND_LINKS"], env["UV_OFFLINE"], env["UV_CACHE_DIR"]) == (
        "http://ours",
        "/ours,/pip",
        "1",
        "/cache",
    )


def test_folders_are_named_so_that_a_build_finds_them_from_anywhere(tmp_path):
    env = variables(tmp_path, {"PIP_FIND_LINKS": "wheels"}, find_links=["more", "~/x"], cache_dir="cache").uv()
    here = os.getcwd()
    assert env["UV_FIND_LINKS"] == f"{here}/more,{os.path.expanduser('~')}/x,{here}/wheels"
    assert env["UV_CACHE_DIR"] == f"{here}/cache"


def test_a_script_of_a_models_sees_neither_index_nor_proxy(tmp_path):
    env = variables(tmp_path, {"HTTPS_PROXY": "p", "UV_INDEX_URL": "i", "SSL_CERT_FILE": "c", "LANG": "C.UTF-8"}).script(temporary=tmp_path)
    assert env["LANG"] == "C.UTF-8"
    assert not any("proxy" in name.lower() or name.startswith(("UV_", "SSL_")) for name in env)
