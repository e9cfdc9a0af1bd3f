"""The routes for operators and monitors: health, readiness, metrics, the OpenAPI document, Jolokia and the dashboard.

They are kept apart from the routes under `/v1` because a job process serves some of them, too.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from service.contract.api_keys import Role
from service.contract.problems import ProblemError, problem_of
from service.contract.routes import Call, Handler, Reply, Route
from service.http.openapi import read_document
from service.monitoring.dashboard.views import DASHBOARD
from service.monitoring.jolokia import JOLOKIA
from service.telemetry.metrics.process import METRICS_TYPE

_TAG = "Operating"


class Health(msgspec.Struct):
    """The answer of a healthy service: `status` is `ok`."""

    status: str


class Readiness(msgspec.Struct):
    """The answer of a service that can serve requests: `status` is `ok`.

    `partitions_away` has the numbers of the partitions that do not answer; requests to their boards fail.
    """

    status: str
    partitions_away: list[int] | UnsetType = UNSET


async def healthz(context: Any, call: Call) -> Health:
    return Health("ok")


async def readyz(context: Any, call: Call) -> Readiness:
    """Answer `ok` if the service can serve requests. Otherwise raise ProblemError, such as `store_busy`.

    The service is still ready if only some partitions do not answer. Otherwise a load balancer would stop using every
    front end because a single database server is down.
    """
    try:
        away = await context.ready()
    except Exception as error:
        problem = problem_of(error)
        if problem.code == "store_damaged":
            raise problem from error
        raise ProblemError("store_busy", f"the store does not answer: {problem.detail}") from error
    return Readiness("ok", away or UNSET)


async def metrics(context: Any, call: Call) -> Reply:
    return Reply(context.metrics.text(), media_type=METRICS_TYPE)


def _document_handler(routes: Sequence[Route]) -> Handler:
    made: list[bytes] = []  # the document, which is made at the first request, so that the service starts quickly

    async def openapi(context: Any, call: Call) -> bytes:
        if not made:
            made.append(msgspec.json.encode(read_document(routes, context.settings)))
        return made[0]

    return openapi


def add_health_routes(routes: Sequence[Route], *, dashboard: bool = True) -> list[Route]:
    """Append to `routes` the routes of this module, of Jolokia and, if `dashboard` is true, of the dashboard."""
    everything = list(routes)
    everything += [
        Route("GET", "/healthz", healthz, None, "healthz", _TAG),
        Route("GET", "/readyz", readyz, None, "readyz", _TAG),
        Route("GET", "/metrics", metrics, Role.OPS, "metrics", _TAG),
        Route("GET", "/openapi.json", _document_handler(everything), Role.READER, "openapi", _TAG),
    ]  # fmt: skip
    everything += JOLOKIA
    if dashboard:
        everything += DASHBOARD
    return everything
