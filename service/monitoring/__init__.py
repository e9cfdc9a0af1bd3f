"""What operators use besides `/metrics`: managed objects, the Jolokia protocol for them, and the dashboard.

    managed/    a tree of named objects (boards, curves, jobs, the store) with attributes and operations
    jolokia/    the protocol with which JMX tools read the tree over HTTP and start operations
    dashboard/  the page at `/` for people, and the handlers that serve its files

These rooms count nothing themselves. They read the metrics that Prometheus scrapes. A newly declared metric appears in
the tree by itself, without a change of these rooms.

This room imports `telemetry`, `http`, `contract`, jobs and storage. It does not import `views`, `streams` or `ranks`.
Inside it `jolokia` imports `managed`, and `dashboard` imports neither. Begin with `managed`.
"""
