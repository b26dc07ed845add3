"""The SDK runs in the model's interpreter, whichever that is: the oldest and the newest that there is here, and the wheel alone."""

import subprocess
import sys
from pathlib import Path

import pytest

from fornada_sdk.wire.messages import Kind
from tests.bounds import bound
from tests.unit.sdk.driver import SRC, Start

VERSIONS = ["3.9", "3.10", "3.12", "3.13"]


def interpreter(version: str) -> str:
    """A Python of that version. Skips where there is none."""
    for path in [*sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python3")), Path(f"/usr/bin/python{version}")]:
        if path.exists():
            return str(path)
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_runner_serves_in_every_supported_python(start: Start, version: str):
    runner = start(
        """
        import sys, asyncio, fornada_sdk
        class Model(fornada_sdk.Model):
            def load(self, context):
                context.progress("loading", 0.5)
            def run(self, request, context):
                keys = request.body.json
                print("ran", keys)
                if "bad" in keys:
                    raise fornada_sdk.BadRequest("bad")
                if "boom" in keys:
                    raise ValueError("boom")
                if "steps" in keys:
                    return ({"step": i} for i in range(keys["steps"]))
                return {"python": "%d.%d" % sys.version_info[:2], "nan": float("nan")}
        """,
        python=interpreter(version),
    )
    plane = runner.attach()
    plane.ready()
    message = plane.end_of(plane.invoke({}))
    assert message.answer == {"python": version, "nan": None} and message.head["nonfinite"] is True
    assert plane.end_of(plane.invoke({"bad": 1})).head["status"] == "bad_request"
    assert plane.end_of(plane.invoke({"boom": 1})).head["message"] == "ValueError: boom"
    assert plane.end_of(plane.invoke({"steps": 3})).kind is Kind.END
    runner.wait_line(lambda line: "ValueError: boom" in line)
    plane.stop(5)
    assert runner.exit_code() == 0
    assert not any("Warning" in line for line in runner.lines)


@pytest.mark.parametrize("version", ["3.9", "3.13"])
@pytest.mark.parametrize("serving", [{"concurrency": 3}, {"concurrency": 3, "max_batch": 2, "max_wait_ms": 5}])
def test_async_code_in_every_supported_python(start: Start, version: str, serving: dict):
    runner = start(
        """
        import asyncio, fornada_sdk
        class Model(fornada_sdk.Model):
            async def run(self, request, context):
                await asyncio.sleep(0.01)
                return request.body.json
            async def run_batch(self, batch, context):
                await asyncio.sleep(0.01)
                return [request.body.json for request in batch]
        """,
        python=interpreter(version),
        serving=serving,
    )
    plane = runner.attach()
    plane.ready()
    ids = [plane.invoke(n) for n in range(10)]
    assert [plane.answer(id) for id in ids] == list(range(10))
    slow = plane.invoke(1)
    plane.cancel(slow)
    plane.end_of(slow)
    plane.stop(5)
    assert runner.exit_code() == 0
    assert not any("Warning" in line or "Traceback" in line for line in runner.lines)


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_a_model_can_be_tried_without_any_server(version: str):
    code = (
        "from fornada_sdk import Request, Context, BadRequest\n"
        "def handle_request(request, context):\n"
        "    context.log.info('asked', n=1)\n"
        "    return {'echo': request.body.json, 'cancelled': context.cancelled, 'scratch': context.scratch.is_dir()}\n"
        "print(handle_request(Request(json={'a': 1}), Context.inactive()))\n"
    )
    done = subprocess.run(
        [interpreter(version), "-W", "error", "-c", code], env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True, timeout=bound(20)
    )
    assert done.stdout == "{'echo': {'a': 1}, 'cancelled': False, 'scratch': True}\n", done.stderr
    assert "info asked n=1" in done.stderr


def test_a_sync_model_never_imports_asyncio_nor_anything_heavy(start: Start):
    runner = start(
        "import sys\n"
        "def handle_request(r, c): return sorted({'asyncio', 'inspect', 'dataclasses', 'logging', 'ctypes', 'typing_extensions'} & set(sys.modules))"
    )
    plane = runner.attach()
    plane.ready()
    assert plane.call() == []
    assert sys.version_info >= (3, 9)
