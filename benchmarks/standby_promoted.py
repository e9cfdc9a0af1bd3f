"""Check that no post is lost if PostgreSQL's primary is killed under load and its synchronous standby is promoted.

python -m benchmarks.standby_promoted [--seconds S]

The load is that of `postgres_restarts`. Sessions that wait for the standby are ended, and then the primary is killed.
The service gets the addresses of both servers at its start. Nobody notifies the service of the promotion.

Bars: no post is lost or applied twice, and no post id is forgotten. Every process acknowledges a post at most 10 s
after the promotion.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import report
from benchmarks.ledger import fault_bars, print_ledger
from benchmarks.options import Options
from benchmarks.postgres_restarts import POSTERS, PROCESSES, attack_under_load
from benchmarks.servers import serve_store
from tests.servers import DURABLE, HOST, READY_S, PostgresServer

_DATABASE = "promoted"
_DOWN_S = 2.0  # an operator needs some time to notice the failure and promote the standby
_AFTER_S = 10.0  # the load continues for this long after the promotion
_ENDED_WAITING = 4  # this many times, all sessions that wait for the standby are ended
_END_WAITING = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
_SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


@contextmanager
def run_pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Yield a primary and its standby. The primary acknowledges a commit only once the standby has it."""
    with ExitStack() as stack:
        primary = PostgresServer(DURABLE)
        stack.callback(primary.remove)
        primary.start()
        primary.create_database(_DATABASE)
        standby = PostgresServer(DURABLE, standby_of=primary)
        stack.callback(standby.remove)
        standby.start()
        set_synchronous_standbys(primary, "*")
        until = time.monotonic() + READY_S
        while primary.run_sql(_SYNCHRONOUS) != "1":
            if time.monotonic() > until:
                raise RuntimeError(f"the standby did not follow: {standby.log[-1000:]}")
            time.sleep(0.05)
        yield primary, standby


def set_synchronous_standbys(server: PostgresServer, names: str) -> None:
    """Make a server's commits wait for the standbys with these names, or for none if `names` is empty."""
    server.run_sql(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'", "SELECT pg_reload_conf()")


def store_url(*servers: PostgresServer) -> str:
    """Return a connection string with the addresses of all servers. A client picks the server that takes writes."""
    hosts = ",".join(f"{HOST}:{server.port}" for server in servers)
    return f"postgresql://postgres@{hosts}/{_DATABASE}?target_session_attrs=read-write"


async def fail_over(primary: PostgresServer, standby: PostgresServer, seconds: float) -> float:
    """Kill the primary after `seconds` seconds and promote the standby. Return the time of the promotion.

    The standby is stopped before the kill, so that commits wait for it, and the sessions of these commits are ended.
    Their transactions are then in the primary's write-ahead log, where retries see them, but not on the standby. So the
    service must not answer the retry of such a post with `duplicate`.
    """
    await asyncio.sleep(seconds)
    standby.send(signal.SIGSTOP)
    for _ in range(_ENDED_WAITING):
        await asyncio.sleep(_DOWN_S / _ENDED_WAITING)
        await asyncio.to_thread(primary.run_sql, _END_WAITING)
    await asyncio.to_thread(primary.kill)
    standby.send(signal.SIGCONT)
    await asyncio.sleep(_DOWN_S)
    await asyncio.to_thread(standby.promote)
    promoted_at = time.monotonic()
    await asyncio.to_thread(set_synchronous_standbys, standby, "")
    await asyncio.sleep(_AFTER_S)
    return promoted_at


def measure(options: Options, folder: Path) -> list[report.Bar]:
    with run_pair() as (primary, standby), ExitStack() as stack:
        url = store_url(primary, standby)
        services = [stack.enter_context(serve_store(url, folder)) for _ in range(PROCESSES)]
        ports = [service.port for service in services]
        ledger, promoted_at, faults = asyncio.run(
            attack_under_load(ports, lambda _: fail_over(primary, standby, options.seconds))
        )
    back_s = [ledger.first_after_s(port, promoted_at) for port in ports]
    before = sum(at < promoted_at for times in ledger.acknowledged.values() for at in times)
    print_ledger(ledger, options.seconds + _DOWN_S + _AFTER_S)
    return [
        *fault_bars(ledger, faults),
        report.Bar("slowest first post after the promotion", max(back_s), 10, " s", at_most=True),
        report.Bar("requests acknowledged by the primary", before, 1),
        report.Bar("committed posts whose answer was lost", ledger.statuses["duplicate"], None),
    ]


if __name__ == "__main__":
    report.run_program(
        measure,
        __doc__,
        f"a synchronous standby promoted after {{seconds:.0f}} s: {PROCESSES} processes x {POSTERS} posters",
        seconds=20,
    )
