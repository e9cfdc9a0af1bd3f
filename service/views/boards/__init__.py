"""Handlers of leaderboards, families and grants, which create, change, show, list, empty and delete boards.

`specs` checks a specification when it arrives, so that the store has only valid ones. `families` also shows an owner's
final positions in past periods, and `grants` has the rewards that owners were granted.

A handler that changes a board first changes the store, and then this process's copy of the catalog. Other processes
notice the change when they read the store. Begin with `boards`.
"""
