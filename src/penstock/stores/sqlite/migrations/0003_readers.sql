-- Readers of the event log, and how far they have read.

CREATE TABLE reader (
    queue INTEGER NOT NULL,
    name TEXT NOT NULL,
    cursor TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kept_until INTEGER NOT NULL,
    PRIMARY KEY (queue, name)
) WITHOUT ROWID;
