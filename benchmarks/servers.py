"""Starts and stops the measured processes: the service, the hello-world route, Redis and the Redis shell.

Each process is a context manager, with a loopback port and a process group of its own. It ends when the `with` block
does.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import asyncpg

from benchmarks.client import HOST, call_once
from service.stores import SQLITE_PREFIX
from tests.servers import DURABLE, free_port

PROJECT = Path(__file__).resolve().parent.parent
# The settings that an operator would choose for a PostgreSQL server with a million rows. All contestants share one
# PostgreSQL server.
POSTGRES_SETTINGS = {**DURABLE, "shared_buffers": "1GB", "max_wal_size": "4GB", "checkpoint_timeout": "15min"}
_READY_S = 60.0
_STOP_S = 40.0


class ServerFailedError(Exception):
    """A server did not start, or ended unexpectedly. The message ends with the last lines of its log."""


def require_program(program: str, package: str) -> str:
    """Return the path of `program`, installing Debian's `package` if it is missing. Raises ServerFailedError."""
    found = shutil.which(program)
    if found is None:
        print(f"   {program} is missing: installing Debian's {package}", flush=True)
        command = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
        with contextlib.suppress(OSError):
            quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
            subprocess.run(command, env=quiet, stdout=subprocess.DEVNULL, check=False, timeout=600)
        found = shutil.which(program)
    if found is None:
        raise ServerFailedError(f"{program} is needed: apt-get install {package}")
    return found


class Server:
    """A subprocess with a loopback port. If `ready_path` is None, accepting a connection counts as an answer.

    Entering the block waits for an answer, and raises ServerFailedError if no answer comes within a minute.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        port: int,
        ready_path: str | None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port
        self.spawned_at = 0.0
        self._command = list(command)
        self._folder = folder
        self._ready_path = ready_path
        self._environment = {**os.environ, "PYTHONPATH": str(PROJECT), **(environment or {})}
        self._log = folder / f"log-{port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "spawn comes first"
        return self._process.pid

    def spawn(self) -> None:
        """Start the process, and return before it answers."""
        with self._log.open("ab") as log:
            self.spawned_at = time.perf_counter()
            self._process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def wait_ready(self, *, poll_s: float = 0.02) -> None:
        """Wait until the process answers. Raises ServerFailedError if it ends, or has not answered within a minute."""
        assert self._process is not None, "spawn comes first"
        until = time.monotonic() + _READY_S
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise ServerFailedError(f"{self._command[0]} ended with {self._process.returncode}: {self.log_end()}")
            with contextlib.suppress(OSError):
                if self._answers():
                    return
            time.sleep(poll_s)
        raise ServerFailedError(f"{self._command[0]} did not answer: {self.log_end()}")

    def _answers(self) -> bool:
        if self._ready_path is None:
            with socket.create_connection((HOST, self.port), timeout=1.0):
                return True
        status, _ = call_once(self.port, "GET", self._ready_path)
        return status == 200

    def log_end(self) -> str:
        return self._log.read_text(errors="replace")[-600:] if self._log.exists() else ""

    def stop(self, signal_number: int = signal.SIGTERM) -> int | None:
        """Send a signal to the process group, wait until the process ends, and kill the group if this takes too long.

        Return the exit status, or None if the process never started.
        """
        if self._process is None:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal_number)
        try:
            return self._process.wait(timeout=_STOP_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()

    def send_signal(self, signal_number: int) -> None:
        """Send a signal to the process group without waiting, for example SIGSTOP or SIGCONT."""
        assert self._process is not None, "spawn comes first"
        os.killpg(self._process.pid, signal_number)

    def resident_mib(self) -> float:
        """Return the resident memory of the process and its children in MiB, counting each shared page once.

        The system's page cache is not included.
        """
        found = (Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in self.list_processes())
        return sum(int(text.partition("\nPss:")[2].split()[0]) for text in found) / 1024

    def list_processes(self) -> list[int]:
        """Return the ids of the process and its children."""
        return [self.pid, *map(int, Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split())]

    def most_resident_mib(self) -> float:
        """Return the sum of the peak resident memory of the process and its children, in MiB."""
        found = (Path(f"/proc/{pid}/status").read_text() for pid in self.list_processes())
        return sum(int(text.partition("\nVmHWM:")[2].split()[0]) for text in found) / 1024

    def cpu_s(self) -> float:
        """Return the processor time that the process and its children have used, in seconds."""
        found = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in self.list_processes()]
        return sum(int(fields[11]) + int(fields[12]) for fields in found) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        self.spawn()
        try:
            self.wait_ready()
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(signal.SIGKILL if kind else signal.SIGTERM)


def serve_file(
    store: Path, *, jobs: str = "embedded", workers: int = 1, environment: Mapping[str, str] | None = None
) -> Server:
    """Return a server that runs `rankcurve serve` on the SQLite file `store`.

    With `workers` set to 0, one process does everything.
    """
    store, environment = store.resolve(), {"RANKCURVE_WORKERS": str(workers), **(environment or {})}
    return serve_store(f"{SQLITE_PREFIX}{store}", store.parent, jobs=jobs, environment=environment)


def serve_store(
    url: str, folder: Path, *, jobs: str = "embedded", environment: Mapping[str, str] | None = None
) -> Server:
    """Return a server that runs `rankcurve serve` on the store at `url`. The log is written to `folder`."""
    port = free_port()
    command = [*rankcurve_command(), "serve", "--host", HOST, "--port", str(port), "--store", url, "--jobs", jobs]
    return Server(command, folder, port=port, ready_path="/readyz", environment=environment)


def serve_jobs(url: str, folder: Path, *, environment: Mapping[str, str] | None = None) -> Server:
    """Return a server that runs `rankcurve jobs` on the store at `url`. The log is written to `folder`."""
    port = free_port()
    environment = {"RANKCURVE_JOBS_PORT": str(port), "RANKCURVE_HOST": HOST, **(environment or {})}
    command = [*rankcurve_command(), "jobs", "--store", url]
    return Server(command, folder, port=port, ready_path="/readyz", environment=environment)


def rankcurve_command() -> list[str]:
    """Return the command that starts `rankcurve` from the tree on PYTHONPATH, which the console script ignores."""
    return [sys.executable, "-P", "-m", "service.cli"]


def run_sql(store_url: str, sql: str) -> list[tuple[Any, ...]]:
    """Run one statement directly on a store's database, without the service. Return its rows."""
    if store_url.startswith(SQLITE_PREFIX):
        with closing(sqlite3.connect(store_url.removeprefix(SQLITE_PREFIX))) as connection, connection:
            return connection.execute(sql).fetchall()

    async def fetch() -> list[tuple[Any, ...]]:
        database = await asyncpg.connect(store_url)
        try:
            return [tuple(row) for row in await database.fetch(sql)]
        finally:
            await database.close()

    return asyncio.run(fetch())


def serve_hello(folder: Path) -> Server:
    port = free_port()
    return Server([sys.executable, "-m", "benchmarks.hello", str(port)], folder, port=port, ready_path="/hello")


def serve_redis_shell(folder: Path, redis_port: int) -> Server:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.redis_shell", str(port), str(redis_port)]
    return Server(command, folder, port=port, ready_path="/readyz")


def serve_redis(folder: Path) -> Server:
    """Return a redis-server that is as durable as the service.

    It syncs its append-only file to disk before each answer, and makes no snapshots.
    """
    port = free_port()
    program = require_program("redis-server", "redis-server")
    # The append-only file is never rewritten. This favours Redis, because a rewrite would fork a process of a gigabyte
    # during a run.
    settings = {"port": str(port), "bind": HOST, "dir": str(folder), "appendonly": "yes", "appendfsync": "always"}
    settings |= {"save": "", "auto-aof-rewrite-percentage": "0", "daemonize": "no", "protected-mode": "yes"}
    command = [program, *(word for name, value in settings.items() for word in (f"--{name}", value))]
    return Server(command, folder, port=port, ready_path=None)
