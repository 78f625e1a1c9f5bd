ALTER TABLE notifications ADD COLUMN is_timed BOOLEAN DEFAULT false NOT NULL;
ALTER TABLE notifications ADD COLUMN event_id {id};
DROP INDEX ix_notifications_claim;
DROP INDEX ix_notifications_held;
DROP INDEX ix_notifications_held_since;
CREATE INDEX ix_notifications_claim ON notifications (status, delivery_key, due_at)
    WHERE due_at is not null and held_by is null and not is_timed;
CREATE INDEX ix_notifications_timed ON notifications (due_at) WHERE is_timed;
CREATE INDEX ix_notifications_held ON notifications (held_by, due_at) WHERE held_by is not null and not is_timed;
CREATE INDEX ix_notifications_held_since ON notifications (cycle_started_at)
    WHERE held_by is not null and not is_timed;
CREATE INDEX ix_notifications_event_id ON notifications (event_id, notification_id) WHERE event_id is not null;
CREATE TABLE catalogues (
    name TEXT NOT NULL,
    version BIGINT NOT NULL,
    CONSTRAINT pk_catalogues PRIMARY KEY (name)
);
CREATE TABLE topics (
    topic TEXT NOT NULL,
    description TEXT NOT NULL,
    attributes {json} NOT NULL,
    schema TEXT,
    example TEXT,
    owners {json} NOT NULL,
    archived_at {moment},
    created_at {moment} NOT NULL,
    updated_at {moment} NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_topics PRIMARY KEY (topic)
);
CREATE TABLE subscriptions (
    subscription_id {id} NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    filter {json} NOT NULL,
    state TEXT NOT NULL,
    settings {json} NOT NULL,
    secrets {json} NOT NULL,
    retry TEXT,
    created_at {moment} NOT NULL,
    updated_at {moment} NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_subscriptions PRIMARY KEY (subscription_id),
    CONSTRAINT ck_subscriptions_state CHECK (state in ('active', 'paused', 'disabled', 'removed')),
    CONSTRAINT uq_subscriptions_name UNIQUE (name)
);
CREATE TABLE events (
    event_id {id} NOT NULL,
    topic TEXT NOT NULL,
    source TEXT NOT NULL,
    action TEXT,
    resource TEXT,
    attributes {json} NOT NULL,
    occurred_at {moment},
    correlation_id TEXT,
    payload TEXT NOT NULL,
    digest {bytes} NOT NULL,
    match_count INTEGER NOT NULL,
    created_at {moment} NOT NULL,
    CONSTRAINT pk_events PRIMARY KEY (event_id)
);
CREATE INDEX ix_events_created_at ON events (created_at, event_id);
CREATE INDEX ix_events_topic ON events (topic, created_at, event_id);
CREATE INDEX ix_events_source ON events (source, created_at, event_id);
CREATE INDEX ix_events_resource ON events (resource, created_at, event_id) WHERE resource is not null;
CREATE INDEX ix_events_correlation_id ON events (correlation_id, created_at, event_id)
    WHERE correlation_id is not null;
CREATE TABLE event_tombstones (
    event_id {id} NOT NULL,
    source TEXT NOT NULL,
    digest {bytes} NOT NULL,
    purged_at {moment} NOT NULL,
    CONSTRAINT pk_event_tombstones PRIMARY KEY (event_id)
);
CREATE INDEX ix_event_tombstones_purged_at ON event_tombstones (purged_at);
ALTER TABLE tokens ADD COLUMN generation INTEGER;
UPDATE tokens SET generation = (
    SELECT count(*) FROM tokens t WHERE t.kind = 'api' AND t.name = tokens.name
        AND (t.created_at, t.prefix) <= (tokens.created_at, tokens.prefix)
) WHERE kind = 'api' AND name IS NOT NULL;
CREATE UNIQUE INDEX ix_tokens_name ON tokens (name, generation);
