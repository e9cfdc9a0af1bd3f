"""The error that this package raises. Its messages never contain a bound value, because messages are logged."""


class QueryError(Exception):
    """A query, a name in it or one of its arguments is wrong, so no SQL reaches a database.

    For example, a value would not arrive unchanged, or the dialect cannot express the query. No message contains a
    bound value.
    """
