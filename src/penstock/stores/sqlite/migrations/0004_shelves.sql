-- Entries of a tenant that are no jobs, on shelves by their kind. No version is used twice.

CREATE TABLE kept (
    tenant TEXT NOT NULL,
    shelf TEXT NOT NULL,
    name TEXT NOT NULL,
    body BLOB NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (tenant, shelf, name)
) WITHOUT ROWID;

INSERT INTO meta (name, value) VALUES ('kept_version', 0);
