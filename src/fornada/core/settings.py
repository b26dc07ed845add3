"""What the operator sets: fornada.toml as frozen types. `app.config` reads the file; the parts receive their section."""

from typing import Any

import msgspec


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[node]"""

    max_resident: int = 0
    """Models resident at the same time, without those that are asleep; 0 = no limit by count."""
    drain_s: float = 30.0
    """How long running work may go on after SIGTERM, an unload or an eviction, and how long falling asleep may take after that."""
    kill_s: float = 5.0
    """From SIGTERM to SIGKILL of a runner."""
    cancel_s: float = 30.0
    """How long a request may hold its place in a model after its caller left or was told that the deadline has passed, and after it has taken
    the model's timeout_s: code that heeds no cancellation. Then its process is killed, and another one takes its place. 0: never."""
    max_wait_s: float = 60.0
    """Bound of any wait behind a swap, counted from the end of building and fetching."""
    spares: int = 1
    """Parked spares per hot environment: processes that are forked ahead of need, and become the next instance."""
    spares_memory: str = "64MiB"
    """Bytes that all parked spares may take together."""
    zygotes: bool = True
    """Models of an environment that is in use are forked from a process that has imported its packages. false: each imports them."""
    scratch_in_memory: bool = True
    """Scratch directories lie in memory where models have mounts of their own (isolation full and namespaces): the kernel bounds them, and
    they count as memory of who fills them. false: on disk, where a model that means harm may hold much more than it declares."""
    account_weights: dict[str, float] = {}
    """Shares of accounts whose requests wait for the same model, e.g. { team-a = 3, team-b = 0.5 }; 1 where nothing is said."""
    job_delay_s: float = 0.05
    """How long a request may wait for items of jobs that hold all places of its model: one that is expected to take longer gives way, and is
    done again later. A model whose code can't be interrupted goes on to the item's end all the same."""
    park_after_s: float = 5.0
    """Idle time after which an instance is parked: its processes are stopped, and go on with the next request. 0: never."""
    prefetch: bool = False
    """A model that will probably be asked within five minutes, by how often it was asked of late and at this hour of day, is brought up before
    anybody asks: into memory that nobody wants, and first to go. Costs starts that turn out to be in vain."""
    backoff_s: float = 1.0
    """First wait after a failed load; doubles to 60 s, reset by success or `reset`."""
    grace_s: float = 10.0
    """How long the keeper waits for a control plane before it ends everything."""
    disk_budget: str = ""
    """Bytes that environments, artifacts, bundles, the packages' cache and the store with its jobs may take together: beyond it nothing is built
    or fetched; empty: no bound but the disk's."""
    packed_members: int = 64
    """Models without code (engines onnx and litert) that share one process at most; 0: each has one of its own."""
    packed_memory: str = "1GiB"
    """Bound of the memory of one such process; what doesn't fit beside the others gets another."""
    record_choices: str = "0"
    """Bytes kept of what decided about memory and what was decided: each request's time and model, each plan with all that it saw, one
    JSON object a line, in DATA_DIR/logs/choices.log. To find out why something had to wait; 0: nothing is written."""
    log_bytes: str = "16MiB"
    """Bytes kept of one model's own output, and of the node's log."""


class FakeDeviceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of [devices] fake."""

    total: str = "8GiB"
    """Memory that the device pretends to have."""
    release_delay_ms: float = 0.0
    """Time from a process's end until its memory counts as free."""
    foreign: str = "0"
    """Memory that somebody else holds."""
    bandwidth: str = "8GiB/s"
    """Speed at which memory goes to the host when a model falls asleep, and back when it wakes."""


class CpuSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[devices] cpu"""

    budget: str = ""
    """Host memory for models; empty: what the machine and the cgroups around the node allow, less the reserve."""


class DevicesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[devices]"""

    cpu: CpuSettings = CpuSettings()
    """The machine's own memory."""
    reserve: str = "3%"
    """Kept back on every device for what nobody declared: a share in percent, or a size."""
    slack: str = "64MiB"
    """Added to what each instance is charged: its declared or learned peak, or what it holds. On fake devices both are 0 unless set."""
    fake: list[FakeDeviceSettings] = []
    """Devices for tests: cuda:0, cuda:1, ... after the real ones, with memory on paper."""


class ProvisionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[provision]"""

    index: str = ""
    """Package index instead of the one that the environment names."""
    find_links: list[str] = []
    """Directories or pages with wheels, asked beside the index."""
    offline: bool = False
    """Never ask the network: only the cache, find_links directories and the mirror."""
    cache_dir: str = ""
    """uv's cache; empty: DATA_DIR/cache/uv."""
    mirror: str = ""
    """Asked before any artifact source: a directory or a URL. FORNADA_MIRROR sets it."""
    allow_files: list[str] | None = None
    """Directories beneath which the `file:` sources of artifacts may lie; [] for none. Unless set: any file while there are no keys
    (only this machine can deploy then), else none."""


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[auth]"""

    cors: list[str] = []
    """Origins beyond the local ones that browsers may call from."""
    account_rpm: dict[str, int] = {}
    """Requests a minute that all keys of an account may send together, e.g. { team-a = 600 }; no bound where nothing is said."""
    account_neurons: dict[str, float] = {}
    """Neurons that an account may use a day (UTC), e.g. { team-a = 10000 }; no bound where nothing is said."""


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[server]"""

    grpc_port: int = 0
    """Port of the Open Inference Protocol over gRPC, at the addresses and with the certificates of HTTP; 0: none."""
    header_bytes: int = 32768
    """Request line and headers together."""
    header_timeout_s: float = 10.0
    """Until the headers are complete."""
    body_timeout_s: float = 60.0
    """Between two pieces of a body."""
    idle_timeout_s: float = 75.0
    """Between two requests of a connection."""
    max_connections: int = 4096
    """Open at the same time; the next one is refused with 503 and closed. As many over gRPC at each address, where the next one is closed."""
    max_bundle: str = "64MiB"
    """A deployed bundle."""
    tls_cert: str = ""
    """A file with the certificate chain in PEM: the node speaks HTTPS (TLS 1.2 and newer) instead of HTTP. Replaced files are taken within
    seconds; files that can't be used leave what was there before."""
    tls_key: str = ""
    """A file with its key in PEM, without a password; empty: the key stands in tls_cert, too."""
    max_buffered: str = "10%"
    """Bodies of all requests together, while they come and until they are answered; beyond it requests with a body of more than 16 KiB
    are refused with Retry-After. A share of the memory that the node may use, in percent, or a size."""


class OutboundSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[outbound]"""

    allow_private: list[str] = []
    """host:port pairs that may be reached although private: by the node itself for artifacts and webhooks, and for models whose
    model.toml names them. The mirror, the package index and HF_ENDPOINT are the operator's own words, and need no line here."""


class JobsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[jobs]"""

    max_items: int = 100_000
    """Requests in all jobs of one account that have not ended; a job beyond it is refused with Retry-After."""
    expire_s: float = 86400.0
    """A job that isn't done so long after it was accepted is expired, unless it names a time of its own."""
    keep_s: float = 7 * 86400.0
    """How long a job that has ended can be asked for, and how long a file that was handed in is kept."""
    webhook_secret: str = ""
    """What webhooks are signed with; empty: a secret that the node makes once and keeps in DATA_DIR/webhook.secret."""
    max_files: str = "1GiB"
    """Bytes of all files of one account; one beyond it is refused."""


class FinetuneSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[finetunes]"""

    max_per_account: int = 100
    """Adapters (LoRA) that an account may have."""
    max_file: str = "300MiB"
    """One file of an adapter."""
    max_rank: int = 32
    """The largest rank that an adapter may have."""


class GatewaysSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[gateway]"""

    cache: str = "64MiB"
    """Memory for the answers that AI gateways keep, of all accounts together; who holds the most gives way first."""
    max_logs: str = "64MiB"
    """Logs of all gateways of one account; beyond it a gateway's log_management_strategy counts."""
    max_log_body: str = "64KiB"
    """Of what was asked, and as much of what was answered, that a log keeps."""
    keep_logs_s: float = 30 * 86400.0
    """How long a log is kept."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """fornada.toml with flags and environment applied."""

    node: NodeSettings = NodeSettings()
    devices: DevicesSettings = DevicesSettings()
    provision: ProvisionSettings = ProvisionSettings()
    auth: AuthSettings = AuthSettings()
    server: ServerSettings = ServerSettings()
    outbound: OutboundSettings = OutboundSettings()
    jobs: JobsSettings = JobsSettings()
    finetunes: FinetuneSettings = FinetuneSettings()
    gateway: GatewaysSettings = GatewaysSettings()
    # Not in the file: decided at start
    host: str = "127.0.0.1"
    port: int = 8250
    data_dir: str = ""
    isolation: str = "auto"
    """A level of keeper.levels, or auto: the best that the machine gives, never none."""
    ready_example: bool = False
    """Prepare the example model and print the curl line (make serve)."""


SECTIONS: dict[str, Any] = {
    "node": NodeSettings,
    "devices": DevicesSettings,
    "provision": ProvisionSettings,
    "auth": AuthSettings,
    "server": ServerSettings,
    "outbound": OutboundSettings,
    "jobs": JobsSettings,
    "finetunes": FinetuneSettings,
    "gateway": GatewaysSettings,
}
