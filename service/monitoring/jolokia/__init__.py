"""The Jolokia protocol 7.2 over the tree of managed objects: read, list, search, exec, version.

    request (GET path, POST body, bulk) ──> requests ──> answering (tree) ──> values (paths, limits) ──> envelope

A request that fails gets HTTP 200 and an envelope with an error status of its own. `write`, stack traces and
CORS are not supported. If the service has no API keys, it refuses requests from pages of other sites, because a GET may
run an operation.

The room imports `managed`, which knows nothing of Jolokia. Begin with `views`, then `requests` and `answering`.

Source: https://jolokia.org/reference/html/manual/jolokia_protocol.html
"""
