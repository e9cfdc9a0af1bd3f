"""Jobs for events: one notices when the top of a board changes, the other delivers events to webhooks in order.

The delivering job knows nothing of HTTP, because its caller passes the function that sends. The store records what was
delivered, so that another process can continue at any time, whatever crashes.
"""
