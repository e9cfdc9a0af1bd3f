"""What runs by itself beside the requests: refreshing curves, noticing those of other processes, forgetting post ids.

Reading order: runner, ownership, desk, drift, schedule, refresh, demands, watch, counting, fold, prune, audit, wiring.
No reading request ever starts a job or waits for one.
"""
