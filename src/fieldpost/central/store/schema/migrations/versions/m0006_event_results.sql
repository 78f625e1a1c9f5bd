CREATE INDEX ix_notifications_event_ended ON notifications (source_site_id, terminal_at, notification_id)
    WHERE terminal_at is not null and event_id is not null;
CREATE TABLE outbox_reports (
    source TEXT NOT NULL,
    open_count BIGINT NOT NULL,
    oldest_at {moment},
    reported_at {moment} NOT NULL,
    CONSTRAINT pk_outbox_reports PRIMARY KEY (source)
);
