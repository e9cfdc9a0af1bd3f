"""A part's bounds out of the settings.

The rule: each bound has the name of its setting.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TypeVar

from config import Settings

L = TypeVar("L")


def limits_of(kind: type[L], settings: Settings) -> L:
    """A dataclass of bounds, each from the setting of its name."""
    return kind(**{field.name: getattr(settings, field.name) for field in fields(kind)})  # type: ignore[arg-type]
