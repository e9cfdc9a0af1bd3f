"""What operators use besides `/metrics`: managed objects, the Jolokia protocol for them, and the dashboard.

    managed/    a tree of named objects (boards, curves, jobs, the store) with attributes and operations
    jolokia/    the protocol by which JMX tools read and operate that tree over HTTP
    dashboard/  the page at `/` for people, and the handlers that serve its files

Nothing is counted here. The rooms read the metrics that Prometheus scrapes. Whoever declares a new metric need not
change these rooms: the metric appears in the tree by itself.

The room imports `telemetry`, `http`, `contract`, jobs and storage. It does not import `views`, `streams` or `ranks`.
Inside it `jolokia` imports `managed`, and `dashboard` imports neither. Begin with `managed`.
"""
