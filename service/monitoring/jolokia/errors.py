"""The errors of one Jolokia request, with the Java exceptions that Jolokia clients know.

One table decides which status and which exception a client gets for an error.
"""

from __future__ import annotations

from service.contract.problems import problem_of
from service.monitoring.managed.node_channel import ProcessFailedError
from service.monitoring.managed.object_names import MalformedNameError
from service.monitoring.managed.objects import (
    ForbiddenError,
    UnknownAttributeError,
    UnknownObjectError,
    UnknownOperationError,
)


class BadRequestError(Exception):
    """The request does not follow the protocol."""


class UnsupportedTypeError(Exception):
    """The agent does not support the type of the request."""


class NotModifiedError(Exception):
    """Nothing has changed since the time that the client named."""


_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownObjectError, 404, "javax.management.InstanceNotFoundException"),
    (UnknownAttributeError, 404, "javax.management.AttributeNotFoundException"),
    (UnknownOperationError, 400, "java.lang.IllegalArgumentException"),
    (BadRequestError, 400, "java.lang.IllegalArgumentException"),
    (UnsupportedTypeError, 400, "java.lang.UnsupportedOperationException"),
    (MalformedNameError, 400, "javax.management.MalformedObjectNameException"),
    (ForbiddenError, 403, "java.lang.Exception"),
    (ProcessFailedError, 500, "javax.management.MBeanException"),
)


def describe_error(error: Exception) -> tuple[int, str, str]:
    """Return status, Java exception and message of an error. The message of an unexpected error hides its cause."""
    for kind, status, java_name in _STATUSES:
        if isinstance(error, kind):
            return status, java_name, f"{java_name} : {error}"
    java_name = "javax.management.MBeanException"
    problem = problem_of(error)
    return 500, java_name, f"{java_name} : {problem.detail}"
