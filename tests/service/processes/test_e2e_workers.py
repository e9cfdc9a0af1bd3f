"""Test several processes of one node on PostgreSQL. Each process shows the metrics of the whole node.

The supervisor replaces a killed process, and no process outlives the node.
"""

import asyncio
import os
import signal
import socket
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession

from tests.servers import free_port
from tests.service.cli_fake_service import run
from tests.service.real_service import Caller, Figures, Process, Spawn, command_line

B = "/v1/leaderboards/b"
XP = {"name": "xp", "merge": "sum"}


async def read_samples(url: str) -> Figures:
    """Return every metric value that one process of the node exposes."""
    async with Caller(url) as caller:
        return await caller.figures()


async def count_answers(url: str, requests: int, path: str = "/healthz") -> Counter[str]:
    """Send each request on a new connection. Return the number of answers from each process."""
    processes: Counter[str] = Counter()
    for _ in range(requests):
        async with ClientSession() as session, session.get(url + path) as answer:
            assert answer.status == 200
            processes[answer.headers["X-Request-Id"].partition("-")[0]] += 1
    return processes


def pid_of(node: Process, name: str) -> int:
    return int([line["pid"] for line in node.lines if line["event"] == "process_ready" and line["name"] == name][-1])


def figures_folder(node: Process) -> Path:
    """Return the folder of the files with the node's counters. Find it in the memory map of a worker."""
    mapped = Path(f"/proc/{pid_of(node, 'worker1')}/maps").read_text()
    return Path(next(line.split()[-1] for line in mapped.splitlines() if "rankcurve-node-" in line)).parent


async def test_every_worker_exposes_the_sums_of_the_whole_node(store_url: str, spawn: Spawn) -> None:
    node = spawn("--store", store_url, "--workers", "2").ready()
    async with Caller(node.url) as caller:
        await caller.board("b", XP)
    assert len(await count_answers(node.url, 60, B)) == 2
    for n in range(20):
        async with Caller(node.url) as caller:
            await caller.post("b", {"owner": f"p{n}", "stats": {"xp": n}}, {"owner": "all", "stats": {"xp": 1}})
    for _ in range(8):  # ask several times, because either worker may get a connection
        found = await read_samples(node.url)
        assert found["rankcurve_requests_total", "leaderboards", "2xx"] == 60
        assert found["rankcurve_request_seconds_count", "leaderboards"] == 60
        assert found["rankcurve_request_seconds_bucket", "+Inf", "leaderboards"] == 60
        assert found["rankcurve_posts_total", "applied"] == 40
        assert found["rankcurve_write_batch_posts_sum",] == 40
        assert found["rankcurve_write_queue_posts",] == 0
        # The metric is the sum for four processes, each of which uses about 60 MiB.
        assert found["process_resident_memory_bytes",] > 100 * 2**20
    async with Caller(node.url) as caller:
        assert (await caller.get(f"{B}/entries/all"))["stats"] == {"xp": 20}


async def test_a_worker_killed_under_load_is_replaced_and_its_counts_stay(store_url: str, spawn: Spawn) -> None:
    node = spawn("--store", store_url, "--workers", "2").ready()
    async with Caller(node.url) as caller:
        await caller.board("b", XP)
    answered = broken = 0
    over = asyncio.Event()

    async def client(name: str) -> int:
        nonlocal answered, broken
        number = 0
        while not over.is_set():
            number += 1
            post = {"owner": "champion", "stats": {"xp": 1}, "post_id": f"{name}/{number}"}
            while True:
                try:
                    async with ClientSession() as session, session.post(f"{node.url}{B}/posts", json=post) as answer:
                        assert answer.status == 200, await answer.text()
                        await answer.read()
                    answered += 1
                    break
                except ClientConnectionError:
                    broken += 1
        return number

    clients = [asyncio.create_task(client(str(n))) for n in range(6)]
    for name in ("worker1", "worker2", "worker1"):
        os.kill(pid_of(node, name), signal.SIGKILL)
        crash = await asyncio.to_thread(node.await_line, "process_crashed", name=name)
        assert crash["exit_code"] == -signal.SIGKILL
        await asyncio.to_thread(node.await_line, "process_ready", name=name)
    over.set()
    posts = sum(await asyncio.gather(*clients))
    assert posts == answered
    for _ in range(4):
        found = await read_samples(node.url)
        # A killed worker may have counted a request without sending its answer.
        assert answered <= found["rankcurve_requests_total", "post", "2xx"] <= answered + broken
        assert found["rankcurve_request_seconds_count", "post"] == found["rankcurve_requests_total", "post", "2xx"]
        assert found["rankcurve_write_queue_posts",] == 0
        assert found["rankcurve_process_ends_total", "serve"] == 3
    assert len(await count_answers(node.url, 60)) == 2
    async with Caller(node.url) as caller:
        assert (await caller.get(f"{B}/entries/champion"))["stats"] == {"xp": posts}


async def test_a_stop_answers_accepted_posts_and_leaves_no_process_or_folder(store_url: str, spawn: Spawn) -> None:
    node = spawn("--store", store_url, "--workers", "2").ready()
    folder = figures_folder(node)
    assert folder.exists()
    async with Caller(node.url) as caller:
        await caller.board("b", XP)
        bodies = [{"owner": f"p{n}", "stats": {"xp": 1}} for n in range(50)]
        posts = [asyncio.create_task(caller.call("POST", f"{B}/posts", body)) for body in bodies]
        await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
        code = await asyncio.to_thread(node.end, signal.SIGTERM)
        outcomes = await asyncio.gather(*posts, return_exceptions=True)
    assert code == 0
    node.await_end_of_log()
    stopped = {line["process"] for line in node.lines if line["event"] == "stopped"}
    assert stopped == {"worker1", "worker2", "jobs1", "supervisor"}
    assert not folder.exists()
    accepted = [each for each in outcomes if not isinstance(each, BaseException)]
    assert accepted
    assert {answer.status for answer in accepted} == {200}


def test_workers_end_when_their_supervisor_is_killed(store_url: str, spawn: Spawn) -> None:
    node = spawn("--store", store_url, "--workers", "2").ready()
    folder = figures_folder(node)
    assert node.end(signal.SIGKILL) == -signal.SIGKILL
    node.await_end_of_log()  # the log ends after all processes of the node have closed the pipe
    assert not folder.exists()
    gone = {line["process"] for line in node.lines if line["event"] == "supervisor_gone"}
    assert gone == {"worker1", "worker2", "jobs1"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", node.port))


def test_a_node_that_cannot_start_says_the_same_as_a_single_process(tmp_path: Path, postgres_url: str) -> None:
    url = "postgresql://someone:hunter2@127.0.0.1:1/db"
    away = ("--store", url, "--set", "store_attempts_max=1")
    one = command_line("serve", "--port", "0", *away, cwd=tmp_path)
    several = command_line("serve", "--port", "0", "--workers", "2", *away, cwd=tmp_path)
    assert (several.returncode, several.stderr.splitlines()[-1]) == (1, one.stderr.splitlines()[-1])
    assert "cannot be reached" in one.stderr
    shown = run("config", "--set", f"store={url}")
    assert "someone:***@" in shown.stdout
    assert "hunter2" not in one.stderr + several.stderr + shown.stdout
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = command_line("serve", "--port", port, "--workers", "2", "--store", postgres_url, cwd=tmp_path)
    assert (refused.returncode, "in use" in refused.stderr) == (1, True)


def test_a_process_for_the_jobs_of_a_sqlite_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    refused = command_line("jobs", cwd=tmp_path, code=2)
    assert refused.stderr.startswith("error: sqlite:///data/rankcurve.db: a SQLite file belongs to one service")
    assert len(refused.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


async def test_an_operator_can_refresh_a_curve_through_any_front_end(store_url: str, spawn: Spawn) -> None:
    quick = ("--set", "curve_poll_s=0.05")
    node = spawn("--store", store_url, "--workers", "2", *quick).ready()
    alone = spawn("--store", store_url, "--jobs", "none", *quick, "--set", "refresh_wait_s_max=60").ready()
    async with Caller(node.url) as caller, Caller(alone.url) as other:
        await caller.board("b", XP)
        for number, each in enumerate((caller, other, caller), start=1):
            await each.post("b", {"owner": f"p{number}", "stats": {"xp": number}})
            refreshed = await each.must("POST", f"{B}/rankings/xp/refresh")
            assert refreshed["total"] == number
            assert (await each.get(B))["curves"]["xp"]["total"] == number
    assert [process.end(signal.SIGTERM) for process in (node, alone)] == [0, 0]
    idle = ("--set", "refresh_wait_s_max=0.2")
    alone = spawn("--store", store_url, "--jobs", "none", *idle).ready()
    async with Caller(alone.url) as caller:
        assert await caller.refused("POST", f"{B}/rankings/xp/refresh") == (503, "no_job_process")


async def test_a_front_end_serves_curves_of_a_job_process_which_answers_monitors(store_url: str, spawn: Spawn) -> None:
    front_end = spawn("--store", store_url, "--jobs", "none", "--set", "curve_poll_s=0.05").ready()
    async with Caller(front_end.url) as caller:
        await caller.board("b", XP, predictor={"refresh_seconds": 1})
        await caller.post("b", *({"owner": f"p{n}", "stats": {"xp": n}} for n in range(50)))
        port = free_port()
        jobs = spawn("--store", store_url, "--port", str(port), command=("jobs",))
        assert jobs.await_line("working")["addresses"] == [f"127.0.0.1:{port}"]
        url = f"http://127.0.0.1:{port}"
        await count_answers(url, 1, "/readyz")
        async with asyncio.timeout(60):
            while not (await caller.get(B))["curves"]["xp"]:
                pass
        assert (await caller.get(B))["curves"]["xp"]["total"] == 50
        assert (await read_samples(url))["rankcurve_refresh_seconds_count",] >= 1
    assert [process.end(signal.SIGTERM) for process in (jobs, front_end)] == [0, 0]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:a/hunter2@127.0.0.1:1/db",
        "postgresql://someone:hunter2",
        "host=127.0.0.1 user=someone password=hunter2",
        "postgresql://127.0.0.1:1/db?user=someone&p%61ssword=hunter2",
        "postgresql://127.0.0.1:1,127.0.0.1:2/db?sslmode=require&sslpassword=hunter2&sslkey=/hunter2",
    ],
)
def test_no_message_shows_the_password_of_a_store_address(tmp_path: Path, url: str) -> None:
    served = command_line("serve", "--port", "0", "--set", "store_attempts_max=1", "--store", url, cwd=tmp_path)
    made = run("keys", "create", "me", "--role", "ops", "--store", url)
    assert {served.returncode, made.exit_code} <= {1, 2}
    for shown in (served.stderr, made.stderr):
        assert "error: " in shown
        assert "Traceback" not in shown
    assert "hunter2" not in served.stderr + served.stdout + made.output
