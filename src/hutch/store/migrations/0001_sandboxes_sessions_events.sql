-- Plain SQL that other databases read too. The one line of SQLite's own is marked.

CREATE TABLE sandboxes (
    sandbox_id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    template TEXT NOT NULL,
    provider TEXT NOT NULL,
    state TEXT NOT NULL,
    host_uid BIGINT UNIQUE,
    cwd TEXT NOT NULL, -- JSON: a path may hold bytes that are no text
    env TEXT NOT NULL, -- JSON
    created_at DOUBLE PRECISION NOT NULL,
    last_activity_at DOUBLE PRECISION NOT NULL,
    deadline_at DOUBLE PRECISION NOT NULL,
    deadline_action TEXT NOT NULL,
    idle_seconds DOUBLE PRECISION NOT NULL,
    pooled SMALLINT NOT NULL
);

CREATE INDEX sandboxes_by_deadline ON sandboxes (deadline_at);

CREATE INDEX sandboxes_by_state ON sandboxes (state);

CREATE INDEX sandboxes_pooled ON sandboxes (template, created_at) WHERE pooled = 1;

CREATE TABLE sessions (
    session_id TEXT NOT NULL PRIMARY KEY,
    tenant TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    sandbox_id TEXT NOT NULL UNIQUE REFERENCES sandboxes (sandbox_id),
    created_at DOUBLE PRECISION NOT NULL,
    timeout_seconds DOUBLE PRECISION NOT NULL,
    shared SMALLINT NOT NULL,
    UNIQUE (tenant, thread_id)
);

-- Events outlive their sandbox, so they do not refer to its row.
CREATE TABLE events (
    event_id INTEGER PRIMARY KEY, -- SQLite numbers these itself
    sandbox_id TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    event TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    detail TEXT NOT NULL
);

CREATE INDEX events_by_sandbox ON events (sandbox_id, event_id);
