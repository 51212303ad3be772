-- What a call is about to change: i numbers the events of the call, item is the index in the caller's list.
CREATE TEMP TABLE IF NOT EXISTS touched (
    i INTEGER PRIMARY KEY,
    n INTEGER NOT NULL,
    item INTEGER,
    source TEXT,
    value TEXT
)
