#!/bin/sh
# Copy the tables of a publication as they are at the moment from which a new slot sends changes.
#
#     base.sh SLOT PUBLICATION FOLDER
#
# Database, host and user are those of PGDATABASE, PGHOST, PGUSER; the user needs the right to replicate and to read
# the tables.  FOLDER then has a file for each table, what the tables are (../FOLDER.jsonl), and the snapshot's LSN
# (../FOLDER.lsn).  The source goes on working meanwhile: nothing is locked but against DROP, TRUNCATE and ALTER.
set -eu
slot=$1 publication=$2 folder=$3
here=$(cd "$(dirname "$0")" && pwd)

# What a value's text depends on, see docs/capturing.md.
export PGOPTIONS="-c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex -c extra_float_digits=3 -c timezone=UTC"
# Rows that a policy hides are missed: better an error.
PGOPTIONS="$PGOPTIONS -c row_security=off"
export PGCLIENTENCODING=UTF8

if [ -z "${SNAPSHOT-}" ]; then
    mkdir -p "$folder"
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

in_snapshot() {
    psql -X -q -v ON_ERROR_STOP=1 -c "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" \
        -c "SET TRANSACTION SNAPSHOT '$SNAPSHOT'" "$@"
}

in_snapshot -At -f "$here/describe.sql" > "$folder.jsonl"

# A line for each table: the statement that copies it, and the name of its file.
tab=$(printf '\t')
in_snapshot -At -F "$tab" -v publication="$publication" -f "$here/copies.sql" > "$folder.copies"
while IFS="$tab" read -r statement file; do
    in_snapshot -c "$statement" < /dev/null > "$folder/$file.copy"
done < "$folder.copies"
rm "$folder.copies"
echo "$LSN" > "$folder.lsn"
