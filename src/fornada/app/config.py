"""Reads fornada.toml, the environment and the flags into Settings. Nothing else reads any of the three.

Precedence: flag, environment, file, default.
"""

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from fornada.core.keys import RPM_MOST
from fornada.core.policy.outbound import parse_place
from fornada.core.resources import parse_size
from fornada.core.settings import SECTIONS, DevicesSettings, FakeDeviceSettings, Settings
from fornada.node.whole_path import whole_path

ENVIRONMENT = {
    "FORNADA_HOST": "host",
    "FORNADA_PORT": "port",
    "FORNADA_DATA_DIR": "data_dir",
    "FORNADA_ISOLATION": "isolation",
}
"""Variable -> the flag it stands for. FORNADA_CONFIG names the file, FORNADA_MIRROR is [provision] mirror."""

ISOLATION_LEVELS = ("auto", "full", "namespaces", "landlock", "none")


class ConfigError(Exception):
    """The configuration can't be used. The message is one line: where, what stands there, what may stand there."""


def load(config: Path | None, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Settings from the file `config` (or FORNADA_CONFIG), `environ` and `flags` (None: not given). Raises ConfigError."""
    named = config or (Path(environ["FORNADA_CONFIG"]) if environ.get("FORNADA_CONFIG") else None)
    table = _read(named) if named else {}
    if environ.get("FORNADA_MIRROR"):
        table["provision"] = {**table.get("provision", {}), "mirror": environ["FORNADA_MIRROR"]}
    given: dict[str, Any] = dict(table)
    for variable, flag in ENVIRONMENT.items():
        if environ.get(variable):
            given[flag] = environ[variable]
    given.update({key: value for key, value in flags.items() if value is not None})
    server = table.get("server")
    if isinstance(server, dict):
        for key in ("tls_cert", "tls_key"):
            if isinstance(server.get(key), str) and server[key]:
                # Processes of the node have other working directories than whoever started it.
                server[key] = str(whole_path(server[key]))
    given["port"] = _port(given.get("port", Settings().port))
    try:
        given["data_dir"] = str(whole_path(given.get("data_dir") or default_data_dir(environ)))
    except RuntimeError:
        raise ConfigError("there is no home directory for the data; name a directory with --data-dir") from None
    try:
        settings = msgspec.convert(given, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{named or 'configuration'}: {error}") from None
    _check(settings)
    return settings


def quiet_grpc() -> None:
    """Before grpcio is loaded: its library would write on the node's stderr by itself, for each handshake that fails."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def environment() -> Mapping[str, str]:
    """The process's environment, for `load` and for those who only show it (doctor, the client's default address)."""
    return os.environ


def default_data_dir(environ: Mapping[str, str]) -> str:
    """/var/lib/fornada for root, $XDG_DATA_HOME/fornada for anybody else."""
    if os.geteuid() == 0:
        return "/var/lib/fornada"
    data_home = environ.get("XDG_DATA_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".local/share")
    return str(Path(data_home) / "fornada")


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; --config must name a readable file") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: no TOML: {error}") from None
    _refuse_unknown(table, tuple(SECTIONS), f"{path}:")
    for name, struct in SECTIONS.items():
        section = table.get(name, {})
        if not isinstance(section, dict):
            raise ConfigError(f"{path}: [{name}] must be a table")
        _refuse_unknown(section, struct.__struct_fields__, f"{path}: [{name}]")
    fakes = table.get("devices", {}).get("fake", [])
    for fake in fakes if isinstance(fakes, list) else []:
        if isinstance(fake, dict):
            _refuse_unknown(fake, FakeDeviceSettings.__struct_fields__, f"{path}: [devices] fake")
            _take_numbers(fake, ("total", "foreign"))
    for name, keys in _SIZES.items():
        _take_numbers(table.get(name, {}), keys)
    _take_numbers(table.get("devices", {}).get("cpu"), ("budget",))
    return table


def _take_numbers(table: Any, keys: tuple[str, ...]) -> None:
    """A size may be written as a number of bytes."""
    for key in keys:
        if isinstance(table, dict) and type(table.get(key)) is int:  # true is an int to Python and no size
            table[key] = str(table[key])


def _refuse_unknown(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}"
            raise ConfigError(f"{where} unknown key '{key}'; {hint}")


def _port(value: Any) -> int:
    try:
        port = int(value)
    except (TypeError, ValueError):
        raise ConfigError(f"port '{value}' is no number; 0 takes any free port") from None
    if not 0 <= port <= 65535:
        raise ConfigError(f"port {port} must lie between 0 and 65535; 0 takes any free port")
    return port


def _check(settings: Settings) -> None:
    if settings.isolation not in ISOLATION_LEVELS:
        raise ConfigError(f"--isolation {settings.isolation}: no such level; levels are {', '.join(ISOLATION_LEVELS)}")
    for section, keys in _NOT_NEGATIVE.items():
        for key in keys:
            value = getattr(getattr(settings, section), key)
            if not 0 <= value < float("inf"):
                raise ConfigError(f"[{section}] {key} = {value} must be a finite number and not negative")
    if settings.server.max_connections < 1:
        raise ConfigError("[server] max_connections = 0 would serve nobody")
    for number, fake in enumerate(settings.devices.fake):
        if not 0 <= fake.release_delay_ms < float("inf"):
            raise ConfigError(f"[devices] fake[{number}].release_delay_ms = {fake.release_delay_ms} must be finite and not negative")
    for where, share in (("[devices] reserve", settings.devices.reserve), ("[server] max_buffered", settings.server.max_buffered)):
        if share.endswith("%") and not re.fullmatch(r"\d{1,2}(\.\d+)?%", share):
            raise ConfigError(f"{where} = '{share}' is no share; write e.g. \"3%\", less than 100%, or a size")
    for where, size in _sizes(settings):
        try:
            parse_size(size)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
    _check_devices(settings.devices)
    for place in settings.outbound.allow_private:
        try:
            parse_place(place)
        except ValueError as error:
            raise ConfigError(f"[outbound] allow_private: {error}; write host:port") from None
    for folder in settings.provision.allow_files or []:
        if not folder.startswith(("/", "~/")):
            raise ConfigError(f"[provision] allow_files = '{folder}' is no absolute path of a directory")
    for account, weight in settings.node.account_weights.items():
        if not LEAST_WEIGHT <= weight <= 1 / LEAST_WEIGHT:
            raise ConfigError(f"[node] account_weights: {account} = {weight} must be from {LEAST_WEIGHT:g} to {1 / LEAST_WEIGHT:g}")
    for name, limits in (("account_rpm", settings.auth.account_rpm), ("account_neurons", settings.auth.account_neurons)):
        for account, most in limits.items():
            if not 0 < most < float("inf") or (name == "account_rpm" and most > RPM_MOST):
                raise ConfigError(f"[auth] {name}: {account} = {most} must be above 0, and requests a minute at most {RPM_MOST}")
    if settings.server.tls_key and not settings.server.tls_cert:
        raise ConfigError("[server] tls_key is of no use without tls_cert, the certificate that it belongs to")
    if settings.node.backoff_s > 60:
        raise ConfigError(f"[node] backoff_s = {settings.node.backoff_s} is more than its bound of 60")


LEAST_WEIGHT = 0.001
"""Of an account; the inverse is the most."""
_SIZES = {
    "node": ("spares_memory", "disk_budget", "packed_memory", "record_choices", "log_bytes"),
    "devices": ("reserve", "slack"),
    "server": ("max_bundle", "max_buffered"),
    "jobs": ("max_files",),
    "finetunes": ("max_file",),
}
_NOT_NEGATIVE = {
    "node": (
        "max_resident",
        "drain_s",
        "kill_s",
        "cancel_s",
        "max_wait_s",
        "spares",
        "job_delay_s",
        "park_after_s",
        "backoff_s",
        "grace_s",
        "packed_members",
    ),
    "server": ("grpc_port", "header_bytes", "header_timeout_s", "body_timeout_s", "idle_timeout_s", "max_connections"),
    "jobs": ("max_items", "expire_s", "keep_s"),
    "finetunes": ("max_per_account", "max_rank"),
}


def _sizes(settings: Settings) -> list[tuple[str, str]]:
    found = [
        ("[node] log_bytes", settings.node.log_bytes),
        ("[node] packed_memory", settings.node.packed_memory),
        ("[node] record_choices", settings.node.record_choices),
        ("[node] spares_memory", settings.node.spares_memory),
        ("[server] max_bundle", settings.server.max_bundle),
        ("[jobs] max_files", settings.jobs.max_files),
        ("[finetunes] max_file", settings.finetunes.max_file),
    ]
    if settings.node.disk_budget:
        found.append(("[node] disk_budget", settings.node.disk_budget))
    if settings.devices.cpu.budget:
        found.append(("[devices] cpu.budget", settings.devices.cpu.budget))
    if not settings.server.max_buffered.endswith("%"):
        found.append(("[server] max_buffered", settings.server.max_buffered))
    if not settings.devices.reserve.endswith("%"):
        found.append(("[devices] reserve", settings.devices.reserve))
    found.append(("[devices] slack", settings.devices.slack))
    for number, fake in enumerate(settings.devices.fake):
        found += [(f"[devices] fake[{number}].total", fake.total), (f"[devices] fake[{number}].foreign", fake.foreign)]
        found.append((f"[devices] fake[{number}].bandwidth", fake.bandwidth.removesuffix("/s")))
    return found


def _check_devices(devices: DevicesSettings) -> None:
    """What nothing would ever fit on, and what would mean the opposite of what it says. Sizes have been read before. Raises ConfigError."""
    if devices.cpu.budget and not parse_size(devices.cpu.budget):
        raise ConfigError("[devices] cpu.budget = 0 would leave models no memory; leave it out for all that the machine allows")
    for number, fake in enumerate(devices.fake):
        total, foreign = parse_size(fake.total), parse_size(fake.foreign)
        if not total:
            raise ConfigError(f"[devices] fake[{number}].total = 0 is no device")
        if foreign > total:
            raise ConfigError(f"[devices] fake[{number}].foreign = {fake.foreign} is more than its total, {fake.total}")


def is_loopback(host: str) -> bool:
    """Whether `host` (a name or an address) can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
