"""A short form of `benchmarks.client_faults`: kills of service and client, a full disk, faults on the way."""

import asyncio
from pathlib import Path

from benchmarks.client_faults import attack
from benchmarks.proxies import FAULTS
from benchmarks.servers import serve_file

SECONDS = 8


def test_no_post_is_lost_or_counts_twice_while_processes_are_killed(tmp_path: Path) -> None:
    with serve_file(tmp_path / "faults.db") as server:
        attacked, proxy, faults = asyncio.run(attack(server, tmp_path, SECONDS))
    assert faults == {"lost": 0, "twice": 0, "wrong sums": 0}
    python, csharp = attacked.python, attacked.csharp
    assert len(python.submitted) > 100
    assert len(csharp.submitted) > 0
    assert python.settled["duplicate"] > 0, "retries whose first attempt was applied"
    kills = (attacked.service_kills, python.kills, csharp.kills)
    assert min(*kills, python.disk_full, *(proxy.counts[fault] for fault in FAULTS)) > 0
