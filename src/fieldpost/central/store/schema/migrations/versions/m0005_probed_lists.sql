ALTER TABLE breakers ADD COLUMN probed_key TEXT;
CREATE INDEX ix_notifications_held_key ON notifications (held_by, delivery_key, due_at)
    WHERE held_by is not null and not is_timed;
