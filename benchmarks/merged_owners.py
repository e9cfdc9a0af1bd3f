"""Kill the service 100 times by `kill -9` while it merges owners. Check that each post counts once.

python -m benchmarks.merged_owners [--kills N] [--store URL]

An owner and another one have 2,000 posts together on 25 boards, some in a shared table. The merge is killed at a random
moment, and repeated until it is answered. Then all entries are compared with a model in plain Python. The trial runs on
a SQLite file and on a PostgreSQL server of its own, or on the empty store that `--store` names.

Bars: no entry differs from the model, no earlier id keeps an entry or takes a post.
"""

import asyncio
import random
import signal
from contextlib import ExitStack
from pathlib import Path

from benchmarks import report
from benchmarks.options import Options
from benchmarks.servers import Server, serve_store
from service.stores import SQLITE_PREFIX
from tests.servers import DURABLE, postgres
from tests.service.killed_merges import BOARDS, KilledMerges
from tests.service.real_service import Caller

_POSTS = 1_000
_MERGE_S_MAX = 0.3  # the longest time from a request to the kill


async def run_kills(server: Server, kills: int) -> KilledMerges:
    rng = random.Random(11)

    async def kill(caller: Caller, _new: str, _asked: asyncio.Task[object]) -> None:
        await asyncio.sleep(rng.uniform(0, _MERGE_S_MAX))
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        server.spawn()
        await asyncio.to_thread(server.wait_ready, poll_s=0.005)
        caller.base = server.url

    async with Caller(server.url) as caller:
        merges = KilledMerges(caller, kill, _POSTS)
        await merges.create_boards()
        await merges.run(kills)
    return merges


def measure(options: Options, folder: Path) -> list[report.Bar]:
    bars: list[report.Bar] = []
    with ExitStack() as stack:
        stores = {"the store": options.store or ""}
        if options.store is None:
            url = stack.enter_context(postgres(DURABLE)).url()
            stores = {"SQLite": f"{SQLITE_PREFIX}{folder / 'merged.db'}", "PostgreSQL": url}
        for name, url in stores.items():
            with serve_store(url, folder) as server:
                merges = asyncio.run(run_kills(server, options.kills))
            print(*merges.faults[:3], sep="\n")
            differing = report.Bar(f"{name}: entries that differ from the model", len(merges.faults), 0, at_most=True)
            bars += [differing, report.Bar(f"{name}: kills during a merge", merges.under_way, options.kills)]
    return bars


if __name__ == "__main__":
    report.run_program(measure, __doc__, f"kill -9: {{kills}} times during merges on {len(BOARDS)} boards")
