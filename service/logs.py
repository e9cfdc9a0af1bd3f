"""Structured logs: one line for every failed or slow request, a sample of the rest, and what the process itself tells.

The rule: a line never waits for a disk and never holds a key, a body or an owner (see `log_scrubbing`). Lines go
through a bounded queue to a thread that writes them in batches; where the disk is slower than the callers, lines are
dropped and counted, not awaited.
"""

from __future__ import annotations

import logging
import queue
import random
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from select import PIPE_BUF
from typing import Any, Literal, TextIO

import structlog

from config.masking import masked
from jobs.origin import REQUEST_ID, TRACEPARENT, trace_id_of

from .log_scrubbing import printable, scrubbed_tracebacks, tracebacks_as_text, without_keys
from .problems import shown

QUEUE_LINES_MAX = 10_000
BATCH_LINES_MAX = 500
CLOSE_S_MAX = 2.0
_FAILED_STATUS = 400
_AS_TEXT = structlog.dev.ConsoleRenderer(colors=False)

__all__ = ["REQUEST_ID", "TRACEPARENT", "LineWriter", "RequestLog", "configure", "logging_to_stderr"]


class LineWriter:
    """Writes lines to a stream in a thread of its own; `write` never blocks and answers False for a dropped line.

    `on_drop` is told how many lines were lost.
    """

    def __init__(self, stream: TextIO, *, on_drop: Callable[[int], None]) -> None:
        self._stream = stream
        self._on_drop = on_drop
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUE_LINES_MAX)
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def write(self, line: str) -> bool:
        """Queue a line (without its line end)."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._on_drop(1)
            return False
        return True

    def close(self) -> None:
        """Write what is queued and end the thread; waits a bounded time, for the disk may be gone."""
        try:
            self._lines.put(None, timeout=CLOSE_S_MAX)
        except queue.Full:
            return
        self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        open_ = True
        while open_:
            batch = [self._lines.get()]
            while len(batch) < BATCH_LINES_MAX and not self._lines.empty():
                batch.append(self._lines.get())
            open_ = None not in batch
            lost = 0
            for piece in _pieces([f"{line}\n" for line in batch if line is not None]):
                try:
                    self._stream.write(piece)
                    self._stream.flush()
                except (OSError, ValueError):  # a full disk or a closed pipe: the service outlives its log
                    lost += piece.count("\n")
            if lost:
                self._on_drop(lost)


def _pieces(lines: list[str]) -> Iterator[str]:
    """The lines joined into pieces that a pipe takes whole: lines of several processes then never mix."""
    piece: list[str] = []
    size = 0
    for line in lines:
        length = len(line.encode("utf-8", "replace"))
        if piece and size + length > PIPE_BUF:
            yield "".join(piece)
            piece, size = [], 0
        piece.append(line)
        size += length
    if piece:
        yield "".join(piece)


class _Sink:
    """structlog's way out: every level is a line."""

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer

    def msg(self, line: str) -> None:
        self._writer.write(line)

    debug = info = warning = error = critical = exception = fatal = log = msg


class _StandardHandler(logging.Handler):
    """Lines of the libraries (aiohttp, asyncio) take the same way."""

    def emit(self, record: logging.LogRecord) -> None:
        # The lines after the first quote what a library was given: asyncio's, the exceptions of its tasks.
        event = masked(record.getMessage().partition("\n")[0])
        structlog.get_logger().log(record.levelno, event, logger=record.name, exc_info=record.exc_info or None)


def configure(
    *,
    level: str,
    style: Literal["json", "console"],
    stream: TextIO | None = None,
    on_drop: Callable[[int], None] = lambda _: None,
    process: str | None = None,
) -> LineWriter:
    """Set up structlog and the standard library's logging for this process; close the result at the end.

    `level` is a name of the logging module in either case; `stream` defaults to standard error. `process` stands in
    every line where several processes write to one stream.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    writer = LineWriter(stream or sys.stderr, on_drop=on_drop)
    # Without the frames' local variables: the Authorization header and the bodies are among them.
    exceptions = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    rendering: list[structlog.typing.Processor] = [structlog.processors.JSONRenderer()]
    if style == "console":
        rendering = [printable, tracebacks_as_text, _AS_TEXT]
    structlog.configure(
        processors=[
            *([_with_process(process)] if process else []),
            _with_request_id,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            exceptions,
            scrubbed_tracebacks,
            *rendering,
            without_keys,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: _Sink(writer),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_StandardHandler()], level=max(number, logging.INFO), force=True)
    return writer


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Write what the code logs to standard error meanwhile: a command's standard output is its answer."""
    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.add_log_level, printable, _AS_TEXT, without_keys],
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _with_process(process: str) -> structlog.typing.Processor:
    def add(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["process"] = process
        return event

    return add


def _with_request_id(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    request_id, trace_id = REQUEST_ID.get(), trace_id_of(TRACEPARENT.get())
    if request_id:
        event.setdefault("request_id", request_id)
    if trace_id:
        event.setdefault("trace_id", trace_id)
    return event


class RequestLog:
    """Decides which answered requests get a line."""

    def __init__(self, *, sample_ratio: float, slow_s: float, chance: Callable[[], float] = random.random) -> None:
        self._sample_ratio = sample_ratio
        self._slow_s = slow_s
        self._chance = chance
        self._logger = structlog.get_logger()

    def wanted(self, status: int, seconds: float) -> bool:
        """Whether an answered request gets a line: it failed, was slow, or is in the sample."""
        return status >= _FAILED_STATUS or seconds >= self._slow_s or self._chance() < self._sample_ratio

    def answered(
        self, *, view: str, method: str, path: str, status: int, code: str, seconds: float, key_id: str
    ) -> None:
        """One line; `code` is a problem's or "". One of the sample says by `sampled` what share of such requests it is.

        `path` without what names a person: see `Endpoint`.
        """
        write = self._logger.error if status >= 500 else self._logger.info
        sampled = status < _FAILED_STATUS and seconds < self._slow_s
        write(
            "request",
            view=view,
            method=method,
            path=shown(path.partition("?")[0]),
            status=status,
            **({"code": code} if code else {}),
            seconds=round(seconds, 6),
            key=key_id,
            **({"sampled": self._sample_ratio} if sampled else {}),
        )

    def failed(self, *, view: str, error: BaseException) -> None:
        """The traceback of what answered as `internal`."""
        self._logger.error("request_failed", view=view, exc_info=error)
