"""fornada.toml, environment and flags."""

from pathlib import Path

import pytest

from fornada.app.config import ConfigError, load


def written(folder: Path, text: str) -> Path:
    path = folder / "fornada.toml"
    path.write_text(text)
    return path


def test_flags_beat_the_environment_and_the_environment_beats_the_file(tmp_path: Path) -> None:
    config = written(tmp_path, '[provision]\nmirror = "/from/file"\n')
    settings = load(config, {"port": 1}, {"FORNADA_PORT": "2", "FORNADA_HOST": "::1", "FORNADA_MIRROR": "/from/environment"})
    assert (settings.port, settings.host, settings.provision.mirror) == (1, "::1", "/from/environment")


def test_the_numbers_that_are_promised_are_the_defaults() -> None:
    settings = load(None, {}, {})
    node = settings.node
    assert (settings.host, settings.port, settings.server.max_bundle) == ("127.0.0.1", 8250, "64MiB")
    assert settings.server.max_buffered == "10%"
    assert (node.drain_s, node.kill_s, node.max_wait_s, node.backoff_s, node.grace_s) == (30, 5, 60, 1, 10)
    assert (node.packed_members, node.packed_memory, node.park_after_s) == (64, "1GiB", 5)


def test_fake_devices_are_read(tmp_path: Path) -> None:
    settings = load(
        written(tmp_path, '[devices]\ncpu = { budget = "2GiB" }\nfake = [{ total = "8GiB", release_delay_ms = 3000 }, {}]\n'), {}, {}
    )
    assert [fake.release_delay_ms for fake in settings.devices.fake] == [3000.0, 0.0]
    assert settings.devices.cpu.budget == "2GiB"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[node]\nmax_residnt = 1", "did you mean 'max_resident'"),
        ("[nodes]\n", "did you mean 'node'"),
        ("[node]\ndrain_s = -1", "[node] drain_s"),
        ("[node]\nbackoff_s = 90", "bound of 60"),
        ('[node]\nlog_bytes = "much"', "[node] log_bytes"),
        ('[node]\npacked_memory = "much"', "[node] packed_memory"),
        ("[node]\npacked_members = -1", "[node] packed_members"),
        ("[devices]\nfake = [{ totl = 1 }]", "did you mean 'total'"),
        ('[devices]\nfake = [{ total = "x" }]', "fake[0].total"),
        ("[node", "no TOML"),
        ("x = " + "[" * 5000, "no TOML"),
        ("[node]\nmax_resident = " + "9" * 5000, "no TOML"),
        ("[devices]\nfake = 3", "devices.fake"),
        ("[devices]\nfake = [{ release_delay_ms = -1 }]", "fake[0].release_delay_ms"),
        ('[devices]\nreserve = "100%"', "[devices] reserve"),
        ('[devices]\nreserve = "some%"', "[devices] reserve"),
        ("[server]\nmax_connections = 0", "serve nobody"),
        ('[node]\nmax_resident = "two"', "max_resident"),
        ('[outbound]\nallow_private = ["store.internal"]\n', "write host:port"),
        ('[server]\nmax_buffered = "120%"\n', "[server] max_buffered = '120%' is no share"),
        ('[server]\nmax_buffered = "much"\n', "[server] max_buffered"),
        ('[outbound]\nallow_private = ["::1:80"]\n', "brackets"),
        ('[provision]\nallow_files = ["weights"]\n', "no absolute path"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(written(tmp_path, text), {}, {})
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"host": "0.0.0.0"}, "no keys"),
        ({"host": "example.org"}, "no keys"),
        ({"port": "http"}, "is no number"),
        ({"port": 70000}, "65535"),
        ({"data_dir": "~nobody-of-that-name/x"}, "no home directory"),
        ({"isolation": "total"}, "no such level"),
        ({"config_missing": 1}, "config_missing"),
    ],
)
def test_a_flag_that_can_not_be_honoured_is_refused(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(None, flags, {})
    assert said in str(refusal.value)
