-- From version 2 of the site's buffer to version 3: cached calls get a table of their own. All rows stay, claimed ones too.
-- What it makes stands in schema.sql too, with its reasons; a test holds the two together.

CREATE TABLE calls (
    sequence             INTEGER PRIMARY KEY,
    message_id           TEXT    NOT NULL UNIQUE,
    category             TEXT    NOT NULL CHECK (category IN ('external_call', 'database_write')),
    call_id TEXT    NOT NULL,
    target               TEXT    NOT NULL,
    payload              TEXT    NOT NULL,
    status               TEXT    NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'retrying', 'parked')),
    retry_count          INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    last_error           TEXT,
    created_at           INTEGER NOT NULL,
    last_attempt_at      INTEGER,
    due_at               INTEGER NOT NULL DEFAULT 0,
    claimed_by           TEXT,
    claim_token          INTEGER NOT NULL DEFAULT 0,
    claimed_until        INTEGER
) STRICT;

CREATE INDEX calls_by_category ON calls (category);

CREATE INDEX calls_due ON calls (category, target, due_at) WHERE status <> 'parked';

INSERT INTO calls
    (sequence, message_id, category, call_id, target, payload, status, retry_count, last_error, created_at,
    last_attempt_at, due_at, claimed_by, claim_token, claimed_until)
SELECT sequence, message_id, category, call_id, target, payload, status, retry_count, last_error, created_at,
    last_attempt_at, due_at, claimed_by, claim_token, claimed_until
FROM messages WHERE category IN ('external_call', 'database_write');

DELETE FROM messages WHERE category IN ('external_call', 'database_write');

DROP INDEX IF EXISTS messages_by_category;
DROP INDEX IF EXISTS messages_due;

-- Only the rules of the table change, not how its rows are stored, so they stay where they are: a backlog may be larger
-- than the room that is left. A script that still runs an older version is refused a cached call by them, and can send.
PRAGMA writable_schema = ON;

UPDATE sqlite_schema SET sql = 'CREATE TABLE messages (
    sequence             INTEGER PRIMARY KEY,
    message_id           TEXT    NOT NULL UNIQUE,
    category             TEXT    NOT NULL CHECK (category = ''notification''),
    call_id TEXT    CHECK (call_id IS NULL),
    target               TEXT    NOT NULL,
    payload              TEXT    NOT NULL,
    status               TEXT    NOT NULL DEFAULT ''pending'' CHECK (status = ''pending'' OR status = ''retrying''),
    retry_count          INTEGER NOT NULL DEFAULT 0 CHECK (retry_count >= 0),
    last_error           TEXT,
    created_at           INTEGER NOT NULL,
    last_attempt_at      INTEGER,
    due_at               INTEGER NOT NULL DEFAULT 0,
    claimed_by           TEXT,
    claim_token          INTEGER NOT NULL DEFAULT 0,
    claimed_until        INTEGER
) STRICT' WHERE type = 'table' AND name = 'messages';

PRAGMA writable_schema = RESET;
