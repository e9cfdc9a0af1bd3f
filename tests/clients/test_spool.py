"""Test that a spool keeps every post that it accepted, whatever happens to its disk, its process and its files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from rankcurve import Client
from rankcurve.errors import SpoolError, UnsentPostsError
from rankcurve.spool import AGE_S_MAX, SEGMENT_POSTS, Header, Spool

TARGET = "/v1/leaderboards/game/posts"
POST = b'{"owner":"ada","stats":{"xp":1},"post_id":"a"}'
LONG_S = 3_600.0


def write_segment(path: Path, *lines: bytes, target: str = TARGET, age_s: float = 0.0) -> None:
    header = msgspec.json.encode(Header(target, time.time() - age_s))
    path.write_bytes(b"".join(line + b"\n" for line in (header, *lines)))


def left_in(folder: Path) -> list[str]:
    """Return the owners of the posts that a spool on this folder finds."""
    spool = Spool(folder, TARGET)
    owners = [left.owner for left in spool.leftover]
    spool.close()
    return owners


# Limits of a file's size stand for a full disk: the system writes what fits, as it does there.
FILLED = """
import os, resource, sys
from rankcurve.errors import SpoolError
from rankcurve.spool import Spool

folder, target, *limits = sys.argv[1:]
spool, number = Spool(folder, target), 0
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in [*map(int, limits), -1, -1, -1]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    number += 1
    try:
        spool.append(b'{"owner":"%d","stats":{"xp":1},"post_id":"%d"}' % (number, number))
    except SpoolError as error:
        assert "File too large" in str(error) or "No space left" in str(error)
    else:
        os.write(1, b"%d " % number)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("limits", [[0], [10], [150], [0, 10, 100, 150, 200, 0], list(range(0, 300, 9))])
def test_no_accepted_post_is_lost_after_a_full_disk_and_a_kill(tmp_path: Path, limits: list[int]) -> None:
    words = [sys.executable, "-c", FILLED, str(tmp_path), TARGET, *map(str, limits)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    accepted = ended.stdout.split()
    assert len(accepted) >= 3
    assert left_in(tmp_path) == accepted


def test_what_can_not_be_sent_is_set_aside_and_named_and_the_rest_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    contents = {"000000000001": POST + b"\n" + POST + b"\n", "000000000002": b"\0" * 99, "foreign": b"\xff\n\n"}
    for name, content in contents.items():
        (tmp_path / f"{name}.posts").write_bytes(content)
    write_segment(tmp_path / "000000000003.posts", POST, age_s=AGE_S_MAX + 1)
    write_segment(tmp_path / "000000000004.posts", POST, target="/v1/leaderboards/other\x1b/posts")
    (tmp_path / "000000000005.posts").mkdir()
    write_segment(tmp_path / "000000000006.posts", POST)
    (tmp_path / "000000000007.posts").touch()
    for _ in range(2):
        assert left_in(tmp_path) == ["ada"]
    names = ["1.posts.damaged", "2.posts.damaged", "3.posts.old", "4.posts", "5.posts", "6.posts"]
    assert sorted(os.listdir(tmp_path)) == [f"00000000000{name}" for name in names] + ["foreign.posts.damaged", "lock"]
    assert (tmp_path / "foreign.posts.damaged").read_bytes() == contents["foreign"]
    for name in [*names[:5], "foreign.posts.damaged"]:
        assert f"{name} was " in caplog.text
    assert "older than 7 days" in caplog.text
    assert "it has posts for /v1/leaderboards/other?/posts" in caplog.text
    spool = Spool(tmp_path, TARGET)
    assert spool.append(POST).path.name == "000000000007.posts", "no name is used again"


@pytest.mark.parametrize(
    "bad",
    [b"\0\0\0", b"{", b"[" * 50_000, b"7", b'{"owner":"b"}', b'{"owner":"b","post_id":1}', b'{"owner":"\xff"}', b""],
)
def test_a_bad_line_is_kept_and_blocks_no_other_post(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bad: bytes
) -> None:
    write_segment(tmp_path / "000000000001.posts", POST, bad, POST)
    spool = Spool(tmp_path, TARGET)
    assert [left.post for left in spool.leftover] == [POST, POST]
    assert "line 3 of" in caplog.text
    spool.settle(spool.leftover[0].segment, 2)
    spool.close()
    assert (tmp_path / "000000000001.posts.damaged").read_bytes().split(b"\n")[2] == bad
    assert left_in(tmp_path) == []


def test_a_damaged_segment_never_replaces_another(tmp_path: Path) -> None:
    for content in (b"one\n", b"two\n"):
        (tmp_path / "x.posts").write_bytes(content)
        assert left_in(tmp_path) == []
    kept = [(tmp_path / f"x.posts{number}.damaged").read_bytes() for number in ("", "1")]
    assert kept == [b"one\n", b"two\n"]


def test_a_torn_last_line_was_never_accepted(tmp_path: Path) -> None:
    write_segment(tmp_path / "000000000001.posts", POST)
    with (tmp_path / "000000000001.posts").open("ab") as stream:
        stream.write(b'{"owner":"bob","stats":{"xp"')
    assert left_in(tmp_path) == ["ada"]


def test_a_spool_is_for_one_buffer_at_a_time(tmp_path: Path) -> None:
    spool = Spool(tmp_path, TARGET)
    with pytest.raises(SpoolError, match="in use"):
        Spool(tmp_path, TARGET)
    spool.append(POST)
    spool.close()
    assert left_in(tmp_path) == ["ada"]
    assert AGE_S_MAX < 30 * 86_400, "the service forgets post ids after 30 days"


def test_a_spool_keeps_only_segments_with_unsettled_posts(tmp_path: Path) -> None:
    spool = Spool(tmp_path, TARGET)
    segments = [spool.append(POST) for _ in range(SEGMENT_POSTS + 1)]
    assert len(list(tmp_path.glob("*.posts"))) == 2
    spool.settle(segments[0], SEGMENT_POSTS)
    assert len(list(tmp_path.glob("*.posts"))) == 1
    spool.settle(segments[-1], 1)
    assert list(tmp_path.glob("*.posts")) == []
    spool.append(POST)
    spool.close()
    assert [len(spool.leftover) for spool in [Spool(tmp_path, TARGET)]] == [1]


def test_a_post_that_cannot_be_written_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client("http://127.0.0.1:9") as client:
        buffer = client.buffer("game", spool=tmp_path, delay_s=LONG_S)
        buffer.submit("ada", {"xp": 1})
        with monkeypatch.context() as full:
            full.setattr("os.write", lambda _file, text: len(text) // 2)
            with pytest.raises(SpoolError, match="No space left"):
                buffer.submit("bob", {"xp": 1})
        with pytest.raises(UnsentPostsError) as unsent:
            buffer.close(timeout_s=0)
    assert [post["owner"] for post in unsent.value.posts] == ["ada"]
    [segment] = tmp_path.glob("*.posts")
    assert [json.loads(line).get("owner") for line in segment.read_text().splitlines()] == [None, "ada"]
