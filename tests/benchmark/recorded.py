"""Record the benchmarks' workloads from a real PostgreSQL by pg_recvlogical, as what `generate` makes is like them.

The server runs the transactions by itself, in a procedure: a hundred thousand take less than a minute.  From the
command line::

    python tests/benchmark/recorded.py pgbench OUT.bin --transactions 100000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.postgres import running_server

TRANSACTIONS: Final = 100_000

_PGBENCH: Final = (
    "CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88))",
    "CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84))",
    "CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84))",
    "CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))",
    "INSERT INTO pgbench_branches SELECT n, 0, NULL FROM generate_series(1, 10) n",
    "INSERT INTO pgbench_tellers SELECT n, 1 + n % 10, 0, NULL FROM generate_series(1, 100) n",
    "INSERT INTO pgbench_accounts SELECT n, 1 + n % 10, 0, '' FROM generate_series(1, 100000) n",
    """
    CREATE PROCEDURE work(transactions int) LANGUAGE plpgsql AS $$
    DECLARE account int; teller int; branch int; change int;
    BEGIN
        FOR number IN 1..transactions LOOP
            account := 1 + random() * 99999; teller := 1 + random() * 99; branch := 1 + random() * 9;
            change := random() * 10000 - 5000;
            UPDATE pgbench_accounts SET abalance = abalance + change WHERE aid = account;
            UPDATE pgbench_tellers SET tbalance = tbalance + change WHERE tid = teller;
            UPDATE pgbench_branches SET bbalance = bbalance + change WHERE bid = branch;
            INSERT INTO pgbench_history VALUES (teller, branch, account, change, clock_timestamp(), NULL);
            COMMIT;
        END LOOP;
    END $$
    """,
)

ORDERS: Final = (
    "CREATE SCHEMA shop",
    """
    CREATE TABLE shop.orders (
        id bigint PRIMARY KEY, customer_id bigint, status varchar(20), placed_at timestamptz, shipped_at timestamptz,
        due date, currency char(3), net numeric(12, 2), tax numeric(12, 2), gross numeric(14, 2), items int,
        weight double precision, express boolean, token uuid, channel text, note text, address text, payload jsonb,
        updated_at timestamp, version int
    )
    """,
    """
    CREATE PROCEDURE work(transactions int) LANGUAGE plpgsql AS $$
    DECLARE net numeric; moment timestamptz; one bigint; other bigint;
        words text[] := '{alpha,bravo,größe,delta,echo,北京,hôtel,charlie}';
    BEGIN
        FOR number IN 1..transactions LOOP
            net := round((random() * 30000)::numeric, 2);
            moment := '2026-01-01'::timestamptz + random() * interval '300 days';
            INSERT INTO shop.orders VALUES (
                number, 1 + random() * 1000000, (ARRAY['new', 'paid', 'shipped'])[1 + floor(random() * 3)], moment,
                CASE WHEN random() < 0.7 THEN moment + interval '1 day' END, moment::date + 14, 'EUR', net,
                round(net * 0.19, 2), net + round(net * 0.19, 2), 1 + random() * 30, random() * 80, random() < 0.2,
                gen_random_uuid(), (ARRAY['web', 'app', 'shop'])[1 + floor(random() * 3)],
                (SELECT string_agg(words[1 + floor(random() * 8)], ' ') FROM generate_series(1, 4 + number % 6)),
                format('%s %s street, %s', number % 300, words[1 + number % 8], words[1 + number / 8 % 8]),
                jsonb_build_object('ref', number, 'tags', jsonb_build_array(words[1 + number % 8], 'echo')),
                moment, 1
            );
            one := 1 + floor(random() * number); other := 1 + floor(random() * number);
            UPDATE shop.orders SET status = 'paid', updated_at = clock_timestamp(), version = version + 1
            WHERE id IN (one, other);
            COMMIT;
        END LOOP;
    END $$
    """,
)

_WORKLOADS: Final = {"pgbench": _PGBENCH, "orders": ORDERS}


def record(path: Path, kind: str, transactions: int = TRANSACTIONS) -> Path:
    """Record so many transactions of a workload; what is there already stays."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with running_server(settings={"synchronous_commit": "off", "max_wal_size": "4GB"}) as server:
        server.execute(*_WORKLOADS[kind], "CREATE PUBLICATION everything FOR ALL TABLES")
        with server.recording(part):
            server.execute("SELECT setseed(0.5)", f"CALL work({transactions})")
    part.rename(path)
    return path


def main() -> None:
    """Record a workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=_WORKLOADS)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--transactions", type=int, default=TRANSACTIONS)
    arguments = parser.parse_args()
    record(arguments.output, arguments.kind, arguments.transactions)


if __name__ == "__main__":
    main()
