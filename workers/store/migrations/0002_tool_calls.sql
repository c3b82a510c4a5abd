-- The lifecycle of every tool call of a run.

CREATE TABLE tool_calls (
    run          INTEGER NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    position     INTEGER NOT NULL,
    -- The model's id of the call; some models use one again within a run.
    call         TEXT NOT NULL CHECK (octet_length(call) BETWEEN 1 AND 256),
    name         TEXT NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 256),
    -- 'interrupted': the run ended while the call was out; it may or may not have had its effect.
    state        TEXT NOT NULL CHECK (state IN ('running', 'success', 'error', 'timeout',
        'cancelled', 'interrupted', 'rejected', 'exit_nonzero', 'signal')),
    arguments    TEXT NOT NULL CHECK (octet_length(arguments) <= 4096),
    preview      TEXT CHECK (octet_length(preview) <= 4096),
    started_at   INTEGER NOT NULL,
    completed_at INTEGER CHECK ((completed_at IS NULL) = (state = 'running')),
    PRIMARY KEY (run, position)
) STRICT;
