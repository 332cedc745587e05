#!/bin/sh
# Check that tables have kept to a snapshot until now: run it behind pg_dump, or what else has read them in it.
#
#     kept.sh [--by-root] DESCRIPTION
#
# DESCRIPTION is what describe.sql has printed of the tables.  The snapshot's name is in $SNAPSHOT, and it still has to
# last: snapshot.sh runs a command while it does.  With --by-root, partitions were read as rows of their root.
# What was renamed, moved, rewritten or dropped since the snapshot was made is printed, and the script fails.  Database,
# host and user are those of PGDATABASE, PGHOST, PGUSER.
set -eu
parts=yes
if [ "${1-}" = --by-root ]; then
    parts=no
    shift
fi
if [ $# -ne 1 ] || [ -z "${SNAPSHOT-}" ]; then
    echo 'Say which tables, and have the name of their snapshot in $SNAPSHOT, as in a command of snapshot.sh:' >&2
    echo "    kept.sh [--by-root] DESCRIPTION" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
test -r "$1"
export DESCRIBED="$1"

sql() {
    psql -X -q -At -v ON_ERROR_STOP=1 "$@"
}
tables=$(sql <<'SQL'
\set described `cat "$DESCRIBED"`
SELECT string_agg(DISTINCT line::json ->> 'oid', ',') FROM unnest(string_to_array(:'described', E'\n')) AS line WHERE line <> ''
SQL
)
lines() {
    sql "$@" -c "SET walreplay.tables = '{$tables}'" -c "SET walreplay.parts = $parts" -f "$here/kept.sql" < /dev/null
}
before=$(mktemp)
trap 'rm -f "$before" "$before.now"' EXIT
lines -c "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" -c "SET TRANSACTION SNAPSHOT '$SNAPSHOT'" \
    -c "SET walreplay.moved = yes" > "$before"
lines > "$before.now"
lost=$(grep -vxFf "$before.now" "$before") || test $? -eq 1
if [ -n "$lost" ]; then
    echo "$lost" >&2
    echo "since the snapshot was made: what was read of them does not fit, so begin again, in a new snapshot" >&2
    exit 1
fi
