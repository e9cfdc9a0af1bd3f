"""The ingest queue over HTTP."""
