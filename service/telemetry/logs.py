"""Structured logs: a line for each failed or slow request, for each event of the process, and for a sample of the rest.

    structlog ──> processors (request id, time, scrubbing, form) ──> LineWriter: bounded queue ──> thread ──> stream

A request must never wait for the disk that holds the log. If lines come faster than the disk can write them, some are
dropped and counted. No line holds an API key, a request body or an owner's name.

The functions with three parameters are structlog processors, which scrub the lines of libraries, too. An exception's
text may quote a caller's input, unless its type is in `_QUOTING_CODE`. A traceback keeps its file names, line numbers
and function names, because operators need them to find a bug.
"""

import logging
import queue
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from select import PIPE_BUF
from typing import Any, TextIO

import structlog

from config import Settings
from config.masking import masked
from jobs.request_origin import REQUEST_ID, TRACEPARENT, trace_id_of
from service.contract.api_keys import KEY_PREFIX
from service.contract.problems import clip_text

TEXT_CHARS_MAX = 200
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?""")
_HIDDEN = "'…'"
# Errors of these types quote only names from the code or from tables. Other errors may quote a caller's input.
_QUOTING_CODE = frozenset(
    (
        "AttributeError", "ImportError", "ModuleNotFoundError", "NameError", "TypeError", "UnboundLocalError",
        "UndefinedColumnError", "UndefinedFunctionError", "UndefinedTableError",
    )
)  # fmt: skip
_KEY = re.compile(rf"({KEY_PREFIX}_[0-9A-Za-z]{{1,16}}_)[0-9A-Za-z]+")

Event = MutableMapping[str, Any]


def scrub_tracebacks(_: object, __: str, event: Event) -> Event:
    """Remove callers' input from tracebacks. This has to come before JSON is made, while tracebacks are still dicts."""
    for each in _chained(event.get("exception")):
        each["exc_value"] = scrub_text(each["exc_type"], each["exc_value"])
        each["exc_notes"] = [scrub_text(each["exc_type"], note) for note in each.get("exc_notes", ())]
        if each.get("syntax_error"):
            each["syntax_error"] = None
    return event


def scrub_text(type_name: str, text: str) -> str:
    """Keep the first line of an error's text, and hide its quoted parts if they may hold a caller's input.

    Later lines are dropped, because they may quote rows from the database.
    """
    line = text.partition("\n")[0]
    if type_name not in _QUOTING_CODE:
        line = masked(_QUOTED.sub(_HIDDEN, line))
    return line if len(line) <= TEXT_CHARS_MAX else line[:TEXT_CHARS_MAX] + "…"


def _chained(exceptions: Any) -> Iterator[dict[str, Any]]:
    """Yield an exception and its causes. For each exception in an exception group, yield it and its causes, too."""
    if isinstance(exceptions, list):
        for each in exceptions:
            yield each
            for part in each.get("exceptions") or ():
                yield from _chained(part)


def mask_keys(_: object, __: str, line: Any) -> Any:
    """Replace the secret part of every API key by stars. This is the last step, whose input is the rendered line."""
    return _KEY.sub(r"\1***", line) if KEY_PREFIX in line else line


QUEUE_LINES_MAX = 10_000
BATCH_LINES_MAX = 500
CLOSE_S_MAX = 2.0
_FAILED_STATUS = 400
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # a terminal would interpret these
_RENDERING: list[structlog.typing.Processor] = [
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    # Tracebacks must not hold local variables, which include the Authorization header and request bodies.
    structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
    scrub_tracebacks,
]


def _rendering(form: str, stream: TextIO) -> list[structlog.typing.Processor]:
    """List the processors that render events as JSON or, for people at a terminal, in words and colours."""
    if form == "json" or (form == "auto" and not stream.isatty()):
        return [*_RENDERING, structlog.processors.JSONRenderer(), mask_keys]
    return [*_RENDERING, _speak, structlog.dev.ConsoleRenderer(colors=stream.isatty()), mask_keys]


def _speak(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Shorten texts to one line that is safe on a terminal, and a traceback to the file names and lines in it."""
    for each in event.pop("exception", ()):
        event.setdefault("error", f"{each['exc_type']}: {each['exc_value']}")
        event.setdefault("at", ", ".join(f"{frame['filename']}:{frame['lineno']}" for frame in each["frames"]))
    return {name: _UNSEEN.sub("?", value) if isinstance(value, str) else value for name, value in event.items()}


class LineWriter:
    """Writes lines to a stream, in batches, in its own thread.

    `queue_line` never blocks. If lines are lost, `queue_line` or the writing thread calls `on_drop` with their count.
    """

    def __init__(self, stream: TextIO, *, on_drop: Callable[[int], None]) -> None:
        self._stream = stream
        self._on_drop = on_drop
        self._lines: queue.Queue[str | threading.Event | None] = queue.Queue(QUEUE_LINES_MAX)
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def queue_line(self, line: str) -> bool:
        """Queue a line, to which the thread adds the line end. If the queue is full, drop the line and return False."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._on_drop(1)
            return False
        return True

    # structlog calls the method that is named after a line's level.
    debug = info = warning = error = critical = exception = fatal = log = msg = queue_line

    def flush(self) -> None:
        """Wait until the queued lines are written, up to a time limit."""
        written = threading.Event()
        with suppress(queue.Full):
            self._lines.put_nowait(written)
            written.wait(CLOSE_S_MAX)

    def close(self) -> None:
        """Let the thread write the queued lines and end. Wait only up to a time limit, because the disk may hang."""
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
            for piece in _pieces([f"{line}\n" for line in batch if isinstance(line, str)]):
                try:
                    self._stream.write(piece)
                    self._stream.flush()
                except (OSError, ValueError):  # a full disk or a closed pipe must not end the service
                    lost += piece.count("\n")
            if lost:
                self._on_drop(lost)
            for each in batch:
                if isinstance(each, threading.Event):
                    each.set()


def _pieces(lines: list[str]) -> Iterator[str]:
    """Join lines into pieces of at most PIPE_BUF bytes. A longer line becomes a piece of its own.

    A pipe never splits a write of at most PIPE_BUF bytes, so lines from several processes do not mix.
    """
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


class _StandardHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        # Only the first line is logged, because later lines quote input: asyncio quotes the exceptions of its tasks.
        event = masked(record.getMessage().partition("\n")[0])
        structlog.get_logger().log(record.levelno, event, logger=record.name, exc_info=record.exc_info or None)


def configure_logging(
    *,
    level: str,
    form: str = "json",
    stream: TextIO | None = None,
    on_drop: Callable[[int], None] = lambda _: None,
    process: str | None = None,
) -> LineWriter:
    """Set up structlog and the standard library's logging for this process. The caller must close the returned writer.

    If `process` is given, every line has this name, which helps if several processes write to one stream.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    stream = stream or sys.stderr
    writer = LineWriter(stream, on_drop=on_drop)
    structlog.configure(
        processors=[
            *([lambda _, __, event: {**event, "process": process}] if process else []),
            _with_request_id,
            *_rendering(form, stream),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda *_: writer,
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[_StandardHandler()], level=max(number, logging.INFO), force=True)
    return writer


def log_serving(settings: Settings, addresses: list[str], **more: object) -> None:
    host, _, port = addresses[0].rpartition(":")
    shown = {"dashboard": f"http://{f'[{host}]' if ':' in host else host}:{port}/"} if settings.dashboard else {}
    structlog.get_logger().info("serving", addresses=addresses, **more, **shown)


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Log to standard error within the `with` block, because a command's standard output holds its result."""
    before = structlog.get_config()
    structlog.configure(
        processors=_rendering("auto", sys.stderr), logger_factory=lambda *_: structlog.PrintLogger(sys.stderr)
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def _with_request_id(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    request_id, trace_id = REQUEST_ID.get(), trace_id_of(TRACEPARENT.get())
    if request_id:
        event.setdefault("request_id", request_id)
    if trace_id:
        event.setdefault("trace_id", trace_id)
    return event


class RequestLog:
    def __init__(self, *, sample_ratio: float, slow_s: float, chance: Callable[[], float] = random.random) -> None:
        self._sample_ratio = sample_ratio
        self._slow_s = slow_s
        self._chance = chance
        self._logger = structlog.get_logger()

    def should_log(self, status: int, seconds: float) -> bool:
        """Return whether to log an answered request: because it failed, was slow, or is in the sample."""
        return status >= _FAILED_STATUS or seconds >= self._slow_s or self._chance() < self._sample_ratio

    def log_request(
        self, *, view: str, method: str, path: str, status: int, code: str, seconds: float, key_id: str
    ) -> None:
        """Log an answered request.

        `code` is the error code in the answer, or "". The caller has replaced people's names in `path`. If the request
        is logged only as part of the sample, the line has `sampled`, the fraction of such requests that is logged.
        """
        write = self._logger.error if status >= 500 else self._logger.info
        sampled = status < _FAILED_STATUS and seconds < self._slow_s
        write(
            "request",
            view=view,
            method=method,
            path=clip_text(path.partition("?")[0]),
            status=status,
            **({"code": code} if code else {}),
            seconds=round(seconds, 6),
            key=key_id,
            **({"sampled": self._sample_ratio} if sampled else {}),
        )

    def log_failure(self, *, view: str, error: BaseException) -> None:
        self._logger.error("request_failed", view=view, exc_info=error)
