-- Makes a month of dead letters, and moves those into it that lie in the partition for
-- letters of no month.
-- In braces: the names of the month and of that partition, the owner, the first moment of
-- the month and of the next one, and all columns.
-- Locks: the table, against everything; the caller has the lock. Index: none: what is
-- of no month is read once for each month that is made.
CREATE TABLE {month} (LIKE "outbox_dlq" INCLUDING COMMENTS INCLUDING CONSTRAINTS INCLUDING DEFAULTS INCLUDING STORAGE);
ALTER TABLE {month} OWNER TO {owner};
WITH moved AS (
    DELETE FROM {default}
    WHERE failed_at >= '{from}' AND failed_at < '{until}'
    RETURNING {columns}
)
INSERT INTO {month} ({columns})
SELECT {columns} FROM moved;
ALTER TABLE "outbox_dlq" ATTACH PARTITION {month} FOR VALUES FROM ('{from}') TO ('{until}');
