DROP TABLE subscriptions;
CREATE TABLE subscriptions (
    subscription_id {id} NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    filter {json} NOT NULL,
    state TEXT NOT NULL,
    state_reason TEXT,
    state_by TEXT,
    state_at {moment},
    is_restricted BOOLEAN DEFAULT false NOT NULL,
    is_draining BOOLEAN DEFAULT false NOT NULL,
    settings {json} NOT NULL,
    secrets {json} NOT NULL,
    retry TEXT,
    created_at {moment} NOT NULL,
    updated_at {moment} NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_subscriptions PRIMARY KEY (subscription_id),
    CONSTRAINT ck_subscriptions_state CHECK (state in ('active', 'unverified', 'paused', 'disabled', 'removed')),
    CONSTRAINT ck_subscriptions_draining CHECK (not is_draining or state in ('disabled', 'removed'))
);
CREATE UNIQUE INDEX uq_subscriptions_name ON subscriptions (owner, name) WHERE state <> 'removed';
CREATE INDEX ix_subscriptions_draining ON subscriptions (subscription_id) WHERE is_draining;
ALTER TABLE breakers ADD COLUMN failing_since {moment};
ALTER TABLE breakers ADD COLUMN warned_percent INTEGER DEFAULT '0' NOT NULL;
ALTER TABLE breakers ADD COLUMN release_size INTEGER DEFAULT '0' NOT NULL;
ALTER TABLE breakers ADD COLUMN wait_until {moment};
ALTER TABLE breakers ADD COLUMN wait_kind TEXT;
ALTER TABLE breakers ADD COLUMN wait_reason TEXT;
ALTER TABLE attempts ADD COLUMN exchanges {json};
CREATE TABLE rates (
    key TEXT NOT NULL,
    next_at {moment} NOT NULL,
    CONSTRAINT pk_rates PRIMARY KEY (key)
);
CREATE TABLE notices (
    event_id {id} NOT NULL,
    topic TEXT NOT NULL,
    subscription_id {id} NOT NULL,
    payload {json} NOT NULL,
    created_at {moment} NOT NULL,
    CONSTRAINT pk_notices PRIMARY KEY (event_id)
);
CREATE INDEX ix_notifications_subscription_live ON notifications (delivery_key, notification_id)
    WHERE due_at is not null and event_id is not null;
CREATE INDEX ix_notifications_subscription ON notifications (delivery_key, created_at, notification_id)
    WHERE event_id is not null;
DROP INDEX ix_notifications_held_since;
CREATE INDEX ix_notifications_held_since ON notifications (cycle_started_at)
    WHERE held_by is not null and not is_timed and held_by not like 'pause:%';
