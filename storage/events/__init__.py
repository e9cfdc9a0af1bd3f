"""Events: what happened to boards, for whoever asks and for webhooks, which a game receives by HTTP.

    log of a partition ── follower ──> `events`, numbered ──> GET /v1/events
                                                         └──> deliver job ──> each webhook, in order

`event_log` has the events of all partitions in one numbered list, which a follower of each partition fills.
`webhooks` remembers who gets which events, and how far each receiver has come. `tops` finds boards whose first rows
have changed. All three are in the control partition.

The most important rule: an event exists exactly once, because it is written with the mark of its follower. A delivery
may happen twice, because a receiver can answer and the answer get lost; the event's id lets the receiver notice.
"""
