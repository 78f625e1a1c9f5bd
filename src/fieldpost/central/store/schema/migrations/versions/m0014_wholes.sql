CREATE TABLE wholes (
    whole_id {id} NOT NULL,
    list_name TEXT NOT NULL,
    source_site_id TEXT NOT NULL,
    digest {bytes} NOT NULL,
    created_at {moment} NOT NULL,
    CONSTRAINT pk_wholes PRIMARY KEY (whole_id)
);
ALTER TABLE notifications ADD COLUMN whole_id {id};
ALTER TABLE notifications ADD COLUMN whole_list TEXT;
CREATE INDEX ix_notifications_whole_id ON notifications (whole_id) WHERE whole_id is not null;
ALTER TABLE tombstones ADD COLUMN whole_id {id};
CREATE INDEX ix_tombstones_whole_id ON tombstones (whole_id) WHERE whole_id is not null;
