-- What people see in the web console: threads, messages, logins. The history that runs start from
-- stays in `conversations`; these rows are what a person wrote and was shown.

CREATE TABLE console_threads (
    key        INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE CHECK (octet_length(id) BETWEEN 1 AND 64),
    title      TEXT NOT NULL DEFAULT '' CHECK (length(title) <= 80),
    -- A person gave the title.
    locked     INTEGER NOT NULL DEFAULT 0 CHECK (locked IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    archived   INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1)),
    unread     INTEGER NOT NULL DEFAULT 0 CHECK (unread IN (0, 1)),
    -- Grows when a person edits and resends: the agent's own history begins anew.
    branch     INTEGER NOT NULL DEFAULT 0,
    -- Sum of console_messages.bytes, kept in the transaction that changes them.
    bytes      INTEGER NOT NULL DEFAULT 0 CHECK (bytes >= 0)
) STRICT;

CREATE INDEX console_threads_by_activity ON console_threads (archived, updated_at, key);

CREATE TABLE console_messages (
    -- Grows with every message, so it is the order of a thread.
    key        INTEGER PRIMARY KEY,
    thread     INTEGER NOT NULL REFERENCES console_threads (key) ON DELETE CASCADE,
    id         TEXT NOT NULL UNIQUE CHECK (octet_length(id) BETWEEN 1 AND 64),
    role       TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
    status     TEXT NOT NULL
        CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'cancelled', 'interrupted')),
    created_at INTEGER NOT NULL,
    text       TEXT NOT NULL CHECK (octet_length(text) <= 1048576),
    -- Everything else, as JSON.
    detail     TEXT NOT NULL CHECK (octet_length(detail) <= 8388608 AND json_valid(detail)),
    bytes      INTEGER NOT NULL CHECK (bytes = octet_length(text) + octet_length(detail)),
    -- The channel that is to say how it ends; no meaning after a restart.
    lease      INTEGER NOT NULL
) STRICT;

CREATE INDEX console_messages_of_thread ON console_messages (thread, key);
CREATE INDEX console_messages_open ON console_messages (thread)
    WHERE status IN ('queued', 'running');

-- The words of titles and texts. They are not kept a second time: the index looks them up.
CREATE VIRTUAL TABLE console_titles USING fts5 (
    title, content = 'console_threads', content_rowid = 'key',
    tokenize = 'unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE console_texts USING fts5 (
    text, content = 'console_messages', content_rowid = 'key',
    tokenize = 'unicode61 remove_diacritics 2');

CREATE TRIGGER console_title_added AFTER INSERT ON console_threads BEGIN
    INSERT INTO console_titles (rowid, title) VALUES (new.key, new.title);
END;
CREATE TRIGGER console_title_changed AFTER UPDATE OF title ON console_threads BEGIN
    INSERT INTO console_titles (console_titles, rowid, title) VALUES ('delete', old.key, old.title);
    INSERT INTO console_titles (rowid, title) VALUES (new.key, new.title);
END;
CREATE TRIGGER console_title_removed AFTER DELETE ON console_threads BEGIN
    INSERT INTO console_titles (console_titles, rowid, title) VALUES ('delete', old.key, old.title);
END;
CREATE TRIGGER console_text_added AFTER INSERT ON console_messages BEGIN
    INSERT INTO console_texts (rowid, text) VALUES (new.key, new.text);
END;
CREATE TRIGGER console_text_changed AFTER UPDATE OF text ON console_messages BEGIN
    INSERT INTO console_texts (console_texts, rowid, text) VALUES ('delete', old.key, old.text);
    INSERT INTO console_texts (rowid, text) VALUES (new.key, new.text);
END;
CREATE TRIGGER console_text_removed AFTER DELETE ON console_messages BEGIN
    INSERT INTO console_texts (console_texts, rowid, text) VALUES ('delete', old.key, old.text);
END;

CREATE TABLE console_sessions (
    id           TEXT PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 64),
    -- SHA-256 of the cookie's secret, in hex; the secret itself is nowhere.
    hash         TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
    created_at   INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    user_agent   TEXT NOT NULL CHECK (octet_length(user_agent) <= 512)
) STRICT, WITHOUT ROWID;
