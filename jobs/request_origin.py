"""Passes a request's id and trace to the job that works for it, even if the job runs in another process.

    request ──> REQUEST_ID, TRACEPARENT ──> describe_origin ──row in the store──> working_for ──> log lines and spans

Without it, a job process's log could not tell whose request a failed refresh was. Log lines and spans that are written
within `working_for` carry the request's id and trace.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# The id of the request that the current task works for, and its `traceparent` header (W3C). Both may be empty.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def trace_id_of(traceparent: str) -> str:
    """Parse a `traceparent` header's trace id (https://www.w3.org/TR/trace-context/); return "" if it is invalid."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found else ""


def describe_origin() -> str:
    """Encode the id and trace of the request that the current task works for as one text."""
    traceparent = TRACEPARENT.get()
    return f"{REQUEST_ID.get()} {traceparent if trace_id_of(traceparent) else ''}".rstrip()


@contextmanager
def working_for(origin: str) -> Iterator[None]:
    """Set the request id and trace for a `with` block, from a text by `describe_origin`. Invalid parts become ""."""
    request_id, _, traceparent = origin.partition(" ")
    before = (
        REQUEST_ID.set(request_id if _REQUEST_ID.fullmatch(request_id) else ""),
        TRACEPARENT.set(traceparent if trace_id_of(traceparent) else ""),
    )
    try:
        yield
    finally:
        REQUEST_ID.reset(before[0])
        TRACEPARENT.reset(before[1])
