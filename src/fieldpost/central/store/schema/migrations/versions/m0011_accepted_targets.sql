CREATE TABLE targets_with_receipts (
    notification_id {id} NOT NULL,
    address TEXT NOT NULL,
    status TEXT NOT NULL,
    error TEXT,
    settled_at {moment},
    truncated_to INTEGER,
    provider_id TEXT,
    CONSTRAINT pk_targets PRIMARY KEY (notification_id, address),
    CONSTRAINT ck_targets_status CHECK (status in ('due', 'accepted', 'delivered', 'failed')),
    CONSTRAINT ck_targets_error CHECK (status <> 'failed' or length(error) > 0),
    CONSTRAINT fk_targets_notification_id FOREIGN KEY(notification_id) REFERENCES notifications (notification_id) ON
        DELETE CASCADE
);
INSERT INTO targets_with_receipts (notification_id, address, status, error, settled_at)
    SELECT notification_id, address, status, error, settled_at FROM targets;
DROP TABLE targets;
ALTER TABLE targets_with_receipts RENAME TO targets;
