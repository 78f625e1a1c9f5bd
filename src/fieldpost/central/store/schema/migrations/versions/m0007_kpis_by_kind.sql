DROP INDEX ix_notifications_terminal;
CREATE INDEX ix_notifications_terminal ON notifications (terminal_at, status, source_site_id, type)
    WHERE terminal_at is not null;
DROP INDEX ix_notifications_undelivered;
CREATE INDEX ix_notifications_undelivered ON notifications (status, created_at, notification_id, source_site_id, type)
    WHERE status <> 'delivered';
DROP INDEX ix_notifications_waiting;
CREATE INDEX ix_notifications_waiting
    ON notifications (source_site_id, created_at, cycle_started_at, due_at, type, held_by)
    WHERE due_at is not null;
