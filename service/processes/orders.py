"""What a supervisor tells a process that it starts, and what that one answers.

The rule: orders travel through a pipe, never on a command line or in the environment, for the store's URL may hold a
password; the same pipe tells of the supervisor's end, however it ends.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from config import Settings

STOP_GRACE_S = 5.0  # beyond the bounds of requests and jobs: closing the store, writing the last lines
WorkKind = Literal["serve", "jobs"]


class Orders(msgspec.Struct, frozen=True):
    """The first and only line on a process' standard input."""

    name: str  # of its place in the node: one that replaces another has the same
    work: WorkKind
    folder: str  # of the node's figures
    settings: dict[str, Any]


class Report(msgspec.Struct, frozen=True):
    """The first and only line on its standard output; a process that ends without one has crashed."""

    outcome: Literal["ready", "refused", "away"]  # away: the store can't be reached, which another try may help
    detail: str = ""


decode_orders = msgspec.json.Decoder(Orders).decode
decode_report = msgspec.json.Decoder(Report).decode
encode_line = msgspec.json.encode


def stop_s_max(settings: Settings) -> float:
    """The longest that a process may take to stop."""
    return settings.shutdown_s + settings.job_stop_s_max + STOP_GRACE_S
