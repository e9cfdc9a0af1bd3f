"""The routes of operators and monitors: is it up, can it work, what does it do, what does it offer.

The rule: they hold no state of their own and never touch a board.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from .dashboard.views import DASHBOARD
from .jolokia.views import JOLOKIA
from .keys import Role
from .metrics.process import METRICS_TYPE
from .openapi import document_bytes
from .problems import Problem, problem_of
from .routes import Call, Handler, Reply, Route

_TAG = "Operating"


class Health(msgspec.Struct):
    """`ok`, or what is missing."""

    status: str


async def healthz(context: Any, call: Call) -> Health:
    """The process answers."""
    return Health("ok")


async def readyz(context: Any, call: Call) -> Health:
    """The store answers too."""
    try:
        await context.ready()
    except Exception as error:
        problem = problem_of(error)
        if problem.code == "store_damaged":
            raise problem from error
        raise Problem("store_busy", f"the store does not answer: {problem.detail}") from error
    return Health("ok")


async def metrics(context: Any, call: Call) -> Reply:
    """Prometheus' text."""
    return Reply(context.metrics.text(), media_type=METRICS_TYPE)


def _document(routes: Sequence[Route]) -> Handler:
    made: list[bytes] = []  # at the first call: a process that is never asked does not pay for it at start

    async def openapi(context: Any, call: Call) -> bytes:
        if not made:
            made.append(document_bytes(routes, context.settings))
        return made[0]

    return openapi


def with_operating(routes: Sequence[Route], *, dashboard: bool = True) -> list[Route]:
    """The routes, and after them those of this module; the OpenAPI document describes all of them.

    Without the `dashboard` its paths are as unknown as any other.
    """
    everything = list(routes)
    everything += [
        Route(
            method="GET", path="/healthz", handler=healthz, role=None, view="healthz",
            summary="Whether the process is up", tag=_TAG, response=Health,
        ),
        Route(
            method="GET", path="/readyz", handler=readyz, role=None, view="readyz",
            summary="Whether the store is reachable", tag=_TAG, response=Health,
            problems=("store_busy", "store_damaged"),
        ),
        Route(
            method="GET", path="/metrics", handler=metrics, role=Role.OPS, view="metrics",
            summary="Figures in Prometheus' text format", tag=_TAG, media_type=METRICS_TYPE,
        ),
        Route(
            method="GET", path="/openapi.json", handler=_document(everything), role=Role.READER, view="openapi",
            summary="This document", tag=_TAG,
        ),
    ]  # fmt: skip
    everything += JOLOKIA
    if dashboard:
        everything += DASHBOARD
    return everything
