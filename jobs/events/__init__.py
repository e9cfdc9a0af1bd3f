"""Jobs for events: one notices changed tops, one delivers events to webhooks in order, whatever crashes.

The latter knows nothing of HTTP: it sends by a function of the caller. What was delivered is in the store, so another
process can continue at any time.
"""
