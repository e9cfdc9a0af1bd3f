"""Durable boards behind one port: records, statements, the writer, and the stores that execute built queries."""
