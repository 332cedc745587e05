#!/bin/sh
# Copy the tables of a publication as they are at the moment from which a new slot sends changes.
#
#     base.sh SLOT PUBLICATION FOLDER
#
# Several publications are written as the option publication_names has them: archive,other.  Database, host and user are
# those of PGDATABASE, PGHOST, PGUSER; the user needs the right to replicate and to read the tables.  FOLDER then has a
# file for each table, ../FOLDER.jsonl says what the tables are and how many rows were copied, and ../FOLDER.lsn has the
# snapshot's LSN.  The source goes on working meanwhile: nothing is locked but against DROP, TRUNCATE and ALTER.
set -eu
if [ $# -ne 3 ]; then
    echo "Name a slot, which is made, the publication that it is to send, and a folder for the copies:" >&2
    echo "    PGDATABASE=shop base.sh archive archive /data/base" >&2
    exit 2
fi
slot=$1 publication=$2 folder=${3%/}
here=$(cd "$(dirname "$0")" && pwd)
names=$(printf '%s\n' "$publication" | sed "s/'/''/g")

# What a value's text depends on, see docs/capturing.md.
export PGOPTIONS="-c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=3 -c timezone=UTC"
# Rows that a policy hides are missed: better an error.
PGOPTIONS="$PGOPTIONS -c row_security=off -c standard_conforming_strings=on"
export PGCLIENTENCODING=UTF8

if [ -z "${SNAPSHOT-}" ]; then
    made=$(psql -X -q -At -v ON_ERROR_STOP=1 -v slot="$slot" <<'SQL'
SELECT 'yes' FROM pg_catalog.pg_replication_slots WHERE slot_name = :'slot'
SQL
)
    if [ -n "$made" ]; then
        echo "There is a slot $slot already, and only a new one has a snapshot. If nobody needs its changes, drop it:" >&2
        echo "    psql -c \"SELECT pg_drop_replication_slot('$slot')\"" >&2
        echo "Or name a new slot; to add tables to one that is recorded, see --temporary of snapshot.sh" >&2
        exit 1
    fi
    # A publication that is not there is named before there is a slot, which would keep WAL.
    psql -X -q -At -v ON_ERROR_STOP=1 -c "SET walreplay.publication = '$names'" -f "$here/describe.sql" > /dev/null
    mkdir -p "$folder"
    if [ -n "$(ls -A "$folder")" ]; then
        echo "$folder is not empty, and its files would be loaded, too: empty it, or name another folder" >&2
        exit 1
    fi
    rm -f "$folder.lsn"
    # The snapshot lasts until this session has another command: it waits for the copies.
    export COPY_SLOT="$slot" COPY_PUBLICATION="$publication" COPY_FOLDER="$folder" COPY_SCRIPT="$here/base.sh"
    psql "replication=database" -X -q -v ON_ERROR_STOP=1 <<SQL
CREATE_REPLICATION_SLOT "$slot" LOGICAL pgoutput \gset
\setenv SNAPSHOT :snapshot_name
\setenv LSN :consistent_point
\! sh "\$COPY_SCRIPT" "\$COPY_SLOT" "\$COPY_PUBLICATION" "\$COPY_FOLDER"
SQL
    # It is written when all tables are copied.
    test -f "$folder.lsn"
    exit
fi

sql() {
    psql -X -q -At -v ON_ERROR_STOP=1 "$@" < /dev/null
}
in_snapshot() {
    sql -c "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" -c "SET TRANSACTION SNAPSHOT '$SNAPSHOT'" "$@"
}

rm -f "$folder.lsn"  # of an earlier copy
in_snapshot -c "SET walreplay.publication = '$names'" -f "$here/describe.sql" > "$folder.jsonl"

# A line for each table: its oid, the name of its file, and the statement that copies it.
tab=$(printf '\t')
DESCRIBED="$folder.jsonl" in_snapshot -F "$tab" -f "$here/copies.sql" > "$folder.copies"
while IFS="$tab" read -r oid file statement; do
    file="$folder/$file.copy"
    mkdir -p "$(dirname "$file")"
    # To compress it on the way: -o "|zstd -q > '$file.zst'", and count what zstdcat writes.
    in_snapshot -o "$file" -c "$(printf %b "$statement")"
    # In COPY's text, a row is a line.
    rows=$(wc -l < "$file") emptied=
    # A TRUNCATE since the snapshot leaves a table without rows, and in another file: it is in the stream by this LSN.
    test "$rows" -gt 0 || emptied=$(in_snapshot -c "WITH RECURSIVE tree AS (
        SELECT $oid::oid AS oid
        UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid
    ) SELECT to_json(CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
        ELSE pg_catalog.pg_current_wal_insert_lsn() END) WHERE EXISTS (
        SELECT FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
        WHERE c.relkind = 'r' AND c.relfilenode <> pg_catalog.pg_relation_filenode(c.oid)
    )")
    echo "{\"oid\": $oid, \"rows\": $rows${emptied:+, \"emptied\": $emptied}}" >> "$folder.jsonl"
done < "$folder.copies"
rm "$folder.copies"

# What has not kept to the snapshot meanwhile?
if ! sh "$here/kept.sh" --by-root "$folder.jsonl"; then
    echo "Drop the slot $slot, empty $folder, and begin again" >&2
    exit 1
fi
echo "$LSN" > "$folder.lsn"
