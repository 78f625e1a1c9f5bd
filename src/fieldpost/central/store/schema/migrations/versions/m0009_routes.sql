CREATE TABLE routes (
    route_id {id} NOT NULL,
    name TEXT NOT NULL,
    filter {json} NOT NULL,
    list_name TEXT NOT NULL,
    to_member TEXT,
    cooldown_s FLOAT,
    cooldown_by TEXT,
    removed_at {moment},
    created_at {moment} NOT NULL,
    updated_at {moment} NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_routes PRIMARY KEY (route_id),
    CONSTRAINT ck_routes_cooldown CHECK (cooldown_s > 0),
    CONSTRAINT ck_routes_cooldown_by CHECK (cooldown_by is null or cooldown_s is not null)
);
CREATE UNIQUE INDEX uq_routes_name ON routes (name) WHERE removed_at is null;
CREATE TABLE cooldowns (
    route_id {id} NOT NULL,
    value TEXT NOT NULL,
    until {moment} NOT NULL,
    suppressed INTEGER NOT NULL,
    last_suppressed_at {moment},
    CONSTRAINT pk_cooldowns PRIMARY KEY (route_id, value)
);
CREATE INDEX ix_cooldowns_until ON cooldowns (until);
CREATE TABLE withheld_events (
    event_id {id} NOT NULL,
    route_id {id} NOT NULL,
    topic TEXT NOT NULL,
    type TEXT NOT NULL,
    reason TEXT NOT NULL,
    created_at {moment} NOT NULL,
    CONSTRAINT pk_withheld_events PRIMARY KEY (event_id, route_id),
    CONSTRAINT fk_withheld_events_event_id FOREIGN KEY(event_id) REFERENCES events (event_id) ON DELETE CASCADE,
    CONSTRAINT ck_withheld_events_reason CHECK (reason in ('no_template', 'cooldown'))
);
CREATE INDEX ix_withheld_events_reason ON withheld_events (reason, topic, type, created_at, event_id);
CREATE TABLE templates (
    topic TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    CONSTRAINT pk_templates PRIMARY KEY (topic, type)
);
CREATE TABLE template_versions (
    topic TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at {moment} NOT NULL,
    created_by TEXT NOT NULL,
    CONSTRAINT pk_template_versions PRIMARY KEY (topic, type, version)
);
CREATE INDEX ix_events_unmatched ON events (topic, created_at) WHERE match_count = 0;
ALTER TABLE notifications ADD COLUMN route_id {id};
ALTER TABLE notifications ADD COLUMN template_type TEXT;
ALTER TABLE notifications ADD COLUMN template_version INTEGER;
ALTER TABLE notifications ADD COLUMN is_draft BOOLEAN DEFAULT false NOT NULL;
