"""Handlers of leaderboards and families: create, change, show, list, empty and delete them.

`specs` checks a specification when it arrives, so the store has only valid specifications. `families` also
shows an owner's final positions in past periods.

A handler that changes a board first changes the store, and then this process's copy of the catalog. Other processes
notice the change when they read the store. Begin with `boards`.
"""
