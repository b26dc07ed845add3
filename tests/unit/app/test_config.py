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
    assert node.cancel_s == 30
    assert (node.packed_members, node.packed_memory, node.park_after_s) == (64, "1GiB", 5)
    assert (settings.devices.reserve, settings.devices.slack) == ("3%", "64MiB")


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
        ('[node]\nspares_memory = "much"', "[node] spares_memory"),
        ("[node]\npacked_members = -1", "[node] packed_members"),
        ("[devices]\nfake = [{ totl = 1 }]", "did you mean 'total'"),
        ('[devices]\nfake = [{ total = "x" }]', "fake[0].total"),
        ("[node", "no TOML"),
        ("x = " + "[" * 5000, "no TOML"),
        ("[node]\nmax_resident = " + "9" * 5000, "no TOML"),
        ("[devices]\nfake = 3", "devices.fake"),
        ('[devices]\nfake = [{ total = "0" }]', "fake[0].total = 0 is no device"),
        ('[devices]\nfake = [{ total = "1GiB", foreign = "2GiB" }]', "fake[0].foreign = 2GiB is more than its total, 1GiB"),
        ('[devices]\ncpu = { budget = "0" }', "leave it out for all that the machine allows"),
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


def test_a_size_may_be_a_number_of_bytes(tmp_path: Path) -> None:
    text = """
        node = { spares_memory = 0, disk_budget = 9, packed_memory = 1048576, log_bytes = 7 }
        devices = { reserve = 5, slack = 0, cpu = { budget = 6 }, fake = [{ total = 8, foreign = 3 }] }
        server = { max_bundle = 4, max_buffered = 2 }
    """
    found = load(written(tmp_path, text), {}, {})
    node, devices, server = found.node, found.devices, found.server
    assert (node.spares_memory, node.disk_budget, node.packed_memory, node.log_bytes) == ("0", "9", "1048576", "7")
    assert (devices.reserve, devices.slack, devices.cpu.budget) == ("5", "0", "6")
    assert (devices.fake[0].total, devices.fake[0].foreign) == ("8", "3")
    assert (server.max_bundle, server.max_buffered) == ("4", "2")


@pytest.mark.parametrize("size", ["-1", "true", "1.5"])
def test_what_is_no_number_of_bytes_is_no_size(tmp_path: Path, size: str) -> None:
    with pytest.raises(ConfigError, match="spares_memory"):
        load(written(tmp_path, f"[node]\nspares_memory = {size}\n"), {}, {})
