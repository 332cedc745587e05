-- The statements that copy the tables of a publication, and what the files are to be called; for base.sh.
SELECT
    format(
        'COPY (SELECT %s FROM %s %I.%I) TO STDOUT',
        (
            SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
            FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                AND coalesce(to_jsonb(a) ->> 'attgenerated', '') = ''
        ),
        -- A table that others inherit from is published without their rows; a partitioned one has no others.
        CASE WHEN c.relkind = 'r' THEN 'ONLY' ELSE '' END,
        p.schemaname,
        p.tablename
    ),
    -- As a target's folders are named.
    replace(replace(p.schemaname || '.' || p.tablename, '%', '%25'), '/', '%2F')
FROM pg_catalog.pg_publication_tables p
JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE p.pubname = :'publication'
ORDER BY pg_catalog.pg_table_size(c.oid) DESC;
