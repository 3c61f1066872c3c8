-- Every statement that reads or writes a log, by name (`-- name: …`).

-- name: insert_record
INSERT INTO record (run, lsn, branch, record_id, kind, subject, body, at, epoch, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_run
INSERT INTO run (run, run_id, lsn, hash, epoch, outsider_lsn, state) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: insert_blob
INSERT OR IGNORE INTO blob (digest, media_type, body) VALUES (?, ?, ?)

-- name: advance_head
UPDATE run SET lsn = ?1, hash = ?2, outsider_lsn = ?3 WHERE run = ?4 AND lsn = ?5

-- name: set_state
UPDATE run SET state = ?1 WHERE run = ?2

-- name: load_head
-- The head as written, and the newest record as it stands: they must agree.
SELECT run.run, run.lsn, run.hash, run.epoch, run.outsider_lsn, record.lsn, record.hash
FROM run LEFT JOIN record ON record.run = run.run
    AND record.lsn = (SELECT max(newest.lsn) FROM record AS newest WHERE newest.run = run.run)
WHERE run.run_id = ?1

-- name: last_run
SELECT coalesce(max(run), 0) FROM run

-- name: last_about
SELECT lsn FROM record WHERE run = ?1 AND lsn > ?2 AND subject = ?3 ORDER BY lsn DESC LIMIT 1

-- name: find_record
SELECT record.lsn FROM run JOIN record ON record.run = run.run
WHERE run.run_id = ?1 AND record.record_id = ?2 LIMIT 1

-- name: read
-- One record more than asked for, below: its hash is what the first one is checked against.
SELECT record.lsn, pos, branch, record_id, kind, subject, body, at, record.epoch, record.hash
FROM run JOIN record ON record.run = run.run
WHERE run.run_id = ?1 AND record.lsn >= ?2 AND record.lsn <= ?3 ORDER BY record.lsn

-- name: read_raw
-- Texts as bytes, so that one that is no longer UTF-8 can be named instead of failing the whole query.
SELECT lsn, pos, CAST(branch AS BLOB), record_id, CAST(kind AS BLOB), CAST(subject AS BLOB), body, at, epoch, hash
FROM record WHERE run = ?1 AND lsn > ?2 AND lsn <= ?3 ORDER BY lsn LIMIT ?4

-- name: feed
SELECT run.run_id, r.lsn, r.pos, r.branch, r.record_id, r.kind, r.subject, r.body, r.at, r.epoch, r.hash, before.hash
FROM record AS r JOIN run ON run.run = r.run LEFT JOIN record AS before ON before.run = r.run AND before.lsn = r.lsn - 1
WHERE r.pos > ?1 ORDER BY r.pos LIMIT ?2

-- name: feed_end
SELECT coalesce(max(pos), 0) FROM record

-- name: head
SELECT run_id, lsn, hash, epoch, outsider_lsn, state, worker, lease_until, boot_id FROM run WHERE run_id = ?1

-- name: heads
-- Texts as bytes, as in read_raw, and bounds too: a page goes on behind an id that is no text.
SELECT CAST(run_id AS BLOB), lsn, hash, epoch, outsider_lsn, CAST(state AS BLOB), CAST(worker AS BLOB), lease_until,
    CAST(boot_id AS BLOB) FROM run
WHERE run_id > CAST(?1 AS TEXT) AND run_id >= CAST(?2 AS TEXT) AND run_id < CAST(?3 AS TEXT)
ORDER BY run_id LIMIT ?4

-- name: live_heads
SELECT CAST(run_id AS BLOB), lsn, hash, epoch, outsider_lsn, CAST(state AS BLOB), CAST(worker AS BLOB), lease_until,
    CAST(boot_id AS BLOB) FROM run
WHERE run_id > CAST(?1 AS TEXT) AND run_id >= CAST(?2 AS TEXT) AND run_id < CAST(?3 AS TEXT)
    AND state NOT IN ('CANCELLED', 'FAILED', 'REJECTED', 'SUCCEEDED', 'TIMED_OUT')
ORDER BY run_id LIMIT ?4

-- name: lease
SELECT epoch, worker, lease_until, boot_id FROM run WHERE run_id = ?1

-- name: claim
UPDATE run SET epoch = ?2, worker = ?3, lease_until = ?4, boot_id = ?5 WHERE run_id = ?1

-- name: renew
UPDATE run SET lease_until = ?4 WHERE run_id = ?1 AND worker = ?2 AND epoch = ?3

-- name: release
UPDATE run SET worker = '', lease_until = 0, boot_id = '' WHERE run_id = ?1 AND worker = ?2 AND epoch = ?3

-- name: blob
SELECT body FROM blob WHERE digest = ?1

-- name: blobs
SELECT rowid, digest, body FROM blob WHERE rowid > ?1 ORDER BY rowid LIMIT ?2

-- name: runs
SELECT run, CAST(run_id AS BLOB), lsn, hash, epoch, outsider_lsn FROM run WHERE run > ?1 ORDER BY run LIMIT ?2

-- name: ends
-- One statement, so that both are of the same moment.
SELECT run.lsn, (SELECT max(record.lsn) FROM record WHERE record.run = run.run) FROM run WHERE run.run = ?1

-- name: orphans
SELECT run, count(*) FROM record WHERE run NOT IN (SELECT run FROM run) GROUP BY run

-- name: restore_head
UPDATE run SET lsn = ?1, hash = ?2, outsider_lsn = ?3, epoch = ?4, state = ?5 WHERE run = ?6

-- name: meta
SELECT value FROM meta WHERE key = ?1

-- name: set_meta
INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: set_base
INSERT INTO meta (key, value) SELECT 'base', value FROM meta WHERE key = 'generation'
ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: hash_at
SELECT record.hash FROM run JOIN record ON record.run = run.run WHERE run.run_id = ?1 AND record.lsn = ?2

-- name: heads_behind
SELECT run_id, lsn, hash FROM run WHERE run IN (SELECT run FROM record WHERE pos > ?1)

-- name: unset_base
DELETE FROM meta WHERE key = 'base'

-- name: feed_span
-- Without deletions SQLite gives out rowids without gaps, from 1.
SELECT count(*), min(pos), max(pos) FROM record

-- name: schema
SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL
