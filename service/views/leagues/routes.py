"""The league routes: each has a handler, a role, and the types of its query and body."""

from service.contract.api_keys import Role
from service.contract.league_messages import LeaguePostBody, LeaguePostList, PutLeague
from service.contract.queries import ListQuery, PositionedPostsQuery
from service.contract.routes import FOUND_BY_HANDLER, Route

from . import cohort_stream, cohorts, leagues

_LEAGUE = "/v1/leagues/{league}"
_TAG = "Leagues"
_POSTS = Route("POST", _LEAGUE + "/posts", leagues.post_to_league, Role.PLAYER, "post_to_league", _TAG,
    body=(LeaguePostBody, LeaguePostList), raw_body=True, ndjson=True, by_fronts=True,
    query=PositionedPostsQuery)  # fmt: skip
LEAGUES = [
    _POSTS,
    Route("GET", _LEAGUE + "/owners/{owner}", cohorts.get_owner, Role.READER, "league_owner", _TAG,
        boards=FOUND_BY_HANDLER),
    Route("GET", _LEAGUE + "/owners/{owner}/history", cohorts.get_history, Role.READER, "league_history", _TAG,
        query=ListQuery),
    Route("DELETE", _LEAGUE + "/owners/{owner}", leagues.leave_league, Role.WRITER, "leave_league", _TAG),
    Route("GET", _LEAGUE + "/cohorts/{cohort}", cohorts.get_cohort, Role.READER, "cohort", _TAG,
        query=cohorts.CohortQuery, boards=FOUND_BY_HANDLER),
    Route("GET", _LEAGUE + "/cohorts/{cohort}/stream", cohort_stream.get_cohort_stream, Role.READER,
        "stream_cohort", _TAG, boards=FOUND_BY_HANDLER),
    Route("GET", _LEAGUE + "/divisions", cohorts.get_divisions, Role.READER, "divisions", _TAG,
        boards=FOUND_BY_HANDLER),
    Route("PUT", _LEAGUE, leagues.put_league, Role.OPS, "create_league", _TAG, body=PutLeague,
        acts=("family.created", "family.changed")),
    Route("GET", _LEAGUE, leagues.get_league, Role.READER, "league", _TAG),
    Route("GET", "/v1/leagues", leagues.get_leagues, Role.READER, "leagues", _TAG, query=ListQuery),
    Route("DELETE", _LEAGUE, leagues.remove_league, Role.OPS, "delete_league", _TAG, acts=("family.deleted",)),
]  # fmt: skip
