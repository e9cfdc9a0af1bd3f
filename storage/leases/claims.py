"""The mechanism of every lease: a row with a version. Conditional writes claim it for a holder and renew the claim.

    free ── claim: version + 1 ──> held ── renewed: later expiry ──> held …
      ^                              |
      └──────────────────────────────┘ given back, or expired longer ago than the margin (for a clock that jumps)

A row says who holds the lease and until when. Each write checks the row's version or expiry. If another
process has changed the row first, nothing is written. So, by the store's clock, a row never has two holders at a time.
The later holder has the greater version, and the resource that the lease protects refuses smaller versions. The clocks
of holders are never used. `work_leases` and `lease_resources` contain these writes for their tables.

The store's time is read before the write that uses it. So a new lease ends slightly early for its holder, and an
expired lease becomes free slightly late for the next holder.
"""

from collections.abc import Callable

from querybuilder import clock_us, select
from storage.store import Program

GIVEN_BACK = 0  # the `expires_at` of a row that nobody holds
_CLOCK = select(clock_us()).prepared()

StoreClock = Callable[[], Program[int]]  # a program that returns microseconds since 1970


def store_clock() -> Program[int]:
    """Return the time by the clock of the database, which all processes of a store share."""
    rows = yield _CLOCK.bind()
    return int(rows[0][0])
