ALTER TABLE channels ADD COLUMN receipt_wait_s FLOAT DEFAULT '300' NOT NULL;
ALTER TABLE channels ADD COLUMN receipt_missing TEXT DEFAULT 'delivered' NOT NULL;
CREATE TABLE receipts (
    notification_id {id} NOT NULL,
    address TEXT NOT NULL,
    token TEXT NOT NULL,
    channel_name TEXT NOT NULL,
    provider_id TEXT,
    asked_count INTEGER DEFAULT '0' NOT NULL,
    ask_at {moment},
    status TEXT,
    error TEXT,
    reported_at {moment},
    CONSTRAINT pk_receipts PRIMARY KEY (notification_id, address),
    CONSTRAINT fk_receipts_notification_id FOREIGN KEY(notification_id) REFERENCES notifications (notification_id) ON
        DELETE CASCADE
);
CREATE UNIQUE INDEX uq_receipts_token ON receipts (token);
CREATE INDEX ix_receipts_ask_at ON receipts (ask_at) WHERE ask_at is not null;
CREATE INDEX ix_receipts_reported_at ON receipts (reported_at) WHERE reported_at is not null;
