"""The Jolokia protocol 7.2, by which JMX tools use the managed objects: read, list, search, exec, version.

    path of a GET or body of a POST ──requests──> parsed request ──answering──> value of an object ──> JSON answer

If a Jolokia request fails, the HTTP status is 200, and the JSON answer holds an error status. `write`, stack traces,
limits on the size of an answer, and CORS are not supported. If the service has no API keys, it refuses requests from
pages of other sites, because a GET may run an operation.

The package imports `managed`, which knows nothing of Jolokia. Begin with `views`, then `requests` and `answering`.

Source: https://jolokia.org/reference/html/manual/jolokia_protocol.html
"""
