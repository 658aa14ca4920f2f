-- Which worker of a cluster runs a sandbox. What was there before belongs to the one server that there was.

ALTER TABLE sandboxes ADD COLUMN worker_id TEXT NOT NULL DEFAULT 'standalone';

ALTER TABLE sandboxes ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;

CREATE INDEX sandboxes_by_worker ON sandboxes (worker_id, deadline_at);
