"""The errors of the package. A caller that catches the root, `QueryError`, catches all of them.

    QueryError
    ├── BadIdentifierError      a name that is empty, too long, or has characters that cannot be quoted
    ├── BadValueError           a value that would not arrive in the database unchanged
    ├── IncompleteQueryError    a builder with parts that are missing or contradict each other
    ├── InexpressibleError      a construct that the dialect, or the kind of statement, cannot express
    └── UnboundParameterError   `bind` was called with a missing or unknown parameter

Every error is raised before any SQL reaches a database, and no message contains a bound value.
"""


class QueryError(Exception):
    """Root of all errors that this package raises."""


class BadIdentifierError(QueryError, ValueError):
    """A name is empty, too long for PostgreSQL, or has characters that cannot be quoted."""


class BadValueError(QueryError, ValueError):
    """A value has such a type or size that it would not arrive in the database unchanged."""


class IncompleteQueryError(QueryError):
    """A builder was compiled while some of its parts were missing or contradicted each other."""


class InexpressibleError(QueryError):
    """The dialect, or this kind of statement, cannot express what the builder describes."""


class UnboundParameterError(QueryError, TypeError):
    """`bind` was called without a parameter that the statement needs, or with one that it does not know."""
