"""The envelope of a Jolokia answer, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Any

import msgspec


class JolokiaAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one Jolokia request: its value, or an error with a status code like those of HTTP."""

    status: int
    timestamp: int  # seconds since 1970
    request: Any = None
    value: Any = None
    error: str | None = None
    error_type: str | None = None
