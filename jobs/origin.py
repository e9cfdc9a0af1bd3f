"""Which request something is done for: its id and its trace travel with what it asks of jobs, in other processes too.

    request ──> REQUEST_ID, TRACEPARENT ──> Demand ──row in the store──> a job's process ──> its log lines, its spans

The rule: who works for a request does so within `Origin.restored`, and nobody has to hand the ids on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Of what runs now: the request's id, and its place in a trace as W3C's header has it. Empty: of none.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")


def trace_id_of(traceparent: str) -> str:
    """The trace's id, empty where the text is no `traceparent` header; source: https://www.w3.org/TR/trace-context/."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Origin:
    """A request, to whoever works for it."""

    request_id: str = ""
    traceparent: str = ""

    @classmethod
    def current(cls) -> Origin:
        """Of what runs now."""
        traceparent = TRACEPARENT.get()
        return cls(REQUEST_ID.get(), traceparent if trace_id_of(traceparent) else "")

    @classmethod
    def of(cls, text: str | None) -> Origin:
        """Of its text; nothing of what is none."""
        request_id, _, traceparent = (text or "").partition(" ")
        return cls(
            request_id if _REQUEST_ID.fullmatch(request_id) else "", traceparent if trace_id_of(traceparent) else ""
        )

    @property
    def text(self) -> str:
        """As it is kept."""
        return f"{self.request_id} {self.traceparent}".rstrip()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Work for it."""
        before = REQUEST_ID.set(self.request_id), TRACEPARENT.set(self.traceparent)
        try:
            yield
        finally:
            REQUEST_ID.reset(before[0])
            TRACEPARENT.reset(before[1])
