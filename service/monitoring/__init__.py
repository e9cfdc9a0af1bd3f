"""The tools of operators besides `/metrics`: managed objects, the Jolokia protocol for them, and the pages.

    managed/    named objects (the store, jobs, routes) with attributes and operations
    jolokia/    the protocol with which JMX tools read the objects over HTTP and start operations
    dashboard/  the pages for people: the dashboard at `/` and the API at `/docs`

The room imports `telemetry`, `http`, `contract`, jobs and storage, but not `views`, `streams` or `ranks`. Inside the
room, `jolokia` imports `managed`, and `dashboard` imports neither. Begin with `managed`.
"""
