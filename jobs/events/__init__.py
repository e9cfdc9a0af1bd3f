"""The jobs that notice changed tops, and that deliver events to webhooks by a function of the caller.

The latter knows nothing of HTTP. What was delivered is in the store, so another process can go on at any time.
"""
