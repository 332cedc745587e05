#!/bin/sh
# Run a command while a snapshot lasts: what is visible in it, and what the new slot sends, together are everything.
#
#     snapshot.sh [--temporary] SLOT COMMAND
#
# COMMAND is one text for sh.  It finds the snapshot's name in $SNAPSHOT, and in $LSN the consistent point, as of which
# the rows are.  With --temporary the slot is gone at the end: for tables that another slot sends already.  Database,
# host and user are those of PGDATABASE, PGHOST, PGUSER; the user needs the right to replicate.  If COMMAND fails, so
# does the script; the slot stays, and keeps WAL.
set -eu
temporary=
if [ "${1-}" = --temporary ]; then
    temporary=TEMPORARY
    shift
fi
if [ $# -ne 2 ]; then
    echo "Name a slot, which is made, and give a command as one text:" >&2
    echo "    snapshot.sh [--temporary] SLOT COMMAND" >&2
    exit 2
fi
slot=$1
SNAPSHOT_COMMAND=$2
made=$(psql -X -q -At -v ON_ERROR_STOP=1 -v slot="$slot" <<'SQL'
SELECT 'yes' FROM pg_catalog.pg_replication_slots WHERE slot_name = :'slot'
SQL
)
if [ -n "$made" ]; then
    echo "There is a slot $slot already, and only a new one has a snapshot. If nobody needs its changes, drop it:" >&2
    echo "    psql -c \"SELECT pg_drop_replication_slot('$slot')\"" >&2
    echo "Or name a new slot, with --temporary for tables that another slot sends already" >&2
    exit 1
fi
SNAPSHOT_STATUS=$(mktemp)
export SNAPSHOT_COMMAND SNAPSHOT_STATUS
trap 'rm -f "$SNAPSHOT_STATUS"' EXIT

# The snapshot lasts until this session has another command: it waits.
psql "replication=database" -X -q -v ON_ERROR_STOP=1 <<SQL
CREATE_REPLICATION_SLOT "$slot" $temporary LOGICAL pgoutput \gset
\setenv SNAPSHOT :snapshot_name
\setenv LSN :consistent_point
\! sh -c "\$SNAPSHOT_COMMAND" < /dev/null; echo \$? > "\$SNAPSHOT_STATUS"
SQL
exit "$(cat "$SNAPSHOT_STATUS")"
