"""The tools for operators besides `/metrics`: managed objects, the Jolokia protocol to read them, and web pages.

    managed/    named objects (the store, jobs, routes) with attributes and operations
    jolokia     the protocol by which JMX tools read the objects and start operations over HTTP
    dashboard/  the pages for people: the dashboard at `/` and the API at `/docs`

The package imports `telemetry`, `http`, `contract`, jobs and storage, but not `views`, `streams` or `ranks`. Inside it,
`jolokia` imports `managed`, and `dashboard` imports neither. Begin with `managed`.
"""
