"""What goes wrong with one Jolokia request, as Java's exceptions that its clients know.

The rule: one table from error to status; nothing else decides what a client sees.
"""

from __future__ import annotations

from service.managed.channel import ProcessFailed
from service.managed.object_names import MalformedName
from service.managed.objects import Forbidden, UnknownAttribute, UnknownObject, UnknownOperation

from ..problems import problem_of


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


def described(error: Exception) -> tuple[int, str, str]:
    """Status, Java's name and message of an error. Of one that nobody foresaw no cause is told."""
    for kind, status, java_name in _STATUSES:
        if isinstance(error, kind):
            return status, java_name, f"{java_name} : {error}"
    java_name = "javax.management.MBeanException"
    problem = problem_of(error)
    return 500, java_name, f"{java_name} : {problem.detail}"
