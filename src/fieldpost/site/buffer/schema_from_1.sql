-- From version 1 of the site's buffer to version 2: cached calls, callers' keys, the event log. All rows stay.
-- What it makes stands in schema.sql too, with its reasons; a test holds the two together. Two indexes of version 2 are
-- left out, since version 3 has them no more.

CREATE TABLE tracking (
    call_id        TEXT    PRIMARY KEY,
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
    terminal_at         INTEGER,                            -- null while it lives, and while it is parked
    version             INTEGER NOT NULL DEFAULT 1,         -- grows with every change of the row
    change_sequence     INTEGER NOT NULL UNIQUE,            -- grows over all rows; never used twice
    CHECK ((terminal_at IS NOT NULL) = (status IN ('delivered', 'failed', 'discarded'))),
    CHECK (status NOT IN ('parked', 'failed') OR last_error IS NOT NULL)
) STRICT;

CREATE INDEX tracking_terminal ON tracking (terminal_at) WHERE terminal_at IS NOT NULL;
CREATE INDEX tracking_live ON tracking (status, created_at) WHERE terminal_at IS NULL;

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

CREATE TABLE keys (
    key        TEXT    PRIMARY KEY,
    message_id TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX keys_by_age ON keys (created_at);

CREATE TABLE commands (
    intent_id  TEXT    PRIMARY KEY,
    outcome    TEXT    NOT NULL,
    detail     TEXT,
    applied_at INTEGER NOT NULL
) STRICT;

CREATE TABLE facts (
    name  TEXT PRIMARY KEY,
    value ANY  NOT NULL
) STRICT;

INSERT INTO facts (name, value) VALUES
    ('incarnation', lower(hex(randomblob(16)))),            -- another one means that the file was replaced
    ('change_sequence', 0);
