-- A line for whatever must not have happened. {lease} is that of the claims, in
-- milliseconds.
SELECT 'P1: the caller''s row ' || n || ' has no message' FROM biz
WHERE n NOT IN (SELECT n FROM audit WHERE op = 'publish' AND queue = 'q')
UNION ALL
SELECT 'P2: the message ' || n || ' has no row of the caller' FROM audit
WHERE op = 'publish' AND queue = 'q' AND n NOT IN (SELECT n FROM biz)
UNION ALL
SELECT 'M1: the message ' || n || ' vanished' FROM audit AS p
WHERE op = 'publish'
    AND NOT EXISTS (SELECT FROM outbox AS o WHERE o.id = p.id)
    AND NOT EXISTS (SELECT FROM audit AS d WHERE d.op = 'delete' AND d.id = p.id)
UNION ALL
SELECT 'D2: the dead letter of row ' || id || ' and its delete are not one transaction'
FROM audit AS l
WHERE op = 'letter'
    AND 1 <> (SELECT count(*) FROM audit AS d WHERE d.op = 'delete' AND d.id = l.id AND d.xid = l.xid)
UNION ALL
SELECT 'D3: the row ' || id || ' has ' || count(*) || ' dead letters'
FROM audit WHERE op = 'letter' GROUP BY id HAVING count(*) > 1
UNION ALL
SELECT 'L1: the row ' || id || ' was claimed while another lease held'
FROM audit
WHERE op = 'claim' AND token_before IS NOT NULL
    AND claimed_at < held_since + {lease} * interval '1 millisecond'
UNION ALL
SELECT 'L3: the token ' || token_after || ' came back'
FROM audit WHERE op = 'claim' GROUP BY token_after HAVING count(DISTINCT xid) > 1
UNION ALL
SELECT 'L5: the row ' || id || ' was deleted with no lease'
FROM audit WHERE op = 'delete' AND queue = 'q' AND token_before IS NULL AND {leased_deletes}
UNION ALL
SELECT 'R1: the letter of row ' || l.id || ' was replayed into ' || count(*) || ' rows'
FROM audit AS l JOIN audit AS p ON p.op = 'publish' AND p.queue = 'q' AND p.n = l.n AND p.id > l.id
WHERE l.op = 'letter' GROUP BY l.id HAVING count(*) > 1
