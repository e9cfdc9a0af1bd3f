"""The Jolokia protocol 7.2, by which JMX tools use the managed objects: read, list, search, exec, version.

    request (GET path, POST body, bulk) ──> requests ──> answering (objects, inner paths) ──> envelope

If a Jolokia request fails, the response has HTTP status 200, and its envelope holds an error status. `write`, stack
traces, limits of an answer and CORS are not supported. If the service has no API keys, it refuses requests from pages
of other sites, because a GET may run an operation.

The package imports `managed`, which knows nothing of Jolokia. Begin with `views`, then `requests` and `answering`.

Source: https://jolokia.org/reference/html/manual/jolokia_protocol.html
"""
