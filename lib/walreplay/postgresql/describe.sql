-- What the tables of a database are, for `walreplay load --describe`: a JSON object for each column, a line each.
--
--     PGOPTIONS="-c walreplay.publication=archive" psql -d shop -AtX -f describe.sql > tables.jsonl
--
-- It prints what the Relation and Type messages of a publication's stream say, and its row filters.  Several
-- publications of one slot are written as its option publication_names has them: archive,other.  Without any, it prints
-- all tables and columns; of generated columns those alone that some publication sends (PostgreSQL 18).
-- It reads the catalogs alone, takes no rights, and runs on PostgreSQL 10 and later.
WITH RECURSIVE bases AS (
    SELECT oid, oid AS base FROM pg_catalog.pg_type
    UNION ALL
    SELECT bases.oid, t.typbasetype FROM bases JOIN pg_catalog.pg_type t ON t.oid = bases.base WHERE t.typtype = 'd'
),
said AS (
    SELECT nullif(pg_catalog.current_setting('walreplay.publication', true), '') AS names
),
asked AS (
    SELECT p.pubname::text FROM said JOIN pg_catalog.pg_publication p ON p.pubname = said.names
    UNION
    SELECT coalesce(replace(m.found[1], '""', '"'), lower(m.found[2]))
    FROM said, regexp_matches(said.names, '"((?:[^"]|"")+)"|([^\s",]+)', 'g') AS m (found)
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_publication p WHERE p.pubname = said.names)
),
-- Of column lists and row filters, servers before 15 know nothing.
listed AS (
    SELECT c.oid, to_jsonb(p) -> 'attnames' AS columns, to_jsonb(p) ->> 'rowfilter' AS row_filter
    FROM pg_catalog.pg_publication_tables p
    JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
    WHERE (SELECT names IS NULL FROM said) OR p.pubname IN (SELECT pubname FROM asked)
),
published AS (
    SELECT oid, jsonb_agg(columns) FILTER (WHERE columns IS NOT NULL) AS lists, count(DISTINCT columns) AS ways,
        -- A row is sent if any of the publications sends it.
        CASE WHEN bool_and(row_filter IS NOT NULL)
            THEN '(' || string_agg(DISTINCT row_filter, ') OR (' ORDER BY row_filter) || ')' END AS row_filter
    FROM listed
    GROUP BY oid
),
-- Partitions whose rows are sent as those of their root, though another publication names them.
parts AS (
    SELECT i.inhrelid AS oid
    FROM listed l
    JOIN pg_catalog.pg_class c ON c.oid = l.oid AND c.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = c.oid
    UNION
    SELECT i.inhrelid FROM parts JOIN pg_catalog.pg_inherits i ON i.inhparent = parts.oid
)
SELECT json_build_object(
    'schema', n.nspname,
    'table', c.relname,
    -- A number that a text cannot become stops the query, and PostgreSQL shows the text.
    'oid', CASE WHEN said.names IS NOT NULL AND p.ways > 1
        THEN format('publications send different columns of %I.%I', n.nspname, c.relname)::bigint
        ELSE c.oid::bigint END,
    'kind', c.relkind,
    'row_filter', CASE WHEN said.names IS NOT NULL THEN p.row_filter END,
    'replica_identity', c.relreplident,
    'attnum', a.attnum,
    'column', a.attname,
    'type_oid', a.atttypid::bigint,
    'typmod', a.atttypmod,
    'key', c.relreplident = 'f' OR coalesce(a.attnum = ANY (k.indkey), false),
    -- Of a domain, the type beneath it.
    'type_schema', tn.nspname,
    'type_name', t.typname,
    -- Of an enum, or an array of one, as the rows have them: a later rename changes rows that are loaded.
    'labels', (
        SELECT json_agg(json_build_array(e.oid::bigint, e.enumlabel) ORDER BY e.enumsortorder)
        FROM pg_catalog.pg_enum e WHERE t.oid = a.atttypid AND e.enumtypid IN (t.oid, t.typelem)
    )
)
FROM said
CROSS JOIN pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN published p ON p.oid = c.oid
LEFT JOIN pg_catalog.pg_attribute a
    ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    AND CASE WHEN coalesce(to_jsonb(a) ->> 'attgenerated', '') = ''
        THEN said.names IS NULL OR coalesce(p.lists @> jsonb_build_array(jsonb_build_array(a.attname)), true)
        ELSE pg_catalog.current_setting('server_version_num')::int >= 180000
            AND coalesce(p.lists @> jsonb_build_array(jsonb_build_array(a.attname)), false)
        END
LEFT JOIN bases ON bases.oid = a.atttypid
LEFT JOIN pg_catalog.pg_type t ON t.oid = bases.base
LEFT JOIN pg_catalog.pg_namespace tn ON tn.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_index k
    ON k.indrelid = c.oid
    AND (c.relreplident = 'd' AND k.indisprimary OR c.relreplident = 'i' AND k.indisreplident)
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
    AND (a.attnum IS NULL OR t.typtype IS DISTINCT FROM 'd')
    AND (said.names IS NULL OR p.oid IS NOT NULL AND c.oid NOT IN (SELECT oid FROM parts))
    AND (
        SELECT count(format('there is no publication %I', asked.pubname)::bigint)
        FROM asked
        WHERE asked.pubname NOT IN (SELECT pubname FROM pg_catalog.pg_publication)
    ) = 0
ORDER BY n.nspname, c.relname, a.attnum;
