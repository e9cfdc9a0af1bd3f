"""A process with a bare loop over a database driver: the baseline for batch posts.

The process runs one round at a time. It reads a line of JSON that describes the round, and writes the seconds that the
round took.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

from benchmarks import load
from benchmarks.boards import BATCH
from benchmarks.servers import PROJECT


class BareLoop:
    """A running process of `benchmarks.<program>`.

    `place` is the URL or path of the database, `rows` the size of the board in it.
    """

    def __init__(self, program: str, place: str, rows: int) -> None:
        self._program = program
        command = [sys.executable, "-m", f"benchmarks.{program}", place, str(rows)]
        self._process = subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise load.LoadFailedError(f"{self._program} ended")
        return line

    def run_round(self, *, seed: int, count: int, **more: int) -> load.Figure:
        """Run one round of `count` batches and return its figure. `more` holds further keys for the line of JSON."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"seed": seed, "count": count, "size": BATCH, **more}) + "\n")
        self._process.stdin.flush()
        return load.Figure(count * BATCH / float(self._line()))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def run_bare_loop(program: str, place: str, rows: int) -> Iterator[BareLoop]:
    loop = BareLoop(program, place, rows)
    try:
        yield loop
    finally:
        loop.stop()
