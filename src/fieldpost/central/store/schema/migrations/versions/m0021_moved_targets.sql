ALTER TABLE list_targets ADD COLUMN moved_to TEXT;
CREATE INDEX ix_list_targets_moved ON list_targets (list_name) WHERE moved_to is not null;
