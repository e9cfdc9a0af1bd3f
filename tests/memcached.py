"""Two servers in place of memcached: one whose contents a test reads and replaces, and one that sends fixed bytes.

Each server stops at the end of its `with` block.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from typing import Self
from urllib.parse import unquote

from config.settings import MemcachedSettings
from tests.servers import HOST, MemcachedServer

MEMCACHED_LIMITS = MemcachedSettings.model_construct(
    memcached_servers=(), memcached_timeout_s=1.0, memcached_value_bytes_max=100_000
).model_copy(
    update={"memcached_failures_max": 3, "memcached_pause_s": 60, "memcached_batch_max": 10, "memcached_expiry_s": 60}
)


class OpenMemcached(MemcachedServer):
    def ask(self, command: bytes, end: bytes = b"\r\n") -> bytes:
        """Open a new connection, send one command, and return the answer."""
        with socket.create_connection((HOST, self.port), timeout=5) as connection:
            connection.sendall(command)
            answer = b""
            while not answer.endswith(end):
                piece = connection.recv(65_536)
                if not piece:
                    break
                answer += piece
        return answer

    def held(self) -> list[str]:
        dumped = self.ask(b"lru_crawler metadump all\r\n", b"END\r\n").decode()
        lines = [line for line in dumped.splitlines() if line.startswith("key=")]
        return [unquote(line.split(" ")[0].removeprefix("key=")) for line in lines]

    def value(self, key: str) -> bytes:
        answer = self.ask(f"get {key}\r\n".encode(), b"END\r\n")
        head, _, rest = answer.partition(b"\r\n")
        assert head.startswith(b"VALUE"), answer[:100]
        return rest[: int(head.rsplit(b" ", 1)[1])]

    def put(self, key: str, value: bytes) -> None:
        assert self.ask(f"set {key} 0 0 {len(value)}\r\n".encode() + value + b"\r\n") == b"STORED\r\n"

    def flush(self) -> None:
        assert self.ask(b"flush_all\r\n") == b"OK\r\n"

    def pause(self) -> None:
        """Freeze the server but keep its connections open, as an overloaded machine would."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)


class LyingServer:
    """A server that answers everything it receives with the same bytes. It waits `pause_s` seconds before each byte."""

    def __init__(self, answer: bytes, *, pause_s: float = 0.0) -> None:
        self._answer, self._pause_s = answer, pause_s
        self._over = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(65_536) and not self._over.is_set():
                pieces = [bytes([byte]) for byte in self._answer] if self._pause_s else [self._answer]
                for piece in pieces:
                    connection.sendall(piece)
                    if self._over.wait(self._pause_s):
                        return

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
