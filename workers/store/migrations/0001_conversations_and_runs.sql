-- Conversations with their history, and runs. Times are milliseconds since 1970 (UTC).
-- The checks repeat limits that the code enforces: a mistake there must not become a stored byte.

CREATE TABLE conversations (
    key        INTEGER PRIMARY KEY,
    -- The exact logical id; one with a "#2026-01-31" bucket is another conversation.
    id         TEXT NOT NULL UNIQUE CHECK (octet_length(id) BETWEEN 1 AND 512),
    created_at INTEGER NOT NULL,
    active_at  INTEGER NOT NULL,
    next_seq   INTEGER NOT NULL DEFAULT 1,
    -- Sum of messages.bytes, kept in the transaction that changes them.
    bytes      INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0)
) STRICT;

CREATE INDEX conversations_by_activity ON conversations (active_at, key);
CREATE INDEX conversations_by_size ON conversations (bytes);

CREATE TABLE messages (
    conversation INTEGER NOT NULL REFERENCES conversations (key) ON DELETE CASCADE,
    seq          INTEGER NOT NULL,
    -- The run, or the key of an append without one. No reference: a run's record may be retired
    -- before its messages.
    turn         TEXT NOT NULL,
    role         TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    -- The blocks as JSON.
    content      TEXT NOT NULL CHECK (octet_length(content) <= 65536 AND json_valid(content)),
    bytes        INTEGER NOT NULL CHECK (bytes = octet_length(content)),
    created_at   INTEGER NOT NULL,
    UNIQUE (conversation, seq)
) STRICT;

CREATE INDEX messages_of_turn ON messages (turn);

CREATE TABLE runs (
    -- Grows with every begin, so it is the order of listing.
    key           INTEGER PRIMARY KEY,
    id            TEXT NOT NULL UNIQUE CHECK (octet_length(id) BETWEEN 1 AND 200),
    -- No reference: the record of a run outlives an evicted conversation.
    conversation  TEXT NOT NULL CHECK (octet_length(conversation) BETWEEN 1 AND 512),
    -- The physical conversation, where the reply goes.
    delivery      TEXT NOT NULL CHECK (octet_length(delivery) BETWEEN 1 AND 512),
    source        TEXT NOT NULL,
    source_detail TEXT,
    model         TEXT NOT NULL,
    status        TEXT NOT NULL
        CHECK (status IN ('running', 'succeeded', 'failed', 'cancelled', 'interrupted')),
    started_at    INTEGER NOT NULL,
    ended_at      INTEGER CHECK ((ended_at IS NULL) = (status = 'running')),
    -- Beginning of the person's message.
    user_text     TEXT NOT NULL,
    failure_kind  TEXT,
    error         TEXT,
    -- What a turn that did not succeed had already said.
    partial_text  TEXT,
    -- The answer.
    final_text    TEXT,
    usage         TEXT CHECK (json_valid(usage)),
    parts         TEXT CHECK (json_valid(parts)),
    failovers     TEXT CHECK (json_valid(failovers)),
    -- SHA-256 of what was committed; tells a repeated commit from a different one.
    digest        BLOB CHECK (length(digest) = 32)
) STRICT;

CREATE INDEX runs_of_conversation ON runs (conversation, key);
CREATE INDEX runs_by_status ON runs (status, key);
