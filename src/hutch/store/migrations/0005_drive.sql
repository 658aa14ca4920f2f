-- The drive: files of users. Paths are compared byte by byte, so that those below a folder are one range of an index.

CREATE TABLE drive_owners (
    owner_id INTEGER PRIMARY KEY, -- SQLite numbers these itself
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    bytes BIGINT NOT NULL DEFAULT 0,
    kept_bytes BIGINT NOT NULL DEFAULT 0, -- of earlier versions and of deleted files
    files BIGINT NOT NULL DEFAULT 0,
    UNIQUE (tenant, user_id)
);

-- A deleted file keeps its row for a while, with its versions.
CREATE TABLE drive_files (
    file_id INTEGER PRIMARY KEY, -- SQLite numbers these itself
    owner_id BIGINT NOT NULL REFERENCES drive_owners (owner_id),
    path TEXT COLLATE BINARY NOT NULL,
    folder TEXT COLLATE BINARY NOT NULL,
    version BIGINT NOT NULL,
    latest BIGINT NOT NULL, -- the last number given: none is given twice
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    modified_at DOUBLE PRECISION NOT NULL,
    deleted_at DOUBLE PRECISION,
    changes BIGINT NOT NULL, -- what the indexes below have seen is compared with this
    words_seen BIGINT NOT NULL DEFAULT 0,
    meaning_seen BIGINT NOT NULL DEFAULT 0,
    meaning_model TEXT NOT NULL DEFAULT '',
    index_after DOUBLE PRECISION NOT NULL DEFAULT 0,
    UNIQUE (owner_id, path)
);

CREATE INDEX drive_files_by_folder ON drive_files (owner_id, folder, path);

CREATE INDEX drive_files_without_words ON drive_files (index_after) WHERE words_seen <> changes;

CREATE INDEX drive_files_without_meaning ON drive_files (index_after) WHERE meaning_seen <> changes;

CREATE INDEX drive_files_deleted ON drive_files (deleted_at) WHERE deleted_at IS NOT NULL;

-- Folders are there while files are below them.
CREATE TABLE drive_folders (
    owner_id BIGINT NOT NULL,
    path TEXT COLLATE BINARY NOT NULL,
    parent TEXT COLLATE BINARY NOT NULL,
    files BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    modified_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (owner_id, path)
);

CREATE INDEX drive_folders_by_parent ON drive_folders (owner_id, parent, path);

CREATE TABLE drive_versions (
    file_id BIGINT NOT NULL,
    version BIGINT NOT NULL,
    owner_id BIGINT NOT NULL,
    content_id BIGINT NOT NULL,
    size_bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (file_id, version)
);

CREATE INDEX drive_versions_by_content ON drive_versions (content_id);

CREATE INDEX drive_versions_by_owner ON drive_versions (owner_id, created_at);

-- Content is written once and never changed. What no version names is being written, or was left behind.
CREATE TABLE drive_contents (
    content_id INTEGER PRIMARY KEY, -- SQLite numbers these itself
    owner_id BIGINT NOT NULL,
    written_at DOUBLE PRECISION -- the last piece; NULL once a version names it
);

CREATE INDEX drive_contents_unnamed ON drive_contents (written_at) WHERE written_at IS NOT NULL;

CREATE TABLE drive_chunks (
    content_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (content_id, number)
);

-- Passages of files in the numbers of an embedding model, as little-endian 32-bit floats.
CREATE TABLE drive_passages (
    owner_id BIGINT NOT NULL,
    file_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    model TEXT NOT NULL,
    starts BIGINT NOT NULL,
    ends BIGINT NOT NULL,
    embedding BLOB, -- PostgreSQL keeps it in a column of pgvector's own, made when first needed
    PRIMARY KEY (owner_id, file_id, number)
);
