-- The database of the example. Create it in the site's folder: sqlite3 plant.db < plant.sql
CREATE TABLE counts (
    call_id      TEXT PRIMARY KEY,
    unit         TEXT NOT NULL,
    pieces       INTEGER NOT NULL CHECK (pieces >= 0),
    counted_at   TEXT NOT NULL
);
