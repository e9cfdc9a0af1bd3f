"""The ways in which a request for managed objects fails, each with a status as in HTTP and a Java exception of JMX."""

from enum import Enum


class Fault(Enum):
    OBJECT_UNKNOWN = 404, "javax.management.InstanceNotFoundException"
    ATTRIBUTE_UNKNOWN = 404, "javax.management.AttributeNotFoundException"
    NAME_MALFORMED = 400, "javax.management.MalformedObjectNameException"
    REQUEST_INVALID = 400, "java.lang.IllegalArgumentException"
    TYPE_UNSUPPORTED = 400, "java.lang.UnsupportedOperationException"
    FORBIDDEN = 403, "java.lang.Exception"
    FAILED = 500, "javax.management.MBeanException"


class RefusedError(Exception):
    """A request for managed objects failed. `fault` says in which way it failed, and the text says why."""

    def __init__(self, fault: Fault, text: str) -> None:
        super().__init__(text)
        self.fault = fault
