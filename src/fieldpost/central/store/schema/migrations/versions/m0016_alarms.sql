ALTER TABLE notifications ADD COLUMN severity TEXT;
ALTER TABLE notifications ADD COLUMN incident TEXT;
ALTER TABLE notifications ADD COLUMN is_cleared BOOLEAN DEFAULT false NOT NULL;
ALTER TABLE lists ADD COLUMN severity TEXT;
