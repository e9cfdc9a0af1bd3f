"""Start the real servers that tests need, on free ports and in temporary folders.

A watcher process outlives this process, however this process ends. The watcher
ends the servers and removes their folders.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
READY_S = 60.0
POLL_S = 0.02
PORTS = 10_000, 32_768  # below net.ipv4.ip_local_port_range
INSTALL_HINT = "`make test` installs what is missing, by tests/install_missing.sh"
# In a test run, PostgreSQL creates and removes thousands of small files, which is slow on a disk.
MEMORY = Path("/dev/shm")
MEMORY_BYTES_MIN = 4 << 30  # with less free memory, the files lie on the disk
# The watcher waits until this process closes the pipe. Then the watcher ends the server by the process id in the pid
# file, waits a second, and removes the folder.
WATCHER = 'read -r _; read -r pid < "$2" && kill -"$3" "$pid"; sleep 1; rm -rf "$1"'
# Most tests do not need durable commits. A test of durability starts a server of its own, with DURABLE.
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


class ServerMissingError(Exception):
    """A program or package that the tests need is not installed."""


def has_memory() -> bool:
    """Return whether files of tests may lie in memory."""
    return MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN


def free_port() -> int:
    """Return a random port that no process listens on, outside of the range that Linux gives to connections.

    A port inside that range could be taken, before the server listens, by any connection of another test.
    """
    while True:
        port = random.SystemRandom().randrange(*PORTS)  # Hypothesis gives every process the same `random`
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


def program(name: str, package: str) -> Path:
    """Return the path of a server's program. `package` is the Debian package that contains the program.

    Raises:
        ServerMissingError: the program is not installed. The message says how to install it.
    """
    # Debian keeps PostgreSQL's programs outside of PATH, in one folder for each version.
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    # Some programs are where a user's PATH does not lead.
    found = versions[-1] if versions else shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        raise ServerMissingError(f"the tests need {name}, of Debian's package {package}: {INSTALL_HINT}")
    return Path(found)


def ended(process: subprocess.Popen[bytes] | None) -> bool:
    """Return whether a server's process has ended. Wait at most POLL_S seconds for its end."""
    if process is None:
        return True
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(POLL_S)
    return process.poll() is not None


class Folder:
    """A temporary folder that a watcher removes when this process ends. With `in_memory`, it may lie in memory."""

    def __init__(
        self, prefix: str, pid_file: str, *, user: str | None, last_signal: str, in_memory: bool = False
    ) -> None:
        # The folder is not below pytest's folder, because only the user of pytest can open pytest's folder.
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY if in_memory and has_memory() else None))
        if user is not None:
            shutil.chown(self.path, user)
        watcher = ["sh", "-c", WATCHER, "sh", str(self.path), str(self.path / pid_file), last_signal]
        self._watcher = subprocess.Popen(
            watcher, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        assert self._watcher.stdin is not None
        self._watcher.stdin.close()
        self._watcher.kill()
        self._watcher.wait()


class PostgresServer:
    def __init__(self, settings: Mapping[str, str] = FAST, *, standby_of: PostgresServer | None = None) -> None:
        """Set up a cluster without starting it. If `standby_of` is given, make this server a standby of that server."""
        self._postgres = program("postgres", "postgresql")
        # PostgreSQL refuses to run as root.
        self._user = "postgres" if os.getuid() == 0 else None
        self._folder = Folder(
            "rankcurve-postgres-",
            "data/postmaster.pid",
            user=self._user,
            last_signal="QUIT",
            in_memory=settings is FAST,  # benchmarks and tests of durability have other settings, and need a disk
        )
        self.data, self.port = self._folder.path / "data", free_port()
        self._process: subprocess.Popen[bytes] | None = None
        if standby_of is None:
            self._run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        else:
            source = ["-h", HOST, "-p", str(standby_of.port), "-U", "postgres"]
            self._run("pg_basebackup", "-D", self.data, *source, "-X", "stream", "-R", "-c", "fast")
        lines = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "128MB",
            **settings,
        }
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in lines.items())

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/{database}"

    @property
    def log(self) -> str:
        return (self._folder.path / "log").read_text(errors="replace")

    def start(self, *, wait: bool = True) -> None:
        """Start the server. If `wait` is set, return only when the server accepts connections."""
        with (self._folder.path / "log").open("ab") as log:
            # The server runs in a session of its own, so that Ctrl-C in the terminal reaches only the tests. The tests
            # then end the server.
            self._process = subprocess.Popen(
                [str(self._postgres), "-D", str(self.data)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                user=self._user, cwd=self._folder.path, start_new_session=True,
            )  # fmt: skip
        if wait:
            self.wait_ready()

    def wait_ready(self) -> None:
        probe = [str(self._postgres.with_name("pg_isready")), "-q", "-h", HOST, "-p", str(self.port)]
        until = time.monotonic() + READY_S
        while subprocess.run(probe, check=False).returncode != 0:
            if time.monotonic() > until or ended(self._process):
                raise RuntimeError(f"PostgreSQL did not start: {self.log[-1000:]}")

    def stop(self, mode: str = "fast") -> None:
        """Stop the server and wait until it has ended.

        `mode` is `smart`, `fast` (ends sessions) or `immediate` (like a crash).
        """
        if self._process is not None:
            number = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode]
            self._process.send_signal(number)
            self._process.wait(READY_S)

    def kill(self) -> None:
        """Send SIGKILL to the server and to all its child processes."""
        if self._process is not None and self._process.poll() is None:
            self.send(signal.SIGKILL)
            self._process.wait()
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server and to all its child processes.

        SIGSTOP freezes them, and SIGCONT lets them continue.
        """
        assert self._process is not None, "start comes first"
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._process.send_signal(number)
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), number)

    def restart(self, mode: str = "immediate", *, wait: bool = True) -> None:
        self.stop(mode)
        self.start(wait=wait)

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "-D", self.data, "-w")

    def create_database(self, name: str) -> str:
        self.run_sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def run_sql(self, *statements: str, database: str = "postgres") -> str:
        """Run each statement with psql, in a transaction of its own. Return the printed output."""
        words = ["-X", "-q", "-t", "-A", "-v", "ON_ERROR_STOP=1", "-d", self.url(database)]
        return self._run("psql", *words, *(word for one in statements for word in ("-c", one)))

    def remove(self) -> None:
        self.kill()
        self._folder.remove()

    def _run(self, name: str, *words: object) -> str:
        command = [str(self._postgres.with_name(name)), *map(str, words)]
        done = subprocess.run(
            command, user=self._user, cwd=self._folder.path, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} failed: {done.stderr.strip()[-1000:]}")
        return done.stdout.strip()


class LocalServer(ABC):
    """A server of one process that listens on a free port, within its `with` block.

    Subclasses name the program and its arguments.
    """

    name: str
    package: str

    def __init__(self, *words: str) -> None:
        """Choose a free port. Do not start the server yet. `words` are further command-line arguments."""
        self._program = program(self.name, self.package)
        self._folder = Folder(f"rankcurve-{self.name}-", "pid", user=None, last_signal="KILL")
        self._words: Sequence[str] = words
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @abstractmethod
    def arguments(self) -> list[str]: ...

    def start(self) -> None:
        # GOMAXPROCS is for Prometheus, which would take all processors for itself.
        with (self._folder.path / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._program), *self.arguments(), *self._words], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log, start_new_session=True, env={**os.environ, "GOMAXPROCS": "1"},
            )  # fmt: skip
        (self._folder.path / "pid").write_text(f"{self._process.pid}\n")
        until = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), timeout=1):
                return
            if time.monotonic() > until or ended(self._process):
                raise RuntimeError(f"{self.name} did not start: {self.log[-1000:]}")

    @property
    def log(self) -> str:
        return (self._folder.path / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server. SIGSTOP freezes the server, and SIGCONT lets it continue.

        After SIGSTOP, return only when the server is frozen.
        """
        assert self._process is not None, "start comes first"
        self._process.send_signal(number)
        if number is signal.SIGSTOP:
            # Wait until every thread has stopped, because a running thread could still answer.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        self.kill()
        self._folder.remove()


class MemcachedServer(LocalServer):
    name = "memcached"
    package = "memcached"

    def arguments(self) -> list[str]:
        user = ["-u", "nobody"] if os.getuid() == 0 else []
        return ["-l", HOST, "-p", str(self.port), "-U", "0", "-m", "64", *user]


class RedisServer(LocalServer):
    name = "redis-server"
    package = "redis-server"

    def arguments(self) -> list[str]:
        return ["--bind", HOST, "--port", str(self.port), "--dir", str(self._folder.path), "--save", ""]


class PgBouncer(LocalServer):
    """A pooler in front of a PostgreSQL server. `mode`: whether it lends a session, or for one transaction."""

    name = "pgbouncer"
    package = "pgbouncer"

    def __init__(self, server: PostgresServer, mode: str) -> None:
        super().__init__("-u", "nobody") if os.getuid() == 0 else super().__init__()
        self._settings = self._folder.path / "pgbouncer.ini"
        self._settings.write_text(
            f"[databases]\n* = host={HOST} port={server.port} user=postgres\n[pgbouncer]\nlisten_addr = {HOST}\n"
            f"listen_port = {self.port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\n"
        )

    def arguments(self) -> list[str]:
        return [str(self._settings)]

    def url(self, database: str) -> str:
        return f"postgresql://postgres@{self.address}/{database}"


@contextlib.contextmanager
def postgres(settings: Mapping[str, str] = FAST) -> Iterator[PostgresServer]:
    server = PostgresServer(settings)
    try:
        server.start()
        yield server
    finally:
        server.remove()
