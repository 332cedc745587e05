-- What has to be the same before and after tables are copied, for whatever of them does not keep to a snapshot.
--
-- A line is a JSON array.  Those of the snapshot (walreplay.moved=yes) have to be found once more, without it, at the
-- end: an ALTER TABLE that rewrites a table leaves it empty to older snapshots, tables and columns are found by their
-- names of the moment, and values of an enum are written with its labels of the moment.  The tables' oids are in
-- walreplay.tables, as {1,2}.  With walreplay.parts=yes, partitions are read by their own names, as pg_dump does.
-- kept.sh compares the lines.
--
-- Names may have changed there and back, so the rows of the catalogs that have them must not have been written: not the
-- table's in pg_class, which GRANT, TRUNCATE and CREATE TRIGGER write, too, but its row type's, which is renamed and
-- moved with it.  Whatever alters a column, or grants rights to it, writes the row that has its name.
WITH RECURSIVE tree AS (
    SELECT named.oid, named.oid AS root, NULL::text AS attached
    FROM unnest(pg_catalog.current_setting('walreplay.tables', true)::oid[]) AS named (oid)
    UNION
    SELECT i.inhrelid, tree.root, i.xmin::text
    FROM tree
    JOIN pg_catalog.pg_class c ON c.oid = tree.oid AND c.relkind = 'p'
    JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
)
SELECT json_build_array(
    'the table was rewritten by ALTER TABLE, or dropped', n.nspname || '.' || c.relname, c.oid::bigint,
    -- VACUUM FULL and CLUSTER keep the table for large values, ALTER TABLE makes a new one.
    c.relpersistence, to_jsonb(c) -> 'relam', c.reltablespace::bigint, c.reltoastrelid::bigint,
    (
        SELECT json_agg(json_build_array(a.attnum, a.xmin::text) ORDER BY a.attnum)
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
    )
)
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid AND c.relkind = 'r'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
-- TRUNCATE, which the stream has too, VACUUM FULL and CLUSTER change the file alone.
WHERE coalesce(pg_catalog.current_setting('walreplay.moved', true), '') <> 'yes'
    OR c.relfilenode IS DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid)
UNION ALL
-- Rows are read by the names of the moment, which may be another table's or column's; those of partitions by the root's.
SELECT json_build_array(
    'the table was renamed, moved, dropped or given another owner, or a partition of it detached',
    n.nspname || '.' || c.relname, tree.oid::bigint, tree.attached, t.xmin::text
)
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = CASE
    WHEN pg_catalog.current_setting('walreplay.parts', true) = 'yes' THEN tree.oid ELSE tree.root END
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_type t ON t.oid = c.reltype
UNION ALL
SELECT json_build_array(
    'a schema was renamed or dropped, or rights to it were granted', n.nspname, n.oid::bigint, n.xmin::text
)
FROM pg_catalog.pg_namespace n
WHERE n.oid IN (SELECT c.relnamespace FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid)
UNION ALL
SELECT json_build_array(
    'a column of the table was renamed, altered or dropped, or rights to it were granted',
    n.nspname || '.' || c.relname, c.oid::bigint, a.attnum, a.attname, a.xmin::text
)
FROM tree
JOIN pg_catalog.pg_class c ON c.oid = tree.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE tree.oid = tree.root
UNION ALL
SELECT json_build_array(
    'labels of the enum were renamed', n.nspname || '.' || t.typname, e.oid::bigint, e.xmin::text, e.enumlabel
)
FROM pg_catalog.pg_enum e
JOIN pg_catalog.pg_type t ON t.oid = e.enumtypid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace;
