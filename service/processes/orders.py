"""The messages between a supervisor and a process that it starts.

Orders travel through a pipe, never on a command line or in the environment, because the store's URL may hold a
password.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from config import Settings

STOP_GRACE_S = 5.0  # the time to close the store and write the last log lines, after requests and jobs have stopped
WorkKind = Literal["serve", "jobs"]


class Orders(msgspec.Struct, frozen=True):
    """The first and only line on the standard input of a process."""

    name: str  # the name of the place in the node; a process that replaces another one gets the same name
    work: WorkKind
    folder: str  # the folder with the metrics of the node's processes
    settings: dict[str, Any]


class Report(msgspec.Struct, frozen=True):
    """The only line that a process writes to standard output. A process that ends without a report has crashed."""

    outcome: Literal["ready", "refused", "away"]  # away: the store can't be reached; another try may succeed
    detail: str = ""


decode_orders = msgspec.json.Decoder(Orders).decode
decode_report = msgspec.json.Decoder(Report).decode
encode_line = msgspec.json.encode


def stop_s_max(settings: Settings) -> float:
    """Return the longest time that a process may take to stop, in seconds."""
    return settings.shutdown_s + settings.job_stop_s_max + STOP_GRACE_S
