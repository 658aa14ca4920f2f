-- Which database this is, for data folders to know theirs by; and which key made a preview, which ends with it.

CREATE TABLE identity (
    database_id TEXT NOT NULL PRIMARY KEY
);

ALTER TABLE preview_tokens ADD COLUMN key_id TEXT NOT NULL DEFAULT '';
