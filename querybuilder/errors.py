"""The errors of the package. Each is raised before any SQL reaches a database. No message contains a bound value."""


class QueryError(Exception):
    """The base class of all errors that this package raises."""


class BadIdentifierError(QueryError, ValueError):
    """A name is empty, too long for PostgreSQL, or has characters that cannot be quoted."""


class BadValueError(QueryError, ValueError):
    """A value would not arrive in the database unchanged, because of its type, its size or its characters."""


class IncompleteQueryError(QueryError):
    """A builder was compiled while some of its parts were missing or contradicted each other."""


class InexpressibleError(QueryError):
    """The dialect, or this kind of statement, cannot express what the builder describes."""


class UnboundParameterError(QueryError, TypeError):
    """`bind` did not get a parameter that the statement needs, or got a parameter that the statement does not have."""
