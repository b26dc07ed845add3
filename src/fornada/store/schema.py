"""The tables, and how an older file becomes one of this release. Each migration is one release's change, never edited later."""

FIRST = """
CREATE TABLE versions (
    model TEXT NOT NULL,
    digest TEXT NOT NULL,
    account TEXT NOT NULL,
    spec BLOB NOT NULL,             -- ModelSpec as JSON
    folder TEXT NOT NULL,           -- relative to the store's folder where it lies below it
    lock TEXT NOT NULL,
    created REAL NOT NULL,          -- seconds since 1970
    PRIMARY KEY (model, digest)
) STRICT;
CREATE TABLE models (
    name TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    stable TEXT NOT NULL,
    previous TEXT,
    canary TEXT,
    canary_share REAL NOT NULL DEFAULT 0,
    FOREIGN KEY (name, stable) REFERENCES versions (model, digest),
    FOREIGN KEY (name, previous) REFERENCES versions (model, digest),
    FOREIGN KEY (name, canary) REFERENCES versions (model, digest)
) STRICT;
CREATE TABLE pins (name TEXT PRIMARY KEY) STRICT;
CREATE TABLE counters (name TEXT PRIMARY KEY, loads INTEGER NOT NULL, attempts INTEGER NOT NULL) STRICT;
"""

SERVING = """
ALTER TABLE models ADD COLUMN serving TEXT;     -- the version that has taken the name; NULL where that is stable
"""

MEMORY = """
CREATE TABLE peaks (
    model TEXT NOT NULL,
    digest TEXT NOT NULL,
    device TEXT NOT NULL,           -- what it was measured on: cpu, or the name of a kind of card
    parameters TEXT NOT NULL,       -- what beside the version decides how much it takes
    device_bytes INTEGER NOT NULL,
    memory_bytes INTEGER NOT NULL,  -- of the host
    PRIMARY KEY (model, digest, device, parameters)
) STRICT;
CREATE TABLE fences (device TEXT PRIMARY KEY, reason TEXT NOT NULL) STRICT;
"""

JOBS = """
CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    kind TEXT NOT NULL,             -- the dialect that it came by
    target TEXT NOT NULL,           -- path and query of the request that each item stands for
    model TEXT NOT NULL,            -- as the caller named it
    status TEXT NOT NULL,
    total INTEGER NOT NULL,
    created REAL NOT NULL,          -- times are seconds since 1970; 0: not yet
    expires REAL NOT NULL,
    started REAL NOT NULL,
    ended REAL NOT NULL,
    note TEXT NOT NULL,             -- JSON of the dialect's own
    key TEXT,                       -- Idempotency-Key
    digest TEXT NOT NULL            -- of the order, to tell whether a second one with the key is the same
) STRICT;
CREATE UNIQUE INDEX jobs_by_key ON jobs (account, key) WHERE key IS NOT NULL;
CREATE INDEX jobs_by_end ON jobs (ended, account);
CREATE TABLE items (
    job TEXT NOT NULL REFERENCES jobs (id),
    number INTEGER NOT NULL,
    model TEXT NOT NULL,            -- whose turn it waits for
    reference TEXT,
    status TEXT NOT NULL DEFAULT 'queued',
    attempts INTEGER NOT NULL DEFAULT 0,
    http_status INTEGER,
    request_id TEXT,
    body BLOB NOT NULL,             -- empty once the job has ended
    answer BLOB,
    PRIMARY KEY (job, number)
) STRICT;
"""

KEYS = """
CREATE TABLE keys (
    id TEXT NOT NULL UNIQUE,
    account TEXT NOT NULL,
    role INTEGER NOT NULL,          -- core.keys.Role
    digest BLOB NOT NULL,           -- SHA-256 of the secret
    created REAL NOT NULL,          -- seconds since 1970
    revoked REAL,                   -- a revoked key stays: the node that once had keys is never open again by itself
    requests_per_minute INTEGER NOT NULL,
    neurons_per_day REAL NOT NULL,
    models TEXT NOT NULL            -- one a line; empty: all
) STRICT;
"""

FILES = """
CREATE TABLE files (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    purpose TEXT NOT NULL,
    size INTEGER NOT NULL,
    created REAL NOT NULL
) STRICT;
CREATE TABLE pieces (               -- written before their file, which is not there until then
    file TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (file, number)
) STRICT;
"""

HOOKS = """
CREATE TABLE hooks (
    job TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    next_at REAL NOT NULL,          -- seconds since 1970
    last TEXT NOT NULL
) STRICT;
CREATE INDEX hooks_by_time ON hooks (state, next_at);
"""

USAGE = """
CREATE TABLE usage (
    account TEXT NOT NULL,
    key TEXT NOT NULL,              -- id; empty where there was none
    model TEXT NOT NULL,
    day INTEGER NOT NULL,           -- since 1970, UTC
    requests INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    device_seconds REAL NOT NULL,
    neurons REAL NOT NULL,
    PRIMARY KEY (account, key, model, day)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_day ON usage (day);
CREATE TABLE journals (             -- of what happened since: how far each is in the sums
    name TEXT PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT;
"""

PACKED = """
DROP TABLE items;                   -- of jobs that no release had
DELETE FROM jobs;
DELETE FROM hooks;
CREATE TABLE asks (
    job TEXT NOT NULL,
    first INTEGER NOT NULL,         -- number of its first item
    named BLOB NOT NULL,            -- msgpack: [[model, reference], ...]
    bodies BLOB NOT NULL,           -- msgpack: [bytes, ...]; empty once the job has ended
    PRIMARY KEY (job, first)
) STRICT;
CREATE TABLE items (                -- those with an outcome, or with an attempt that counts
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'queued',
    attempts INTEGER NOT NULL DEFAULT 0,
    http_status INTEGER,
    request_id TEXT,
    answer BLOB,
    PRIMARY KEY (job, number)
) STRICT;
"""

CALLERS = """
ALTER TABLE jobs ADD COLUMN caller TEXT NOT NULL DEFAULT '';   -- id of the key that the job came with
"""

PROOFS = """
CREATE TABLE proofs (               -- which account has had which file from a source of its own
    sha256 TEXT NOT NULL,
    account TEXT NOT NULL,          -- empty: everybody
    PRIMARY KEY (sha256, account)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO proofs        -- models that are there go on without being fetched again
    SELECT json_extract(artifact.value, '$.sha256'), account
    FROM versions, json_each(CAST(versions.spec AS TEXT), '$.artifacts') AS artifact;
"""

FINETUNES = """
CREATE TABLE finetunes (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    model TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    public INTEGER NOT NULL,        -- 0, 1
    created REAL NOT NULL,          -- times are seconds since 1970
    modified REAL NOT NULL
) STRICT;
CREATE INDEX finetunes_by_account ON finetunes (account, name);
"""

RESPONSES = """
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    created REAL NOT NULL,          -- seconds since 1970
    size INTEGER NOT NULL,          -- bytes of the last three
    body BLOB NOT NULL,
    input BLOB NOT NULL,
    turns BLOB NOT NULL
) STRICT;
CREATE INDEX responses_by_account ON responses (account, created, size);
CREATE INDEX responses_by_time ON responses (created);
"""


GATEWAYS = """
CREATE TABLE gateways (
    account TEXT NOT NULL,
    id TEXT NOT NULL,
    settings BLOB NOT NULL,         -- core.gateway.GatewaySettings as JSON
    created REAL NOT NULL,
    modified REAL NOT NULL,
    PRIMARY KEY (account, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE gateway_logs (
    id TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    gateway TEXT NOT NULL,
    created REAL NOT NULL,
    size INTEGER NOT NULL,          -- bytes of the row, about
    record TEXT NOT NULL,           -- core.gateway.Log as JSON; before the bodies, so that a search reads none of them
    request BLOB NOT NULL,
    response BLOB NOT NULL
) STRICT;
CREATE INDEX gateway_logs_by_time ON gateway_logs (account, gateway, created);
CREATE INDEX gateway_logs_by_age ON gateway_logs (created);
"""

GATEWAY_INDEXES = """
DROP INDEX gateway_logs_by_time;                -- these answer alone how many there are, how large, and which are the oldest
CREATE INDEX gateway_logs_by_gateway ON gateway_logs (account, gateway, created, size);
CREATE INDEX gateway_logs_by_account ON gateway_logs (account, created, gateway, size);
"""

JOBS_BY_ACCOUNT = """
CREATE INDEX jobs_by_account ON jobs (account, kind, created);      -- a page of an account's list, whatever others have
"""

MIGRATIONS: tuple[str, ...] = (
    FIRST,
    SERVING,
    MEMORY,
    JOBS,
    KEYS,
    FILES,
    HOOKS,
    USAGE,
    PACKED,
    CALLERS,
    PROOFS,
    FINETUNES,
    RESPONSES,
    GATEWAYS,
    GATEWAY_INDEXES,
    JOBS_BY_ACCOUNT,
)
"""Number n takes a file from schema version n to n + 1."""

APPLICATION_ID = 0x464F524E
"""In the file's header ("FORN"), so that somebody else's SQLite file is told from ours."""
