-- What replication does not send of DDL, said by the source: install it once in each database that is captured.
--
--     walreplay --scripts FOLDER && psql -d shop -f FOLDER/announce.sql
--     psql -d shop -c "SELECT walreplay.announce_all()"      -- for each new slot, once it is there
--
-- Event triggers emit a transactional logical message when a table or an enum is made, changed or dropped: numbers,
-- names, types and comments of its columns, and what older rows have in them.  The messages are in the stream, in the
-- order of the WAL, if the recorder asks for them (messages=on).  They are emitted when DDL runs, and at no other time.
-- What older rows have in a column is also said before a table is rewritten, since PostgreSQL forgets it then.
--
-- It takes the rights to create a schema and an event trigger (a superuser, or what a managed service gives in its
-- place), and no extension.
-- To remove it: DROP EVENT TRIGGER walreplay_ddl, walreplay_drop and walreplay_rewrite; DROP SCHEMA walreplay CASCADE;
BEGIN;

DO $walreplay$
BEGIN
    IF current_setting('server_version_num')::int < 140000 THEN
        RAISE EXCEPTION 'this server would not send announcements: PostgreSQL does from version 14 on';
    END IF;
END
$walreplay$;

CREATE SCHEMA IF NOT EXISTS walreplay;

-- A table, and those that inherit from it.
CREATE OR REPLACE FUNCTION walreplay.below(relation oid) RETURNS SETOF oid
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $walreplay$
    WITH RECURSIVE tables AS (
        SELECT relation AS oid
        UNION SELECT i.inhrelid FROM pg_inherits i JOIN tables t ON i.inhparent = t.oid
    )
    SELECT oid FROM tables
$walreplay$;

-- What rows that are older than a column have in it, as text, by the column's number: PostgreSQL's "fast defaults".
-- NULL stands for a text that is too long to be announced.
CREATE OR REPLACE FUNCTION walreplay.missing(relation oid) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog SET datestyle = 'ISO, YMD' SET intervalstyle = postgres SET timezone = 'UTC'
SET bytea_output = hex SET extra_float_digits = 3
AS $walreplay$
DECLARE
    found jsonb;
BEGIN
    SELECT jsonb_object_agg(s.attnum, CASE WHEN octet_length(s.value) <= 65536 THEN s.value END) INTO found
    FROM (
        SELECT a.attnum,
            CASE WHEN t.typdelim = ',' THEN (a.attmissingval::text::text[])[1]
                ELSE substr(a.attmissingval::text, 2, length(a.attmissingval::text) - 2) END AS value
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        WHERE a.attrelid = relation AND a.attnum > 0 AND a.atthasmissing AND NOT a.attisdropped
    ) s;
    RETURN coalesce(found, '{}');
END
$walreplay$;

-- A table, in one JSON object; NULL for what is no table that is replicated, or may be.
-- If it is about to be rewritten: reason is why, by the bits of pg_event_trigger_table_rewrite_reason(); by_expression
-- says whether values of columns may be made by an expression (ALTER TYPE … USING), and not by a cast.
CREATE OR REPLACE FUNCTION walreplay.described(relation oid, reason int DEFAULT 0, by_expression boolean DEFAULT true)
RETURNS json
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $walreplay$
DECLARE
    own jsonb := walreplay.missing(relation);
    leaves jsonb := '{}';
    kind "char";
BEGIN
    SELECT relkind INTO kind FROM pg_class WHERE oid = relation;
    IF kind = 'p' THEN
        -- A partitioned table has no rows: what its partitions agree upon, by name.
        SELECT coalesce(jsonb_object_agg(s.attname, s.value), '{}') INTO leaves
        FROM (
            SELECT a.attname,
                CASE WHEN count(DISTINCT m.value) = 1 AND count(m.value) = count(*) THEN min(m.value) END AS value
            FROM walreplay.below(relation) b(oid)
            CROSS JOIN LATERAL jsonb_each_text(walreplay.missing(b.oid)) m
            JOIN pg_attribute a ON a.attrelid = b.oid AND a.attnum = m.key::int2
            GROUP BY a.attname
        ) s;
    END IF;
    RETURN (
        SELECT json_build_object(
            'walreplay', 1,
            'oid', c.oid::bigint,
            'schema', n.nspname,
            'table', c.relname,
            'kind', c.relkind,
            'identity', c.relreplident,
            'natts', c.relnatts,
            'comment', obj_description(c.oid, 'pg_class'),
            'parent', (SELECT i.inhparent::bigint FROM pg_inherits i WHERE i.inhrelid = c.oid ORDER BY inhseqno LIMIT 1),
            'is_partition', c.relispartition,
            -- It has become a partition just now.
            'attached', EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND age(i.xmin) <= 0),
            'empty', NOT EXISTS (
                SELECT FROM walreplay.below(CASE c.relkind WHEN 'p' THEN c.oid END) b(oid)
                WHERE pg_relation_size(b.oid) > 0
            ) AND pg_relation_size(c.oid) = 0,
            'unlogged', c.relpersistence = 'u',
            'rewritten', reason,
            'by_expression', by_expression,
            'key', (
                SELECT json_agg(k.n ORDER BY k.at)
                FROM pg_index x CROSS JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY k(n, at)
                WHERE x.indrelid = c.oid
                    AND (c.relreplident = 'i' AND x.indisreplident OR c.relreplident <> 'i' AND x.indisprimary)
            ),
            -- The transaction and the subtransactions that have written the columns, or what is said of them, just now:
            -- those may still roll back.
            'xids', (
                SELECT json_agg(w.xid ORDER BY w.xid)
                FROM (
                    SELECT a.xmin::text::bigint AS xid FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum > 0 AND age(a.xmin) <= 0
                    UNION
                    SELECT d.xmin::text::bigint FROM pg_description d
                    WHERE d.classoid = 'pg_class'::regclass AND d.objoid = c.oid AND age(d.xmin) <= 0
                ) w
            ),
            'columns', (
                SELECT json_agg(json_build_object(
                    'n', a.attnum,
                    'name', a.attname,
                    'type', a.atttypid::bigint,
                    'typmod', a.atttypmod,
                    'not_null', a.attnotnull,
                    'generated', coalesce(to_jsonb(a) ->> 'attgenerated', ''),
                    'written', age(a.xmin) <= 0,
                    'missing', coalesce(own ->> a.attnum::text, leaves ->> a.attname::text),
                    -- Older rows have got something else than NULL, and it is not said here.
                    'unknown', coalesce(own -> a.attnum::text, leaves -> a.attname::text) = 'null'
                        OR reason & 2 > 0 AND age(a.xmin) <= 0 AND NOT own ? a.attnum::text AND NOT leaves ? a.attname
                        AND (a.atthasdef OR a.attidentity <> '' OR (
                            SELECT typdefault IS NOT NULL FROM pg_type WHERE oid = a.atttypid
                        )),
                    'comment', col_description(c.oid, a.attnum)
                ) ORDER BY a.attnum)
                FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            )
        )
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = relation AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
    );
END
$walreplay$;

CREATE OR REPLACE FUNCTION walreplay.emit(message json) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog
AS $walreplay$
    -- A message has the bytes that it is given, whatever the recorder's encoding is.
    SELECT pg_logical_emit_message(true, 'walreplay', convert_to(message::text, 'UTF8')) WHERE message IS NOT NULL
$walreplay$;

-- Put a record behind the announcements.  Decoding takes a message to stand at its end, where the next record begins: a
-- row of another (sub)transaction there might be sent in front of it.
CREATE OR REPLACE FUNCTION walreplay.keep_behind() RETURNS void
LANGUAGE sql
SET search_path = pg_catalog
AS $walreplay$
    SELECT pg_logical_emit_message(true, 'walreplay', '')
$walreplay$;

-- Announce a table, and those that inherit its columns.
CREATE OR REPLACE FUNCTION walreplay.announce(relation oid) RETURNS void
LANGUAGE sql
SET search_path = pg_catalog
AS $walreplay$
    SELECT walreplay.emit(walreplay.described(t.oid)) FROM walreplay.below(relation) t(oid) ORDER BY t.oid
$walreplay$;

-- An enum, in one JSON object; NULL for any other type.  Its labels keep their numbers when they are renamed.
CREATE OR REPLACE FUNCTION walreplay.described_enum(enum oid) RETURNS json
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $walreplay$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_type WHERE oid = enum AND typtype = 'e') THEN
        RETURN NULL;
    END IF;
    -- Who announces an enum, and has not committed yet, has labels that nobody else sees.
    PERFORM pg_advisory_xact_lock((x'57524c50'::bigint << 32) | enum::bigint);
    RETURN (
        SELECT json_build_object(
            'walreplay', 1,
            'type', t.oid::bigint,
            'array', t.typarray::bigint,
            'schema', n.nspname,
            'name', t.typname,
            'labels', (
                SELECT json_agg(json_build_array(e.oid::bigint, e.enumlabel) ORDER BY e.enumsortorder)
                FROM pg_enum e WHERE e.enumtypid = t.oid
            ),
            'xids', (
                SELECT json_agg(DISTINCT e.xmin::text::bigint)
                FROM pg_enum e WHERE e.enumtypid = t.oid AND age(e.xmin) <= 0
            )
        )
        FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
        WHERE t.oid = enum
    );
END
$walreplay$;

-- Announce every enum, and every published table, or those of one publication; gives how many tables.  Until the
-- transaction ends, nobody changes the enums, nor the columns of these tables; rows can be read and written.
CREATE OR REPLACE FUNCTION walreplay.announce_all(publication name DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $walreplay$
DECLARE
    enum oid;
    relation oid;
    announced bigint := 0;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'announce_all needs the isolation level READ COMMITTED, to see tables as they are';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'logical' AND database = current_database()) THEN
        RAISE WARNING 'there is no logical replication slot yet: no stream has this; announce all again once there is one';
    END IF;
    FOR enum IN
        SELECT t.oid FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
        WHERE t.typtype = 'e' AND n.nspname !~ '^(pg_|information_schema$)'
        ORDER BY 1
    LOOP
        PERFORM walreplay.emit(walreplay.described_enum(enum));
    END LOOP;
    FOR relation IN
        SELECT DISTINCT c.oid
        FROM pg_publication_tables p
        JOIN pg_namespace n ON n.nspname = p.schemaname
        JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
        WHERE publication IS NULL OR p.pubname = publication
        ORDER BY 1
    LOOP
        EXECUTE format('LOCK TABLE %s IN ACCESS SHARE MODE', relation::regclass);
        PERFORM walreplay.announce(relation);
        announced := announced + 1;
    END LOOP;
    PERFORM walreplay.keep_behind();
    RETURN announced;
END
$walreplay$;

-- DDL is never stopped by what cannot be announced: walreplay then goes by what the stream shows.
CREATE OR REPLACE FUNCTION walreplay.on_ddl() RETURNS event_trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $walreplay$
DECLARE
    changed record;
BEGIN
    FOR changed IN
        SELECT DISTINCT classid, objid FROM pg_event_trigger_ddl_commands()
        WHERE classid IN ('pg_class'::regclass, 'pg_type'::regclass)
        ORDER BY 1, 2
    LOOP
        IF changed.classid = 'pg_class'::regclass THEN
            PERFORM walreplay.announce(changed.objid);
            -- The command may have made a partition of it a table of its own.
            PERFORM walreplay.announce(c.oid)
            FROM pg_class p, pg_class c JOIN pg_type t ON t.oid = c.reltype
            WHERE p.oid = changed.objid AND p.relkind = 'p'
                AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND age(c.xmin) <= 0 AND age(t.xmin) > 0
                AND c.oid <> p.oid;
        ELSE
            PERFORM walreplay.emit(walreplay.described_enum(changed.objid));
        END IF;
    END LOOP;
    PERFORM walreplay.keep_behind();
EXCEPTION WHEN others THEN
    RAISE WARNING 'walreplay: the change is not announced: %', SQLERRM;
END
$walreplay$;

CREATE OR REPLACE FUNCTION walreplay.on_drop() RETURNS event_trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $walreplay$
DECLARE
    gone record;
BEGIN
    FOR gone IN
        SELECT DISTINCT objid, objsubid > 0 AS is_column, schema_name, object_name
        FROM pg_event_trigger_dropped_objects()
        WHERE classid = 'pg_class'::regclass AND NOT is_temporary AND object_type IN ('table', 'table column')
    LOOP
        IF gone.is_column THEN
            -- Also where a type or a function was dropped with what depends on it.
            PERFORM walreplay.announce(gone.objid);
        ELSE
            PERFORM walreplay.emit(json_build_object(
                'walreplay', 1, 'oid', gone.objid::bigint, 'schema', gone.schema_name, 'table', gone.object_name,
                'dropped', true
            ));
        END IF;
    END LOOP;
    PERFORM walreplay.keep_behind();
EXCEPTION WHEN others THEN
    RAISE WARNING 'walreplay: the change is not announced: %', SQLERRM;
END
$walreplay$;

-- A table is about to be rewritten: the catalogs are as they will be, and still have what older rows had.
CREATE OR REPLACE FUNCTION walreplay.on_rewrite() RETURNS event_trigger
LANGUAGE plpgsql
SET search_path = pg_catalog
AS $walreplay$
DECLARE
    callers text;
    by_expression boolean;
BEGIN
    -- The statement's text shows that it has no USING, unless something else than the client runs it.
    GET DIAGNOSTICS callers = PG_CONTEXT;
    by_expression := strpos(callers, E'\n') > 0 OR coalesce(current_query(), 'using') ~* 'using';
    PERFORM walreplay.emit(walreplay.described(a.oid, pg_event_trigger_table_rewrite_reason(), by_expression))
    FROM (
        -- With the tables whose partition it is.
        WITH RECURSIVE above AS (
            SELECT pg_event_trigger_table_rewrite_oid() AS oid
            UNION SELECT i.inhparent FROM above a
            JOIN pg_class c ON c.oid = a.oid AND c.relispartition JOIN pg_inherits i ON i.inhrelid = a.oid
        )
        SELECT oid FROM above
    ) a;
    PERFORM walreplay.keep_behind();
EXCEPTION WHEN others THEN
    RAISE WARNING 'walreplay: the change is not announced: %', SQLERRM;
END
$walreplay$;

-- Whoever runs DDL runs these, with their own rights: they read the catalogs alone.
GRANT USAGE ON SCHEMA walreplay TO PUBLIC;

DROP EVENT TRIGGER IF EXISTS walreplay_ddl;
DROP EVENT TRIGGER IF EXISTS walreplay_drop;
DROP EVENT TRIGGER IF EXISTS walreplay_rewrite;
CREATE EVENT TRIGGER walreplay_ddl ON ddl_command_end EXECUTE PROCEDURE walreplay.on_ddl();
CREATE EVENT TRIGGER walreplay_drop ON sql_drop EXECUTE PROCEDURE walreplay.on_drop();
CREATE EVENT TRIGGER walreplay_rewrite ON table_rewrite EXECUTE PROCEDURE walreplay.on_rewrite();

COMMIT;
