"""Records what happened to boards as events, and keeps track of their delivery to a game's webhooks over HTTP.

    log of a partition ── follower ──> `events`, numbered ──> GET /v1/events
                                                         └──> deliver job ──> each webhook, in order

`event_log` keeps the events from all partitions in one numbered list, which a follower of each partition fills.
`webhooks` remembers who gets which events, and how far each receiver has come. `tops` finds boards whose first rows
have changed. All three store their data in the control partition.

Each event exists exactly once, because it is written together with its follower's mark. It may be delivered twice,
because a receiver's answer can get lost, but the event's id lets the receiver notice.
"""
