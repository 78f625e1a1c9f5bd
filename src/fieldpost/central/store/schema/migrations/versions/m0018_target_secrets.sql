ALTER TABLE list_targets ADD COLUMN secret TEXT;
