"""Test that threads may encode arguments at once. A failure would end this process, so another process tries it."""

import subprocess
import sys

from tests.service.real_service import ROOT, WAIT_S

TRIALS = """
import sys
from threading import Barrier, Thread

from querybuilder.arguments import Encoder, _shape
from querybuilder.dialect import SqlType

sys.setswitchinterval(1e-6)
start = Barrier(3)
kinds = (SqlType.INTEGER, SqlType.TEXT, SqlType.BLOB) * 5

def encode(arrays):
    start.wait()
    assert Encoder(kinds, arrays).encode([(1, "a", b"a") * 5])

for _ in range(100):
    for arrays in (True, False):
        _shape.cache_clear()
        threads = [Thread(target=encode, args=(arrays,)) for _ in range(3)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
print("done")
"""


def test_threads_encode_rows_of_new_kinds_at_once() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TRIALS], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
