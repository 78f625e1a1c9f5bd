-- The site's buffer, version 1 (see schema.py). Times are integer microseconds since 1970 in UTC.

-- Notifications, forwarded in commit order. A row is deleted when its message ends, so no status is terminal. Each send
-- writes one page of the table and one of the index of ids; cached calls have a separate table and this one has no other
-- index, to keep it that way.
CREATE TABLE messages (
    sequence        INTEGER PRIMARY KEY,                    -- commit order; the site's clock never orders anything
    message_id      TEXT    NOT NULL UNIQUE,                -- the notification's id
    category        TEXT    NOT NULL CHECK (category = 'notification'),
    target          TEXT    NOT NULL,                       -- 'central'
    payload         TEXT    NOT NULL,                       -- JSON, in the format that the carrier sends
    status          TEXT    NOT NULL DEFAULT 'pending'      -- 'marker': see pair.sql
                    CHECK (status = 'pending' OR status = 'retrying' OR status = 'marker'),
    retry_count     INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    last_error      TEXT,
    created_at      INTEGER NOT NULL,
    last_attempt_at INTEGER,
    due_at          INTEGER NOT NULL DEFAULT 0              -- 0 means immediately, so that a wrong clock delays nothing
) STRICT;

-- Cached calls: external calls and database writes.
CREATE TABLE calls (
    sequence        INTEGER PRIMARY KEY,                    -- commit order
    message_id      TEXT    NOT NULL UNIQUE,                -- the call's id
    category        TEXT    NOT NULL CHECK (category IN ('external_call', 'database_write')),
    target          TEXT    NOT NULL,                       -- an external system or a database connection
    payload         TEXT    NOT NULL,
    status          TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'retrying', 'parked')),
    retry_count     INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    last_error      TEXT,
    created_at      INTEGER NOT NULL,
    last_attempt_at INTEGER,
    due_at          INTEGER NOT NULL DEFAULT 0,
    claimed_by      TEXT,                                   -- the process that tries it now
    claim_token     INTEGER NOT NULL DEFAULT 0,             -- grows with each claim; a result must present it
    claimed_until   INTEGER
) STRICT;

CREATE INDEX calls_by_category ON calls (category);

-- Calls are claimed per target, so that a dead target delays no other.
CREATE INDEX calls_due ON calls (category, target, due_at) WHERE status <> 'parked';

-- The rejected box: notifications that central refused for good, kept until a person resubmits or discards them.
CREATE TABLE rejected (
    message_id  TEXT    PRIMARY KEY,
    category    TEXT    NOT NULL,
    target      TEXT    NOT NULL,
    payload     TEXT    NOT NULL,
    code        TEXT    NOT NULL,
    error       TEXT    NOT NULL,
    retry_count INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    rejected_at INTEGER NOT NULL
) STRICT;

-- The record of each cached call, from the moment a script issues it.
CREATE TABLE tracking (
    call_id             TEXT    PRIMARY KEY,
    category            TEXT    NOT NULL CHECK (category IN ('external_call', 'database_write')),
    target_summary      TEXT    NOT NULL,
    status              TEXT    NOT NULL
                        CHECK (status IN ('pending', 'retrying', 'delivered', 'parked', 'failed', 'discarded')),
    retry_count         INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    last_error          TEXT,
    http_status         INTEGER,
    instance            TEXT,
    script              TEXT,
    execution_id        TEXT,
    parent_execution_id TEXT,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    terminal_at         INTEGER,                            -- null until it ends; parked is not an end
    version             INTEGER NOT NULL DEFAULT 1,         -- grows with every change of the row
    change_sequence     INTEGER NOT NULL UNIQUE,            -- grows over all rows; never used twice
    CHECK ((terminal_at IS NOT NULL) = (status IN ('delivered', 'failed', 'discarded'))),
    CHECK (status NOT IN ('parked', 'failed') OR last_error IS NOT NULL)
) STRICT;

CREATE INDEX tracking_terminal ON tracking (terminal_at) WHERE terminal_at IS NOT NULL;
CREATE INDEX tracking_live ON tracking (status, created_at) WHERE terminal_at IS NULL;

-- The site's event log, for people at the site.
CREATE TABLE events (
    sequence    INTEGER PRIMARY KEY AUTOINCREMENT,          -- never used twice, so that a reader can follow it
    occurred_at INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    severity    TEXT    NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
    category    TEXT,
    message_id  TEXT,
    target      TEXT,
    instance    TEXT,
    script      TEXT,
    text        TEXT    NOT NULL
) STRICT;

CREATE INDEX events_by_message ON events (message_id) WHERE message_id IS NOT NULL;

-- Idempotency keys of callers: the same send or call made twice is one.
CREATE TABLE keys (
    key        TEXT    PRIMARY KEY,
    message_id TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX keys_by_age ON keys (created_at);

-- Central's commands that were carried out here: one that arrives twice is applied once.
CREATE TABLE commands (
    intent_id  TEXT    PRIMARY KEY,
    outcome    TEXT    NOT NULL,
    detail     TEXT,
    applied_at INTEGER NOT NULL
) STRICT;

-- Notifications that the other node of a pair has buffered. That node forwards them; this one does after a takeover.
CREATE TABLE copies (
    number     INTEGER PRIMARY KEY,                         -- the sequence at the other node
    message_id TEXT    NOT NULL UNIQUE,
    payload    TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

-- Changed rows that the other node of a pair has not received yet, each once, under its newest number. Empty without a
-- pair. New notifications have no entry: they are read from `messages` in the order of their sequence.
CREATE TABLE changes (
    number  INTEGER PRIMARY KEY,
    created INTEGER,                                        -- a call: the number of its first change, if still known
    kind    TEXT    NOT NULL CHECK (kind IN ('message', 'call', 'rejected', 'key', 'command', 'epoch')),
    id      TEXT    NOT NULL
) STRICT;

CREATE INDEX changes_by_row ON changes (kind, id);

CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value ANY  NOT NULL
) STRICT;

INSERT INTO facts (name, value) VALUES
    ('incarnation', lower(hex(randomblob(16)))),            -- a different one means that the file was replaced
    ('change_sequence', 0);
