"""The errors of the package. Each is raised before any SQL reaches a database. No message contains a bound value."""


class QueryError(Exception):
    """The base class of all errors that this package raises."""


class BadIdentifierError(QueryError, ValueError):
    """A name is empty, too long for PostgreSQL, or has characters that cannot be quoted."""


class BadValueError(QueryError, ValueError):
    """A value has such a type or size that it would not arrive in the database unchanged."""


class IncompleteQueryError(QueryError):
    """A builder was compiled while some of its parts were missing or contradicted each other."""


class InexpressibleError(QueryError):
    """The dialect, or this kind of statement, cannot express what the builder describes."""


class UnboundParameterError(QueryError, TypeError):
    """`bind` was called without a parameter that the statement needs, or with one that the statement does not have."""
