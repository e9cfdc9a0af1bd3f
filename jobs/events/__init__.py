"""The job that delivers events to webhooks, with a function of the caller that sends one delivery.

It knows nothing of HTTP. What was delivered is in the store, so another process can go on at any time.
"""
