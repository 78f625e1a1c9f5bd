ALTER TABLE lists ADD COLUMN rate TEXT;
ALTER TABLE channels ADD COLUMN rate TEXT;
DROP INDEX ix_notifications_held_since;
CREATE INDEX ix_notifications_held_since ON notifications (cycle_started_at)
    WHERE held_by is not null and not is_timed and held_by not like 'pause:%' and held_by not like 'rate%';
CREATE TABLE target_pauses (
    delivery_key TEXT NOT NULL,
    address TEXT NOT NULL,
    until {moment} NOT NULL,
    reason TEXT NOT NULL,
    CONSTRAINT pk_target_pauses PRIMARY KEY (delivery_key, address)
);
CREATE INDEX ix_target_pauses_until ON target_pauses (until);
