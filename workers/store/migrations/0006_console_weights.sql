-- The sum of a thread is read from here with every message that is saved: without it, from the rows
-- themselves, whose texts stand before their sizes.
CREATE INDEX console_messages_weights ON console_messages (thread, bytes);
