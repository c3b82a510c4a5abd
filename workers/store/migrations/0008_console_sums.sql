-- What a thread holds is kept with every change of a message: a sum over all of them, for each one
-- that is saved, would make a long thread slow.

DROP INDEX console_messages_weights;

ALTER TABLE console_threads ADD COLUMN messages INTEGER NOT NULL DEFAULT 0 CHECK (messages >= 0);

UPDATE console_threads SET (bytes, messages) = (
    SELECT coalesce(sum(m.bytes), 0), count(*) FROM console_messages AS m
    WHERE m.thread = console_threads.key);

CREATE TRIGGER console_message_added AFTER INSERT ON console_messages BEGIN
    UPDATE console_threads SET bytes = bytes + new.bytes, messages = messages + 1
    WHERE key = new.thread;
END;
CREATE TRIGGER console_message_changed AFTER UPDATE OF bytes ON console_messages BEGIN
    UPDATE console_threads SET bytes = bytes + new.bytes - old.bytes WHERE key = new.thread;
END;
CREATE TRIGGER console_message_removed AFTER DELETE ON console_messages BEGIN
    UPDATE console_threads SET bytes = bytes - old.bytes, messages = messages - 1
    WHERE key = old.thread;
END;
