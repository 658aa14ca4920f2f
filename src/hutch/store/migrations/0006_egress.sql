-- Which hosts a sandbox may reach, and which it asked for. Both go with the sandbox.

CREATE TABLE egress_rules (
    sandbox_id TEXT NOT NULL PRIMARY KEY,
    rules TEXT NOT NULL, -- JSON, with the secrets of headers
    revision BIGINT NOT NULL,
    in_force BIGINT NOT NULL -- the revision that the process which runs the sandbox goes by
);

CREATE TABLE egress_log (
    record_id INTEGER PRIMARY KEY, -- SQLite numbers these itself
    sandbox_id TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    method TEXT NOT NULL,
    host TEXT NOT NULL,
    port BIGINT NOT NULL,
    verdict TEXT NOT NULL,
    rule TEXT NOT NULL,
    reason TEXT NOT NULL,
    status BIGINT,
    sent_bytes BIGINT NOT NULL,
    received_bytes BIGINT NOT NULL,
    duration_ms DOUBLE PRECISION NOT NULL
);

CREATE INDEX egress_log_by_sandbox ON egress_log (sandbox_id, record_id);
