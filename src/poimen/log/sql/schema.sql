-- The tables of a log. `record` is in append order: its rowid is the feed position. It has one index and no
-- trigger, because each further page that a commit touches is paid in the path of every effect.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE run (
    run          INTEGER PRIMARY KEY,
    run_id       TEXT NOT NULL UNIQUE,
    lsn          INTEGER NOT NULL,
    hash         BLOB NOT NULL,
    epoch        INTEGER NOT NULL,
    outsider_lsn INTEGER NOT NULL,
    state        TEXT NOT NULL,
    worker       TEXT NOT NULL DEFAULT '',
    lease_until  INTEGER NOT NULL DEFAULT 0,
    boot_id      TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX run_live ON run (run_id)
    WHERE state NOT IN ('CANCELLED', 'FAILED', 'REJECTED', 'SUCCEEDED', 'TIMED_OUT');

CREATE TABLE record (
    pos       INTEGER PRIMARY KEY,
    run       INTEGER NOT NULL,
    lsn       INTEGER NOT NULL,
    branch    TEXT NOT NULL,
    record_id BLOB NOT NULL,
    kind      TEXT NOT NULL,
    subject   TEXT NOT NULL,
    body      BLOB NOT NULL,
    at        INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    hash      BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX record_lsn ON record (run, lsn);

CREATE TABLE blob (
    digest     BLOB PRIMARY KEY,
    media_type TEXT NOT NULL,
    body       BLOB NOT NULL
) STRICT;
