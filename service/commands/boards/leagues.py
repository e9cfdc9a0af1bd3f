"""`rankcurve league …`: shows leagues, cohorts and results, and lets owners leave. `rankcurve apply` makes leagues."""

import typer
from rankcurve.answers import Record

from service.commands.boards.owners import OWNER
from service.commands.request_commands import add_list, add_request, argument, option
from service.commands.tables import say, show_records

LEAGUE_PATH = "/v1/leagues/{league}"
LEAGUE = argument("league", "LEAGUE", "Id of the league.")
COHORT = argument("cohort", "COHORT", "Name of the cohort, such as silver-12.")
ENTRIES = {"rank": "rank", "owner": "owner", "value": "value", "zone": "zone"}

league_app = typer.Typer(rich_markup_mode="markdown", no_args_is_help=True, help="Leagues and their cohorts.")


def show_cohort(found: Record) -> None:
    if found["cohort"] is None:
        waits = found["waiting"]
        say("waits for the result of the last period" if waits else f"division {found['division']}, no seat yet")
        return
    say(f"{found['cohort']}, until {found['ends_at']}")
    show_records(found["entries"], ENTRIES, as_json=False, numeric=("rank", "value"))


# fmt: off
add_list(
    league_app, "list", "/v1/leagues", "List leagues.",
    {"league": "id", "column": "column", "cohort": "cohort", "divisions": lambda each: len(each["divisions"])},
    numeric=("cohort", "divisions"),
)
add_request(league_app, "show", f"GET {LEAGUE_PATH}", "Show a league's spec as JSON.", LEAGUE)
add_request(
    league_app, "owner", f"GET {LEAGUE_PATH}/owners/{{owner}}", "Show an owner's cohort in the current period.",
    LEAGUE, OWNER, show=show_cohort,
)
add_request(
    league_app, "cohort", f"GET {LEAGUE_PATH}/cohorts/{{cohort}}", "Show a cohort.",
    LEAGUE, COHORT, option("period", str, "A period, such as 2027-W02. Default: the current one."), show=show_cohort,
)
add_list(
    league_app, "history", f"{LEAGUE_PATH}/owners/{{owner}}/history", "List an owner's results in closed periods.",
    {"period": "period", "cohort": "cohort", "rank": "rank", "outcome": "outcome"}, LEAGUE, OWNER, numeric=("rank",),
)
add_request(
    league_app, "divisions", f"GET {LEAGUE_PATH}/divisions", "Show how many owners have seats in each division.",
    LEAGUE, show=lambda found: show_records(
        found["divisions"], {"division": "name", "owners": "owners", "cohorts": "cohorts"}, as_json=False,
        numeric=("owners", "cohorts"),
    ),
)
add_request(
    league_app, "leave", f"DELETE {LEAGUE_PATH}/owners/{{owner}}",
    "Let an owner leave a league. Its seat, its entry of this period and its division are gone; the command asks first "
    "unless --yes is given.",
    LEAGUE, OWNER, confirm="Let {owner} leave {league}?",
)
add_request(
    league_app, "delete", f"DELETE {LEAGUE_PATH}",
    "Delete a league with all its boards. This can't be undone; the command asks first unless --yes is given.",
    LEAGUE, confirm="Delete {league} with all its boards?",
)
# fmt: on
