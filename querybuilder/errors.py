"""The errors of the package, in one place so that a caller needs to catch only their root.

    QueryError
    ├── BadIdentifierError      a name that cannot be quoted faithfully
    ├── BadValueError           a value that would not arrive in the database as it is
    ├── IncompleteQueryError    a builder that was compiled too early, or that contradicts itself
    ├── InexpressibleError      a construct that the dialect, or the kind of statement, cannot carry
    └── UnboundParameterError   `bind` called with a parameter missing or unknown

The rule: every error is raised before any SQL reaches a database, and no message shows a bound value.
"""


class QueryError(Exception):
    """Root of everything that this package raises."""


class BadIdentifierError(QueryError, ValueError):
    """A name is empty, too long for PostgreSQL, or holds characters that no quoting can carry."""


class BadValueError(QueryError, ValueError):
    """A value has a type or size that would not survive the way into the database unchanged."""


class IncompleteQueryError(QueryError):
    """A builder was compiled before it said enough, or with parts that contradict each other."""


class InexpressibleError(QueryError):
    """The dialect, or this kind of statement, has no faithful form for what was asked."""


class UnboundParameterError(QueryError, TypeError):
    """`bind` was called without a parameter that the statement needs, or with one that it does not know."""
