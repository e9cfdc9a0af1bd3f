"""Test that log lines are JSON without secrets, that few requests are logged, and that no caller waits for the log."""

import io
import json
import logging
import queue
import threading
from select import PIPE_BUF
from typing import Any

import pytest
import structlog

from jobs.request_origin import REQUEST_ID
from service.telemetry.logs import QUEUE_LINES_MAX, LineWriter, RequestLog, configure_logging

pytestmark = pytest.mark.usefixtures("logging_as_before")


class Log:
    def __init__(self, *, level: str = "info", process: str = "") -> None:
        self._stream = io.StringIO()
        self._writer = configure_logging(level=level, stream=self._stream, process=process)

    def read_lines(self) -> list[dict[str, Any]]:
        self._writer.close()
        return [json.loads(line) for line in self._stream.getvalue().splitlines()]


def log_answer(log: RequestLog, *, status: int = 200, seconds: float = 0.001, path: str = "/v1/x?key=secret") -> None:
    if log.should_log(status, seconds):
        log.log_request(view="page", method="GET", path=path, status=status, code="", seconds=seconds, key_id="k1")


def test_a_line_holds_the_request_id_and_no_query() -> None:
    lines = Log()
    REQUEST_ID.set("abc-1")
    log_answer(RequestLog(sample_ratio=1, slow_s=1), status=500, path="/v1/\ud800?key=secret")
    (line,) = lines.read_lines()
    assert line["request_id"] == "abc-1"
    assert line["level"] == "error"
    assert line["path"] == "/v1/\\ud800"
    assert "secret" not in json.dumps(line)


def test_lines_of_libraries_take_the_same_form() -> None:
    lines = Log()
    logging.getLogger("aiohttp.server").error("it %s", "broke")
    (line,) = lines.read_lines()
    assert (line["event"], line["logger"], line["level"]) == ("it broke", "aiohttp.server", "error")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("form", "stream", "in_words"),
    [
        ("auto", Terminal, True),
        ("auto", io.StringIO, False),
        ("json", Terminal, False),
        ("console", io.StringIO, True),
    ],
)
def test_lines_are_words_on_a_terminal_and_json_elsewhere(form: str, stream: type[io.StringIO], in_words: bool) -> None:
    target = stream()
    writer = configure_logging(level="info", form=form, stream=target)
    structlog.get_logger().warning("store_created", path="data/\x1b[2J", key="rk_a_secret")
    try:
        raise ValueError("a 'secret' value")
    except ValueError as error:
        RequestLog(sample_ratio=1, slow_s=1).log_failure(view="page", error=error)
    writer.flush()
    text = target.getvalue()
    writer.close()
    assert text.startswith("{") != in_words
    assert ("\x1b[" in text) == (stream is Terminal and in_words), "colours"
    assert "\x1b[2J" not in text
    assert "secret" not in text
    assert "ValueError" in text
    assert "test_logs.py" in text
    assert len(text.splitlines()) == 2


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    writer = configure_logging(level="error", stream=stream)
    structlog.get_logger().info("quiet")
    structlog.get_logger().error("loud")
    writer.close()
    assert ("quiet" in stream.getvalue(), "loud" in stream.getvalue()) == (False, True)


class Disk(io.StringIO):
    """A slow disk: a write waits until the test lets it continue.

    The disk keeps each written text, unless it is full.
    """

    def __init__(self, *, full: bool = False) -> None:
        super().__init__()
        self.full = full
        self.pieces: list[str] = []
        self.reached = threading.Event()
        self.free = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        self.free.wait(10)
        if self.full:
            raise OSError(28, "No space left on device")
        self.pieces.append(text)
        return super().write(text)


def test_a_stuck_disk_loses_lines_and_delays_no_caller() -> None:
    stream, dropped = Disk(), list[int]()
    writer = LineWriter(stream, on_drop=dropped.append)
    writer.queue_line("first")
    assert stream.reached.wait(10)
    for _ in range(QUEUE_LINES_MAX):
        assert writer.queue_line("queued")
    assert not writer.queue_line("one too many")
    assert dropped == [1]
    stream.free.set()
    writer.close()
    assert len(stream.getvalue().splitlines()) == QUEUE_LINES_MAX + 1


def test_a_closed_stream_does_not_end_the_writer() -> None:
    stream = io.StringIO()
    dropped: queue.Queue[int] = queue.Queue()
    writer = LineWriter(stream, on_drop=dropped.put)
    stream.close()
    writer.queue_line("lost")
    assert dropped.get(timeout=10) == 1
    assert writer.queue_line("still taken")
    writer.close()


def test_every_line_lost_to_a_full_disk_is_counted() -> None:
    stream, dropped = Disk(full=True), list[int]()
    writer = LineWriter(stream, on_drop=dropped.append)
    for number in range(1000):
        writer.queue_line(f"line {number}")
    stream.free.set()
    writer.close()
    assert sum(dropped) == 1000


def test_the_writer_writes_whole_lines_in_pieces_that_a_pipe_accepts_atomically() -> None:
    stream = Disk()
    writer = LineWriter(stream, on_drop=lambda _: None)
    sent = [f"{number} {'é' * (number % 300)}" for number in range(400)] + ["x" * 2 * PIPE_BUF]
    for line in sent:
        writer.queue_line(line)
    stream.free.set()
    writer.close()
    assert stream.getvalue().splitlines() == sent
    assert all(piece.endswith("\n") for piece in stream.pieces)
    *short, long = stream.pieces
    assert max(len(piece.encode()) for piece in short) <= PIPE_BUF
    assert long == sent[-1] + "\n"
    assert len(short) < 60  # fewer writes than lines: the writer joins several lines into one write


def test_a_process_of_a_node_writes_its_name_into_its_lines() -> None:
    lines = Log(process="worker1")
    structlog.get_logger().info("started")
    assert [line["process"] for line in lines.read_lines()] == ["worker1"]
