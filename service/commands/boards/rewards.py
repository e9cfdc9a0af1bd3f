"""`rankcurve rewards …`: preview rewards, list the grants that were made, and claim them."""

import typer

from service.commands.boards.boards import BOARD, BOARD_PATH
from service.commands.boards.owners import OWNER, OWNER_PATH
from service.commands.request_commands import add_list, add_request, argument, option

GRANTED = {"id": "id", "owner": "owner", "board": "board", "reward": "reward", "rank": "rank", "claimed": "claimed_at"}

rewards_app = typer.Typer(rich_markup_mode="markdown", no_args_is_help=True, help="Rewards, grants and claims.")

# fmt: off
add_list(
    rewards_app, "preview", f"{BOARD_PATH}/rewards/preview",
    "Show who would get which reward if the leaderboard closed now. It changes nothing.",
    {"owner": "owner", "reward": "reward", "rank": "rank"}, BOARD, numeric=("rank",), field="grants",
)
add_list(
    rewards_app, "list", f"{BOARD_PATH}/grants", "List who got which reward of a closed leaderboard.",
    GRANTED, BOARD, numeric=("rank",),
)
add_list(
    rewards_app, "owner", f"{OWNER_PATH}/grants", "List the rewards that an owner has got.", GRANTED, OWNER,
    option("state", str, "open or claimed. Default: all."), numeric=("rank",),
)
add_request(
    rewards_app, "claim", "POST /v1/grants/{grant}/claim",
    "Claim a grant (role `writer`), and print it. Running it again is harmless.",
    argument("grant", "ID", "Id of the grant."),
)
# fmt: on
