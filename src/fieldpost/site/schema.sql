-- The site's buffer, version 1 (PRAGMA user_version). Times are integer microseconds since 1970 in UTC.

-- What waits to leave the site. A row ends when its message does: outcomes that end it are never a status here.
CREATE TABLE messages (
    sequence             INTEGER PRIMARY KEY,               -- commit order; the site's clock never orders anything
    message_id           TEXT    NOT NULL UNIQUE,           -- for a notification its notification_id
    category             TEXT    NOT NULL CHECK (category IN ('notification', 'external_call', 'database_write')),
    tracked_operation_id TEXT,
    target               TEXT    NOT NULL,                  -- 'central', an external system, a database connection
    payload              TEXT    NOT NULL,                  -- JSON, in the shape its carrier sends
    status               TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'retrying', 'parked')),
    retry_count          INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    last_error           TEXT,
    created_at           INTEGER NOT NULL,
    last_attempt_at      INTEGER,
    due_at               INTEGER NOT NULL DEFAULT 0,        -- 0 means at once, so that a wrong clock delays nothing new
    claimed_by           TEXT,
    claim_token          INTEGER NOT NULL DEFAULT 0,
    claimed_until        INTEGER,
    CHECK ((category = 'notification') = (tracked_operation_id IS NULL)),
    CHECK (category <> 'notification' OR status <> 'parked')
) STRICT;

-- The rejected box: what central refused for good. It stays until a person deals with it.
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
