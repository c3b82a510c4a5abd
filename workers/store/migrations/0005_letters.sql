-- Later answers for conversations of the terminal, which nobody may be looking at when they come.

CREATE TABLE letters (
    -- Never used again, so that a reader can go on from the last one that it saw.
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The delivery: the same one is left once.
    key          TEXT NOT NULL UNIQUE CHECK (octet_length(key) BETWEEN 1 AND 256),
    conversation TEXT NOT NULL CHECK (octet_length(conversation) BETWEEN 1 AND 512),
    text         TEXT NOT NULL CHECK (octet_length(text) <= 1048576),
    created_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX letters_of_conversation ON letters (conversation, number);
