-- The schema of the first release. {id}, {moment}, {json} and {bytes} are the types of engine/column_types.py; the other
-- marks are options of one database only. m0001_first.py fills them in.
CREATE TABLE audit (
    sequence {sequence},
    event_id {id} NOT NULL,
    occurred_at {moment} NOT NULL,
    ingested_at {moment} NOT NULL,
    correlation_id {id},
    execution_id TEXT,
    parent_execution_id TEXT,
    channel TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    source_site_id TEXT,
    source_node TEXT,
    source_instance_id TEXT,
    source_script TEXT,
    actor TEXT NOT NULL,
    target TEXT,
    duration_ms BIGINT,
    error_message TEXT,
    request_summary TEXT,
    response_summary TEXT,
    extra {json},
    bulk_action_id {id},
    CONSTRAINT uq_audit_event_id UNIQUE (event_id),
    CONSTRAINT ck_audit_channel CHECK (channel in ('api_outbound', 'db_outbound', 'notification', 'api_inbound')),
    CONSTRAINT ck_audit_kind CHECK (kind in ('api_call', 'api_call_cached', 'db_write', 'db_write_cached',
        'notify_send', 'notify_deliver', 'inbound_request', 'inbound_auth_failure', 'cached_submit',
        'cached_resolve', 'operator_action')),
    CONSTRAINT ck_audit_status CHECK (status in ('submitted', 'forwarded', 'attempted', 'delivered', 'failed',
        'parked', 'discarded', 'skipped'))
);
CREATE INDEX ix_audit_action ON audit (occurred_at) WHERE kind not in ('notify_send', 'notify_deliver');
CREATE INDEX ix_audit_action_actor ON audit (actor, occurred_at) WHERE kind not in ('notify_send', 'notify_deliver');
CREATE INDEX ix_audit_action_target ON audit (target, occurred_at) WHERE kind not in ('notify_send', 'notify_deliver');
CREATE INDEX ix_audit_correlation_id ON audit (correlation_id);
CREATE INDEX ix_audit_failure ON audit (occurred_at) WHERE status in ('failed', 'parked', 'discarded', 'skipped');
CREATE INDEX ix_audit_occurred_at ON audit (occurred_at);
CREATE INDEX ix_audit_site ON audit (source_site_id, occurred_at);
CREATE TABLE audit_purges (
    id INTEGER NOT NULL,
    purged_to {moment},
    is_purging BOOLEAN DEFAULT false NOT NULL,
    CONSTRAINT pk_audit_purges PRIMARY KEY (id),
    CONSTRAINT ck_audit_purges_one CHECK (id = 1)
);
INSERT INTO audit_purges (id) VALUES (1);
CREATE TABLE audit_seals (
    number BIGINT NOT NULL,
    sealed_at {moment} NOT NULL,
    previous {bytes} NOT NULL,
    purged_to {moment},
    count INTEGER NOT NULL,
    low BIGINT NOT NULL,
    high BIGINT NOT NULL,
    entries {bytes} NOT NULL,
    public_key {bytes} NOT NULL,
    head {bytes} NOT NULL,
    signature {bytes} NOT NULL,
    gaps {json} NOT NULL,
    CONSTRAINT pk_audit_seals PRIMARY KEY (number)
);
CREATE INDEX ix_audit_seals_low ON audit_seals (low);
CREATE INDEX ix_audit_seals_sealed_at ON audit_seals (sealed_at);
CREATE TABLE breakers (
    key TEXT NOT NULL,
    state TEXT NOT NULL,
    failures INTEGER NOT NULL,
    first_failure_at {moment},
    last_failure_at {moment},
    last_error TEXT,
    open_until {moment},
    probe_owner TEXT,
    probe_until {moment},
    version BIGINT NOT NULL,
    CONSTRAINT pk_breakers PRIMARY KEY (key),
    CONSTRAINT ck_breakers_state CHECK (state in ('closed', 'open', 'half_open')),
    CONSTRAINT ck_breakers_open CHECK (state <> 'open' or open_until is not null),
    CONSTRAINT ck_breakers_probe CHECK ((state = 'half_open') = (probe_owner is not null and probe_until is not null))
);
CREATE TABLE bulk_actions (
    action_id {id} NOT NULL,
    verb TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT NOT NULL,
    wanted {json},
    as_of {moment} NOT NULL,
    in_stages BOOLEAN DEFAULT false NOT NULL,
    created_at {moment} NOT NULL,
    status TEXT NOT NULL,
    stage INTEGER DEFAULT '0' NOT NULL,
    total INTEGER DEFAULT '0' NOT NULL,
    done INTEGER DEFAULT '0' NOT NULL,
    conflicts INTEGER DEFAULT '0' NOT NULL,
    gone INTEGER DEFAULT '0' NOT NULL,
    note TEXT,
    halting_error_key TEXT,
    ended_at {moment},
    due_at {moment},
    gathered_to_at {moment},
    gathered_to_id {id},
    CONSTRAINT pk_bulk_actions PRIMARY KEY (action_id),
    CONSTRAINT ck_bulk_actions_verb CHECK (verb in ('retry', 'discard')),
    CONSTRAINT ck_bulk_actions_status CHECK (status in ('gathering', 'running', 'finished', 'cancelled', 'halted')),
    CONSTRAINT ck_bulk_actions_reason CHECK (length(reason) > 0),
    CONSTRAINT ck_bulk_actions_counts CHECK (done >= 0 and conflicts >= 0 and gone >= 0 and done + conflicts + gone <=
        total),
    CONSTRAINT ck_bulk_actions_ended CHECK ((status in ('gathering', 'running')) = (ended_at is null)),
    CONSTRAINT ck_bulk_actions_due CHECK ((ended_at is null) = (due_at is not null))
);
CREATE INDEX ix_bulk_actions_created_at ON bulk_actions (created_at);
CREATE INDEX ix_bulk_actions_due ON bulk_actions (due_at) WHERE ended_at is null;
CREATE TABLE cached_calls (
    site TEXT NOT NULL,
    call_id {id} NOT NULL,
    incarnation TEXT NOT NULL,
    category TEXT NOT NULL,
    target_summary TEXT NOT NULL,
    status TEXT NOT NULL,
    retry_count BIGINT NOT NULL,
    last_error TEXT,
    http_status INTEGER,
    instance TEXT,
    script TEXT,
    execution_id TEXT,
    parent_execution_id TEXT,
    created_at {moment},
    updated_at {moment},
    terminal_at {moment},
    version BIGINT NOT NULL,
    round BIGINT NOT NULL,
    first_seen_at {moment} NOT NULL,
    received_at {moment} NOT NULL,
    begun_at {moment} NOT NULL,
    ended_at {moment},
    gone_at {moment},
    CONSTRAINT pk_cached_calls PRIMARY KEY (site, call_id),
    CONSTRAINT ck_cached_calls_category CHECK (category in ('external_call', 'database_write')),
    CONSTRAINT ck_cached_calls_status CHECK (status in ('pending', 'retrying', 'delivered', 'parked', 'failed',
        'discarded')),
    CONSTRAINT ck_cached_calls_ended CHECK ((status in ('delivered', 'failed', 'discarded')) = (ended_at is not null)),
    CONSTRAINT ck_cached_calls_counts CHECK (retry_count >= 0 and version >= 1 and round >= 1)
);
CREATE INDEX ix_cached_calls_ended ON cached_calls (ended_at, status, site) WHERE ended_at is not null;
CREATE INDEX ix_cached_calls_gone ON cached_calls (gone_at) WHERE gone_at is not null;
CREATE INDEX ix_cached_calls_live ON cached_calls (site, begun_at)
    WHERE status in ('pending', 'retrying') and gone_at is null;
CREATE INDEX ix_cached_calls_parked ON cached_calls (site, first_seen_at) WHERE status = 'parked' and gone_at is null;
CREATE INDEX ix_cached_calls_seen ON cached_calls (first_seen_at, call_id);
CREATE INDEX ix_cached_calls_site ON cached_calls (site, first_seen_at, call_id);
CREATE TABLE channels (
    channel_name TEXT NOT NULL,
    type TEXT NOT NULL,
    settings {json} NOT NULL,
    max_retries INTEGER DEFAULT '10' NOT NULL,
    retry_delay_s FLOAT DEFAULT '60' NOT NULL,
    retry TEXT,
    is_default BOOLEAN DEFAULT false NOT NULL,
    created_at {moment} NOT NULL,
    updated_at {moment} NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    secrets {json} DEFAULT '{}' NOT NULL,
    CONSTRAINT pk_channels PRIMARY KEY (channel_name)
);
CREATE UNIQUE INDEX ix_channels_default ON channels (type) WHERE is_default;
CREATE TABLE intents (
    intent_id {id} NOT NULL,
    site TEXT NOT NULL,
    kind TEXT NOT NULL,
    message_id {id},
    arguments {json} NOT NULL,
    reason TEXT,
    actor TEXT NOT NULL,
    created_at {moment} NOT NULL,
    expires_at {moment} NOT NULL,
    state TEXT NOT NULL,
    outcome TEXT,
    detail TEXT,
    answer {json},
    attempts INTEGER DEFAULT '0' NOT NULL,
    sent_at {moment},
    done_at {moment},
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_intents PRIMARY KEY (intent_id),
    CONSTRAINT ck_intents_state CHECK (state in ('waiting', 'sent', 'done', 'cancelled', 'expired')),
    CONSTRAINT ck_intents_outcome CHECK (outcome in ('applied', 'not_parked', 'site_unreachable', 'operation_failed')),
    CONSTRAINT ck_intents_outcome_state CHECK ((state in ('done', 'expired')) = (outcome is not null)),
    CONSTRAINT ck_intents_done CHECK ((state in ('waiting', 'sent')) = (done_at is null)),
    CONSTRAINT ck_intents_sent CHECK (state <> 'sent' or sent_at is not null)
);
CREATE INDEX ix_intents_created ON intents (created_at, intent_id);
CREATE INDEX ix_intents_done ON intents (done_at) WHERE done_at is not null;
CREATE INDEX ix_intents_message ON intents (message_id) WHERE message_id is not null;
CREATE INDEX ix_intents_open ON intents (site, intent_id) WHERE state in ('waiting', 'sent');
CREATE INDEX ix_intents_site ON intents (site, created_at, intent_id);
CREATE TABLE leases (
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    lease_until {moment} NOT NULL,
    token BIGINT NOT NULL,
    CONSTRAINT pk_leases PRIMARY KEY (name)
);
CREATE TABLE lists (
    list_name TEXT NOT NULL,
    type TEXT NOT NULL,
    channel_name TEXT,
    park_uncertain BOOLEAN DEFAULT false NOT NULL,
    retry TEXT,
    created_at {moment} NOT NULL,
    updated_at {moment} NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    allowed_sites {json},
    CONSTRAINT pk_lists PRIMARY KEY (list_name)
);
CREATE TABLE login_delays (
    key TEXT NOT NULL,
    failures INTEGER NOT NULL,
    failed_at {moment} NOT NULL,
    free_at {moment} NOT NULL,
    CONSTRAINT pk_login_delays PRIMARY KEY (key),
    CONSTRAINT ck_login_delays_failures CHECK (failures >= 0)
);
CREATE TABLE nodes (
    node_id TEXT NOT NULL,
    host TEXT NOT NULL,
    version TEXT NOT NULL,
    started_at {moment} NOT NULL,
    heartbeat_at {moment} NOT NULL,
    stopped_at {moment},
    CONSTRAINT pk_nodes PRIMARY KEY (node_id)
);
CREATE TABLE notifications (
    notification_id {id} NOT NULL,
    type TEXT NOT NULL,
    list_name TEXT NOT NULL,
    subject TEXT NOT NULL,
    body TEXT NOT NULL,
    type_data {json},
    status TEXT NOT NULL,
    retry_count INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    source_site_id TEXT NOT NULL,
    source_instance_id TEXT,
    source_script TEXT,
    origin_execution_id TEXT,
    origin_parent_execution_id TEXT,
    site_enqueued_at {moment},
    site_enqueued_text TEXT,
    created_at {moment} NOT NULL,
    last_attempt_at {moment},
    next_attempt_at {moment},
    delivered_at {moment},
    terminal_at {moment},
    due_at {moment},
    delivery_key TEXT NOT NULL,
    held_by TEXT,
    held_reason TEXT,
    claim_owner TEXT,
    claim_token BIGINT DEFAULT '0' NOT NULL,
    lease_until {moment},
    orphan_count INTEGER DEFAULT '0' NOT NULL,
    cycle INTEGER DEFAULT '1' NOT NULL,
    cycle_started_at {moment} NOT NULL,
    version BIGINT DEFAULT '1' NOT NULL,
    digest {bytes} NOT NULL,
    CONSTRAINT pk_notifications PRIMARY KEY (notification_id),
    CONSTRAINT ck_notifications_status CHECK (status in ('pending', 'retrying', 'delivered', 'parked', 'discarded')),
    CONSTRAINT ck_notifications_counts CHECK (retry_count >= 0 and cycle >= 1 and version >= 1 and orphan_count >= 0),
    CONSTRAINT ck_notifications_next_attempt CHECK ((status = 'retrying') = (next_attempt_at is not null)),
    CONSTRAINT ck_notifications_due CHECK ((status in ('pending', 'retrying')) = (due_at is not null)),
    CONSTRAINT ck_notifications_terminal CHECK ((status in ('pending', 'retrying')) = (terminal_at is null)),
    CONSTRAINT ck_notifications_delivered CHECK ((status = 'delivered') = (delivered_at is not null)),
    CONSTRAINT ck_notifications_error CHECK (status not in ('parked', 'retrying') or length(last_error) > 0),
    CONSTRAINT ck_notifications_held CHECK (held_by is null or status in ('pending', 'retrying')),
    CONSTRAINT ck_notifications_claim CHECK ((claim_owner is null) = (lease_until is null)),
    CONSTRAINT ck_notifications_claim_live CHECK (claim_owner is null or status in ('pending', 'retrying'))
) {fillfactor_80};
CREATE INDEX ix_notifications_claim ON notifications (status, delivery_key, due_at)
    WHERE due_at is not null and held_by is null;
CREATE INDEX ix_notifications_created ON notifications (created_at, notification_id);
CREATE INDEX ix_notifications_held ON notifications (held_by, due_at) WHERE held_by is not null;
CREATE INDEX ix_notifications_held_since ON notifications (cycle_started_at) WHERE held_by is not null;
CREATE INDEX ix_notifications_suspect ON notifications (due_at) WHERE due_at is not null and orphan_count > 0;
CREATE INDEX ix_notifications_terminal ON notifications (terminal_at, status, source_site_id)
    WHERE terminal_at is not null;
CREATE INDEX ix_notifications_undelivered ON notifications (status, created_at, notification_id, source_site_id)
    WHERE status <> 'delivered';
CREATE INDEX ix_notifications_waiting ON notifications (source_site_id, created_at, cycle_started_at, due_at) WHERE due_at is not null;
CREATE TABLE samples (
    site TEXT NOT NULL,
    taken_at {moment} NOT NULL,
    figures {json} NOT NULL,
    CONSTRAINT pk_samples PRIMARY KEY (site, taken_at)
);
CREATE INDEX ix_samples_taken_at ON samples (taken_at);
CREATE TABLE search_backlog (
    notification_id {id} NOT NULL,
    created_at {moment} NOT NULL,
    count INTEGER NOT NULL,
    CONSTRAINT pk_search_backlog PRIMARY KEY (notification_id)
);
CREATE INDEX ix_search_backlog_created_at ON search_backlog (created_at);
CREATE TABLE search_terms (
    day INTEGER NOT NULL,
    term TEXT NOT NULL,
    newest {bytes} NOT NULL,
    sweep BIGINT NOT NULL,
    places {bytes} NOT NULL,
    CONSTRAINT pk_search_terms PRIMARY KEY (day, term, newest, sweep)
) {without_rowid};
CREATE TABLE secret_keys (
    key_id TEXT NOT NULL,
    added_at {moment} NOT NULL,
    CONSTRAINT pk_secret_keys PRIMARY KEY (key_id)
);
CREATE TABLE site_health (
    site TEXT NOT NULL,
    received_at {moment} NOT NULL,
    report {json} NOT NULL,
    clock_offset_s FLOAT NOT NULL,
    sampled_at {moment},
    sampled {json},
    CONSTRAINT pk_site_health PRIMARY KEY (site)
);
CREATE TABLE site_health_samples (
    site TEXT NOT NULL,
    taken_at {moment} NOT NULL,
    figures {json} NOT NULL,
    CONSTRAINT pk_site_health_samples PRIMARY KEY (site, taken_at)
);
CREATE INDEX ix_site_health_samples_taken_at ON site_health_samples (taken_at);
CREATE TABLE site_mirrors (
    site TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    cursor BIGINT NOT NULL,
    high BIGINT DEFAULT '0' NOT NULL,
    round BIGINT NOT NULL,
    is_rereading BOOLEAN DEFAULT false NOT NULL,
    forgotten BIGINT DEFAULT '0' NOT NULL,
    reconciled_at {moment},
    replaced_at {moment},
    replaced_count INTEGER DEFAULT '0' NOT NULL,
    refused_count BIGINT DEFAULT '0' NOT NULL,
    last_refusal TEXT,
    CONSTRAINT pk_site_mirrors PRIMARY KEY (site),
    CONSTRAINT ck_site_mirrors_counts CHECK (cursor >= 0 and round >= 1 and replaced_count >= 0 and refused_count >= 0)
);
CREATE TABLE sites (
    site_name TEXT NOT NULL,
    created_at {moment} NOT NULL,
    last_seen_at {moment},
    revoked_at {moment},
    CONSTRAINT pk_sites PRIMARY KEY (site_name)
);
CREATE TABLE tokens (
    prefix TEXT NOT NULL,
    kind TEXT NOT NULL,
    digest {bytes} NOT NULL,
    owner TEXT NOT NULL,
    role TEXT,
    created_at {moment} NOT NULL,
    expires_at {moment},
    last_used_at {moment},
    revoked_at {moment},
    name TEXT,
    created_by TEXT,
    address TEXT,
    user_agent TEXT,
    CONSTRAINT pk_tokens PRIMARY KEY (prefix),
    CONSTRAINT ck_tokens_kind CHECK (kind in ('site', 'api', 'session')),
    CONSTRAINT ck_tokens_role CHECK ((kind = 'site') = (role is null))
);
CREATE INDEX ix_tokens_owner ON tokens (kind, owner);
CREATE TABLE tombstones (
    notification_id {id} NOT NULL,
    source_site_id TEXT NOT NULL,
    digest {bytes} NOT NULL,
    status TEXT NOT NULL,
    terminal_at {moment} NOT NULL,
    purged_at {moment} NOT NULL,
    CONSTRAINT pk_tombstones PRIMARY KEY (notification_id),
    CONSTRAINT ck_tombstones_status CHECK (status in ('delivered', 'parked', 'discarded'))
);
CREATE INDEX ix_tombstones_purged_at ON tombstones (purged_at);
CREATE TABLE users (
    name TEXT NOT NULL,
    password_hash TEXT,
    role TEXT NOT NULL,
    created_at {moment} NOT NULL,
    created_by TEXT,
    disabled_at {moment},
    last_login_at {moment},
    subject TEXT,
    version BIGINT DEFAULT '1' NOT NULL,
    CONSTRAINT pk_users PRIMARY KEY (name),
    CONSTRAINT ck_users_role CHECK (role in ('viewer', 'operator', 'admin'))
);
CREATE UNIQUE INDEX ix_users_subject ON users (subject);
CREATE TABLE attempts (
    notification_id {id} NOT NULL,
    claim_token BIGINT NOT NULL,
    cycle INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    is_lone BOOLEAN DEFAULT false NOT NULL,
    started_at {moment} NOT NULL,
    finished_at {moment},
    outcome TEXT,
    phase TEXT,
    reply TEXT,
    error TEXT,
    duration_ms BIGINT,
    CONSTRAINT pk_attempts PRIMARY KEY (notification_id, claim_token),
    CONSTRAINT ck_attempts_outcome CHECK (outcome in ('delivered', 'transient_failure', 'permanent_failure',
        'uncertain', 'held', 'released', 'abandoned', 'crashed')),
    CONSTRAINT ck_attempts_finished CHECK ((finished_at is null) = (outcome is null)),
    CONSTRAINT fk_attempts_notification_id FOREIGN KEY(notification_id) REFERENCES notifications (notification_id)
        ON DELETE CASCADE
) {fillfactor_60};
CREATE TABLE bulk_action_rows (
    action_id {id} NOT NULL,
    position INTEGER NOT NULL,
    notification_id {id} NOT NULL,
    version BIGINT,
    error_key TEXT,
    outcome TEXT,
    current_status TEXT,
    settled_at {moment},
    CONSTRAINT pk_bulk_action_rows PRIMARY KEY (action_id, position),
    CONSTRAINT ck_bulk_action_rows_outcome CHECK (outcome in ('done', 'conflict', 'gone')),
    CONSTRAINT ck_bulk_action_rows_settled CHECK ((outcome is null) = (settled_at is null)),
    CONSTRAINT fk_bulk_action_rows_action_id FOREIGN KEY(action_id) REFERENCES bulk_actions (action_id) ON DELETE
        CASCADE
) {without_rowid};
CREATE TABLE enrolments (
    prefix TEXT NOT NULL,
    digest {bytes} NOT NULL,
    site_name TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at {moment} NOT NULL,
    expires_at {moment} NOT NULL,
    ended_at {moment},
    CONSTRAINT pk_enrolments PRIMARY KEY (prefix),
    CONSTRAINT fk_enrolments_site_name FOREIGN KEY(site_name) REFERENCES sites (site_name)
);
CREATE INDEX ix_enrolments_site_name ON enrolments (site_name);
CREATE TABLE list_targets (
    list_name TEXT NOT NULL,
    address TEXT NOT NULL,
    CONSTRAINT pk_list_targets PRIMARY KEY (list_name, address),
    CONSTRAINT fk_list_targets_list_name FOREIGN KEY(list_name) REFERENCES lists (list_name) ON DELETE CASCADE
);
CREATE TABLE login_links (
    prefix TEXT NOT NULL,
    digest {bytes} NOT NULL,
    user_name TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at {moment} NOT NULL,
    expires_at {moment} NOT NULL,
    ended_at {moment},
    CONSTRAINT pk_login_links PRIMARY KEY (prefix),
    CONSTRAINT fk_login_links_user_name FOREIGN KEY(user_name) REFERENCES users (name) ON DELETE CASCADE
);
CREATE INDEX ix_login_links_user_name ON login_links (user_name);
CREATE TABLE targets (
    notification_id {id} NOT NULL,
    address TEXT NOT NULL,
    status TEXT NOT NULL,
    error TEXT,
    settled_at {moment},
    CONSTRAINT pk_targets PRIMARY KEY (notification_id, address),
    CONSTRAINT ck_targets_status CHECK (status in ('due', 'delivered', 'failed')),
    CONSTRAINT ck_targets_error CHECK (status <> 'failed' or length(error) > 0),
    CONSTRAINT fk_targets_notification_id FOREIGN KEY(notification_id) REFERENCES notifications (notification_id) ON
        DELETE CASCADE
) {fillfactor_60}
