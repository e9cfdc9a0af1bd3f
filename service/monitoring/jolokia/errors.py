"""The errors of one Jolokia request, with the Java exceptions that its clients know.

The rule: one table maps errors to statuses, and nothing else decides what a client sees.
"""

from __future__ import annotations

from service.contract.problems import problem_of
from service.monitoring.managed.node_channel import ProcessFailed
from service.monitoring.managed.object_names import MalformedName
from service.monitoring.managed.objects import Forbidden, UnknownAttribute, UnknownObject, UnknownOperation


class BadRequest(Exception):
    """the request is not one of the protocol"""


class UnsupportedType(Exception):
    """the protocol has the request, this agent does not"""


class NotModified(Exception):
    """nothing has changed since the time that the client named"""


_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (UnknownObject, 404, "javax.management.InstanceNotFoundException"),
    (UnknownAttribute, 404, "javax.management.AttributeNotFoundException"),
    (UnknownOperation, 400, "java.lang.IllegalArgumentException"),
    (BadRequest, 400, "java.lang.IllegalArgumentException"),
    (UnsupportedType, 400, "java.lang.UnsupportedOperationException"),
    (MalformedName, 400, "javax.management.MalformedObjectNameException"),
    (Forbidden, 403, "java.lang.Exception"),
    (ProcessFailed, 500, "javax.management.MBeanException"),
)


def describe_error(error: Exception) -> tuple[int, str, str]:
    """Return status, Java exception and message of an error. The message of an unforeseen error tells no cause."""
    for kind, status, java_name in _STATUSES:
        if isinstance(error, kind):
            return status, java_name, f"{java_name} : {error}"
    java_name = "javax.management.MBeanException"
    problem = problem_of(error)
    return 500, java_name, f"{java_name} : {problem.detail}"
