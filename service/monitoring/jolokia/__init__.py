"""The Jolokia protocol 7.2 over the tree of managed objects: read, list, search, exec, version.

    request (GET path, POST body, bulk) ──> requests ──> answering (tree) ──> values (paths, limits) ──> envelope

The rule: a request that can't be met gets an envelope with a status of its own, under HTTP 200. `write`, stack traces
and CORS are not supported. Where the service has no API keys, pages of other sites are refused, because a GET may run
an operation.

The room imports `managed`, which knows nothing of Jolokia. Begin with `views`, then `requests` and `answering`.

Source: https://jolokia.org/reference/html/manual/jolokia_protocol.html
"""
