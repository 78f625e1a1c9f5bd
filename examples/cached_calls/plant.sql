-- The database of the example: make it by `sqlite3 plant.db < plant.sql` in the site's folder.
CREATE TABLE counts (
    call_id TEXT PRIMARY KEY,
    unit         TEXT NOT NULL,
    pieces       INTEGER NOT NULL CHECK (pieces >= 0),
    counted_at   TEXT NOT NULL
);
