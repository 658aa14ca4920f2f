-- What a server keeps beside sandboxes: who may call, what was done, which previews are open.

CREATE TABLE api_keys (
    key_id TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    last_used_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION
);

CREATE TABLE audit (
    entry_id INTEGER PRIMARY KEY, -- SQLite numbers these itself
    at DOUBLE PRECISION NOT NULL,
    tenant TEXT NOT NULL,
    key_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    action TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    outcome TEXT NOT NULL,
    exit_code BIGINT,
    duration_ms DOUBLE PRECISION NOT NULL
);

CREATE INDEX audit_by_tenant ON audit (tenant, entry_id);

CREATE TABLE preview_tokens (
    token_id TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL,
    tenant TEXT NOT NULL,
    sandbox_id TEXT NOT NULL,
    port BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    revoked_at DOUBLE PRECISION
);

CREATE INDEX preview_tokens_by_sandbox ON preview_tokens (sandbox_id, port);
