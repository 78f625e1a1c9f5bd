ALTER TABLE template_versions ADD COLUMN severity TEXT DEFAULT '' NOT NULL;
ALTER TABLE template_versions ADD COLUMN incident TEXT DEFAULT '' NOT NULL;
ALTER TABLE template_versions ADD COLUMN is_cleared TEXT DEFAULT '' NOT NULL;
