"""Passes the id and the trace of a request to the job that works for it, even if the job runs in another process.

    request ──> REQUEST_ID, TRACEPARENT ──> RequestOrigin ──row in the store──> job process ──> its log lines and spans

Such a job does its work within `RequestOrigin.restored`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# The id of the request that the current task works for, and its `traceparent` header (W3C). Both may be empty.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a `traceparent` header, or "". Source: https://www.w3.org/TR/trace-context/."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class RequestOrigin:
    request_id: str = ""
    traceparent: str = ""

    @classmethod
    def current(cls) -> RequestOrigin:
        traceparent = TRACEPARENT.get()
        return cls(REQUEST_ID.get(), traceparent if trace_id_of(traceparent) else "")

    @classmethod
    def parse(cls, text: str | None) -> RequestOrigin:
        """Parse the text of an origin; a part that is not valid becomes empty."""
        request_id, _, traceparent = (text or "").partition(" ")
        return cls(
            request_id if _REQUEST_ID.fullmatch(request_id) else "", traceparent if trace_id_of(traceparent) else ""
        )

    @property
    def text(self) -> str:
        return f"{self.request_id} {self.traceparent}".rstrip()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Within a `with` block, make this the origin of the current task."""
        before = REQUEST_ID.set(self.request_id), TRACEPARENT.set(self.traceparent)
        try:
            yield
        finally:
            REQUEST_ID.reset(before[0])
            TRACEPARENT.reset(before[1])
