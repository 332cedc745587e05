-- What the tables of a database are, for `walreplay load --describe`: a JSON object for each column, a line each.
--
--     psql -d shop -AtX -f describe.sql > tables.jsonl
--
-- It says what a Relation and its Type messages say in the stream: generated columns are left out, as COPY does.
-- It reads the catalogs alone, takes no rights, and runs on PostgreSQL 10 and later.
WITH RECURSIVE bases AS (
    SELECT oid, oid AS base FROM pg_catalog.pg_type
    UNION ALL
    SELECT bases.oid, t.typbasetype FROM bases JOIN pg_catalog.pg_type t ON t.oid = bases.base WHERE t.typtype = 'd'
)
SELECT json_build_object(
    'schema', n.nspname,
    'table', c.relname,
    'oid', c.oid::bigint,
    'replica_identity', c.relreplident,
    'attnum', a.attnum,
    'column', a.attname,
    'type_oid', a.atttypid::bigint,
    'typmod', a.atttypmod,
    'key', c.relreplident = 'f' OR coalesce(a.attnum = ANY (k.indkey), false),
    -- Of a domain, the type beneath it.
    'type_schema', tn.nspname,
    'type_name', t.typname
)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a
    ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND coalesce(to_jsonb(a) ->> 'attgenerated', '') = ''
LEFT JOIN bases ON bases.oid = a.atttypid
LEFT JOIN pg_catalog.pg_type t ON t.oid = bases.base
LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_index k
    ON k.indrelid = c.oid
    AND (c.relreplident = 'd' AND k.indisprimary OR c.relreplident = 'i' AND k.indisreplident)
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
    AND (a.attnum IS NULL OR t.typtype IS DISTINCT FROM 'd')
ORDER BY n.nspname, c.relname, a.attnum;
