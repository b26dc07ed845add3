"""model.toml: what is accepted, and how a mistake is named."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fornada.core.errors import InvalidSpec
from fornada.core.specs import ModelSpec, read_spec, spec_from_table

MIB = 1024**2


def test_a_name_is_enough_and_the_defaults_are_those_of_the_interface() -> None:
    spec = read_spec('name = "@local/probe"')
    assert (spec.task, spec.engine, spec.visibility) == ("custom", "python", None)
    assert (spec.resources.memory, spec.resources.device_memory, spec.resources.pids) == (512 * MIB, 0, 64)
    assert (spec.resources.cpus, spec.resources.scratch, spec.resources.network) == (1.0, 1024 * MIB, [])
    assert (spec.serving.concurrency, spec.serving.queue, spec.serving.max_body) == (1, 64, 10 * MIB)
    assert (spec.serving.timeout_s, spec.serving.load_timeout_s, spec.serving.idle_timeout_s) == (60, 300, 300)


@pytest.mark.parametrize("engine", ["tensorflow", "torch"])
def test_heavy_engines_get_two_gibibytes_unless_the_author_says_otherwise(engine: str) -> None:
    assert read_spec(f'name = "a"\nengine = "{engine}"').resources.memory == 2048 * MIB
    assert read_spec(f'name = "a"\nengine = "{engine}"\n[resources]\nmemory = "1GiB"').resources.memory == 1024 * MIB


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no name"),
        ("name = ", "no TOML"),
        ("name = " + "[" * 5000, "no TOML"),
        ("[serving]\nqueue = " + "9" * 5000, "no TOML"),
        ('name = "a"\nengine = "command"', "needs [command] args"),
        ('name = "a"\n[command]\nargs = ["x"]', '[command] is for engine = "command"'),
        ('name = "a"\nengine = "command"\n[command]\nargs = ["x"]\nport = 70000', "port = 70000 must be"),
        ('name = "a"\nengine = "command"\n[command]\nargs = ["x"]\nport = 1\nsocket = "s"', "exclude each other"),
        ('name = "a"\nengine = "command"\n[command]\nargs = ["x"]\nsocket = "/tmp/s"', "[command] socket"),
        ('name = "a"\nengine = "command"\n[command]\nargs = ["x"]\nsleep = "POST sleep"', "sleep = 'POST sleep' must be a path"),
        ('name = "a"\nengin = "onnx"', "did you mean 'engine'"),
        ('name = "a"\n[serving]\nconcurency = 2', "[serving] has no key 'concurency'; did you mean 'concurrency'"),
        ('name = "a"\n[serving]\nconcurrency = 0', "[serving] concurrency = 0 must be"),
        ('name = "a"\n[serving]\ntimeout_s = inf', "[serving] timeout_s"),
        ('name = "a"\n[serving]\ntimeout_s = nan', "[serving] timeout_s"),
        ('name = "a"\n[serving]\ntimeout_s = 1e300', "[serving] timeout_s"),
        ('name = "a"\n[serving]\nconcurrency = 99999999999', "[serving] concurrency"),
        ('name = "a"\n[price]\ntoken = nan', "[price] token"),
        ('name = "a"\n[serving]\nmin_instances = 2', "min_instances exceeds max_instances"),
        ('name = "a"\n[resources]\nmemory = "lots"', "[resources] memory"),
        ('name = "a"\n[resources]\nmemory = true', "[resources] memory"),
        (f'name = "a"\n[resources]\nmemory = "{"9" * 400}GiB"', "[resources] memory"),
        ('name = "a"\n[env]\nKEY = "a\\u0000b"', "[env] KEY holds a NUL"),
        ('name = "a"\n[resources]\ndevice = "gpu"', "[resources] device"),
        ('name = "a"\nengine = "caffe"', "Invalid enum value 'caffe'"),
        ('name = "a/load"', "it is a verb"),
        ('name = "a:b"', "colon"),
        ('name = "a/../b"', "'..'"),
        ('name = "a"\n[python]\nentry = "/etc/passwd"', "relative path"),
        ('name = "a"\n[python]\nentry = "../x.py"', "relative path"),
        ('name = "a"\n[python]\nversion = "2.7"', "[python] version"),
        ('name = "a"\nserving = 3', "[serving] must be a table"),
        ('name = "a"\n[[artifacts]]\npath = "w"\nsha256 = "00"', "64 hex digits"),
        ('name = "a"\n[[artifacts]]\npath = "../w"\nsha256 = "00"', "relative path"),
        ('name = "a"\n[env]\n"A B" = "x"', "no name of a variable"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InvalidSpec) as refusal:
        read_spec(text)
    assert said in refusal.value.message
    assert "\n" not in refusal.value.message


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
known_keys = st.sampled_from(ModelSpec.__struct_fields__)


@given(st.dictionaries(known_keys, json_values, max_size=6))
def test_whatever_a_table_holds_it_is_a_spec_or_an_invalid_spec(table: dict[str, object]) -> None:
    with contextlib.suppress(InvalidSpec):
        assert spec_from_table(table, default_name="@local/x").serving.concurrency >= 1
