"""Events: what happened to boards, for whoever asks and for webhooks, which a game receives by HTTP.

    log of a partition ── follower ──> `events`, numbered ──> GET /v1/events
                                                         └──> deliver job ──> each webhook, in order

`event_log` has the events of all partitions in one numbered list, which a follower of each partition fills. `webhooks`
remembers who gets which events, and how far each receiver has come. `tops` finds boards whose first rows have changed.
All three are in the control partition.

An event exists exactly once, because it is written with the mark of its follower. It may be delivered twice, because
the answer of a receiver can get lost; the event's id lets the receiver notice.
"""
