"""Fill the node that the tests of the dashboard show: a season, two pages of boards, and owners with hostile names.

The data arrives in requests, as users send them. A test that writes uses a board of its own, whose id begins with
`zz-`. This id sorts after the ids of the boards of this module.
"""

from tests.service.real_service import Caller, Process, escaped

SEASON = "season-2026"
OWNERS = 900
TINY_BOARDS = 60
FAMILY = "arena"  # boards for all time and by week, for everybody and by clan
XP = {"name": "xp", "merge": "max"}
LAP = {"name": "lap", "best": "low", "scale": 3, "min": 0}
CLAN = {"name": "clan", "sorted": False, "type": "text"}
HOSTILE = (
    '<img src=x onerror="alert(1)">', "</script><script>alert(2)</script>", "javascript:alert(3)",
    "\u05e9\u05dc\u05d5\u05dd \u0627\u0644\u0633\u0644\u0627\u0645 abc", "a/b?c#d&e=%41%", "..", "' OR 1=1 --",
    "W" * 128, "\U0001f469\u200d\U0001f680 \u00e9 \ufb03",
)  # fmt: skip


def name_of(number: int) -> str:
    return f"player-{number:04d}"


def xp_of(number: int) -> int:
    """Return the xp of the season's owner with this number. A lower number means more xp, and no two owners tie."""
    return 1_000 + (OWNERS - number) ** 2


async def fill(url: str) -> None:
    """Make the season with its curves and profiles, a family, two pages of boards, and the board with hostile names."""
    async with Caller(url) as caller:
        await caller.board(SEASON, XP, LAP, CLAN, predictor={"samples": 8, "exact_top": 50})
        stats = [{"xp": xp_of(number), "clan": f"clan {number % 7}"} for number in range(OWNERS)]
        laps = [{"lap": f"{60 + number / 8:.3f}"} if number % 10 else {} for number in range(OWNERS)]
        posts = [{"owner": name_of(n), "stats": stats[n] | laps[n]} for n in range(OWNERS)]
        await caller.post(SEASON, *posts)
        await caller.refresh(SEASON, "xp", "lap")
        for number, name in enumerate(("Ada Lovelace", "Grace Hopper", HOSTILE[0])):
            await caller.must("PUT", f"/v1/owners/{name_of(number)}/profile", {"name": name})
        for number in range(TINY_BOARDS):
            await caller.board(f"tiny-{number:02d}", XP, table="shared")
        await caller.board("hostile", XP, CLAN)
        mean = [{"owner": owner, "stats": {"xp": 100 - n, "clan": owner[:40]}} for n, owner in enumerate(HOSTILE)]
        await caller.post("hostile", *mean)
        await caller.must("PUT", f"/v1/owners/{escaped(HOSTILE[1])}/profile", {"name": HOSTILE[0]})
        common = {"columns": [{**XP, "sorted": True}], "periods": ["all", "week"], "facets": [[], ["clan"]]}
        await caller.must("PUT", f"/v1/families/{FAMILY}", common)
        for number, clan in enumerate(("fox", "owl", "fox")):
            posted = {"owner": name_of(number), "stats": {"xp": 100 - number}, "facets": {"clan": clan}}
            await caller.must("POST", f"/v1/families/{FAMILY}/posts", posted)
        divisions = [{"name": "bronze", "promote": 1}, {"name": "gold", "relegate": 1}]
        league = {"columns": [XP], "column": "xp", "period": "year", "cohort": 3, "divisions": divisions}
        await caller.must("PUT", "/v1/leagues/climb", league)
        played = [{"owner": f"climber-{number}", "stats": {"xp": 9 - number}} for number in range(5)]
        await caller.must("POST", "/v1/leagues/climb/posts", {"posts": played})
        await caller.must("PUT", "/v1/pools/game/servers", {})
        resources = {"region": "eu", "resources": [f"server-{number}" for number in range(12)]}
        await caller.must("POST", "/v1/pools/game/servers/resources", resources)


async def new_board(url: str, board: str, **xp: int) -> None:
    async with Caller(url) as caller:
        await caller.board(board, XP, CLAN)
    if xp:
        await post(url, board, **xp)


async def post(url: str, board: str, **xp: int) -> None:
    async with Caller(url) as caller:
        await caller.post_xp(board, **xp)


def view_url(node: Process, route: str) -> str:
    return f"{node.url}/#{route}"
