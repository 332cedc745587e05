-- The statements that copy the tables that describe.sql has described, in the file $DESCRIBED; for base.sh.
-- A line has the table's oid, the name of its file, and the statement, in which printf %b finds newlines and tabs.
\set described `cat "$DESCRIBED"`
WITH described AS (
    SELECT (line::json ->> 'oid')::oid AS oid, line::json ->> 'schema' AS schema, line::json ->> 'table' AS name,
        line::json ->> 'kind' AS kind, line::json ->> 'row_filter' AS row_filter,
        string_agg(quote_ident(line::json ->> 'column'), ', ' ORDER BY (line::json ->> 'attnum')::int) AS columns
    FROM unnest(string_to_array(:'described', E'\n')) AS line
    GROUP BY 1, 2, 3, 4, 5
),
-- Names that every file system and shell takes as they are; Spark hides files that begin with a dot or an underscore.
encoded AS (
    SELECT d.oid, part.name, string_agg(
        CASE WHEN s.sign COLLATE "C" ~ '[A-Za-z0-9-]' OR ascii(s.sign) > 127 OR s.sign = '_' AND s.at > 1 THEN s.sign
            ELSE '%' || upper(lpad(to_hex(ascii(s.sign)), 2, '0')) END, '' ORDER BY s.at) AS text
    FROM described d
    CROSS JOIN LATERAL (SELECT d.schema UNION SELECT d.name) AS part (name)
    CROSS JOIN LATERAL unnest(string_to_array(part.name, NULL)) WITH ORDINALITY AS s (sign, at)
    GROUP BY d.oid, part.name
)
SELECT d.oid,
    -- A file's name may have 255 bytes.
    s.text || CASE WHEN octet_length(s.text || t.text) > 200 THEN '/' ELSE '.' END || t.text,
    replace(replace(replace(replace(format(
        -- A table that others inherit from is published without their rows; a partitioned one has no others.
        'COPY (SELECT %s FROM %s %I.%I%s) TO STDOUT',
        d.columns, CASE WHEN d.kind = 'r' THEN 'ONLY' END, d.schema, d.name, ' WHERE ' || d.row_filter
    ), E'\\', E'\\\\'), E'\n', E'\\n'), E'\r', E'\\r'), E'\t', E'\\t')
FROM described d
JOIN encoded s ON s.oid = d.oid AND s.name = d.schema
JOIN encoded t ON t.oid = d.oid AND t.name = d.name
ORDER BY pg_catalog.pg_table_size(d.oid) DESC;
