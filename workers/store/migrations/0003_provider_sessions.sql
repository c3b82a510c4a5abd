-- Whether what a provider's session remembers can be trusted to equal the history.

CREATE TABLE provider_sessions (
    conversation INTEGER PRIMARY KEY REFERENCES conversations (key) ON DELETE CASCADE,
    -- A session made under another epoch is not to be resumed.
    epoch        TEXT NOT NULL,
    -- Grows by one with every change of the history.
    revision     INTEGER NOT NULL DEFAULT 0,
    -- The run that may have changed the provider's side without a commit; NULL when clean.
    dirty        TEXT,
    dirty_since  INTEGER CHECK ((dirty_since IS NULL) = (dirty IS NULL))
) STRICT;

-- Conversations from before have no session that could be trusted: each starts a new epoch.
INSERT INTO provider_sessions (conversation, epoch, revision)
SELECT key, lower(hex(randomblob(16))), next_seq - 1 FROM conversations;

-- Revision that a run began from and that its commit produced.
ALTER TABLE runs ADD COLUMN base_revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN revision INTEGER;
UPDATE runs SET revision = 0 WHERE status = 'succeeded';

-- Appends without a run (a delivered answer that is entered into the history afterwards).
CREATE TABLE appends (
    key          TEXT PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 256),
    conversation INTEGER NOT NULL REFERENCES conversations (key) ON DELETE CASCADE,
    digest       BLOB NOT NULL CHECK (length(digest) = 32),
    revision     INTEGER NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX appends_of_conversation ON appends (conversation);
