-- The source of the run that began a conversation: only it and the operator go on there. NULL where
-- no run has been yet.
ALTER TABLE conversations ADD COLUMN owner TEXT;

UPDATE conversations SET owner = (
    SELECT source FROM runs WHERE conversation = conversations.id
    ORDER BY source = 'terminal', key DESC LIMIT 1);
