"""The descriptions of the routes in the reference, which do not follow from the routes and their types.

The service serves a route without these words. `docs/openapi_document.py` puts them into the OpenAPI document, from
which the other pages follow. A new route needs an entry here, under the route's `view`.
"""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from service.contract.league_messages import CohortEvent, LeagueAnswer
from service.contract.lease_messages import LeaseEventLine, PoolAnswer
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.problems import JSON_TYPE
from service.contract.responses.boards import (
    Accepted,
    BoardAnswer,
    Buckets,
    CurveAnswer,
    FamilyAnswer,
    JoinAnswer,
    PostResults,
)
from service.contract.responses.journal import ExportLine, JournalLine, OwnerEvent, TopEvent
from service.contract.routes import Types
from service.contract.values import one_of
from service.telemetry.metrics.process import METRICS_TYPE
from service.views.api_keys import CreatedKey
from service.views.events import EventLine, WebhookAnswer
from service.views.posts import stream
from service.views.tokens import IssuedToken
from storage.limits.held_posts import HELD_POSTS_MAX
from storage.queue.outcomes import POSTS_LISTED_MAX


class Words(NamedTuple):
    """The words about one route."""

    summary: str
    description: str = ""
    problems: tuple[str, ...] = ()  # codes that `list_codes` of `docs/openapi_document.py` can't infer
    # What the annotation of the handler does not say: the types of an answer that is encoded already, and its statuses.
    response: Types = None
    statuses: tuple[int, ...] = ()
    media_type: str = JSON_TYPE  # the media type of the answer
    request_headers: tuple[str, ...] = ()  # headers that the handler reads, all optional


class JolokiaAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one Jolokia request: its value, or an error with a status code like those of HTTP."""

    status: int
    timestamp: int  # seconds since 1970
    request: Any = None
    value: Any = None
    error: str | None = None
    error_type: str | None = None


class ResetEvent(msgspec.Struct, forbid_unknown_fields=True):
    """The data of an event `reset`, which has no members.

    The event says that the stream can't continue after the last event that the client has seen, which is too old.
    """


EVENTS = {
    "contentMediaType": "application/json",
    "contentSchema": one_of(TopEvent, OwnerEvent, CohortEvent, ResetEvent).extra_json_schema,
}


class StreamEvent(msgspec.Struct):
    """An event of a stream."""

    event: Literal["top", "position", "cohort", "reset"]
    id: str
    data: Annotated[str, Meta(extra_json_schema=EVENTS)]


_POST_CODES = (
    "unknown_board", "unknown_column", "column_computed", "bad_value", "value_out_of_range", "at_in_future",
    "post_id_conflict", "post_voided", "owner_merged", "too_many_posts", "too_many_boards", "family_board",
    "post_limit", "token_used_up",
    "period_closed", "not_open_yet", "before_reset", "not_joined", "no_posts_left", "board_full", "queue_full",
    "rate_limited", "store_busy", "partition_away", "timeout",
)  # fmt: skip
_FORMS = 'The body is one post, a list (`[…]` or `{"posts": […]}`), or NDJSON.'
_POSITIONED = (
    " With `positions`, for at most 100 posts, each result (to a family, each of its `boards`) has the positions of the"
    " owner after the request, as a request for positions with `rank=auto` would. They are read once the posts are"
    " durable: if that fails, the answer is 503 `timeout`, and a retry with the same post ids gets them. With"
    " `moved=true`, each has `rank_before`: the rank that the value before the post has among those of the others. It"
    " is null for a first value, and a duplicate has none."
)
_QUEUED = (
    " With `mode=queued` the answer is 202 once the posts are durable in the ingest queue. Job workers apply them"
    " within seconds, exactly once, and an owner's posts in their order. If one post of a queued request can't be"
    " taken, the whole request is refused. A retry of an applied post is not refused, even if its period is closed."
)
_JOLOKIA = (
    "Protocol 7.2 of Jolokia, with read, list, search, exec and version. A request that fails has its own status in the"
    " answer, under HTTP 200. In the path, `!/` is a slash and `!!` an exclamation mark. The query takes"
    " `ignoreErrors` and `includeRequest`, and `p` instead of a path."
)

ROUTE_WORDS: dict[str, Words] = {
    "positions": Words("An owner's positions",
        problems=("unknown_column", "unknown_owner", "not_ranked"),
        description="Without `columns`, the answer has every ranked column. `rank=auto` counts near the top and where"
        " there is no curve. `next=true` adds to each position the next better place and the points that are missing"
        " to take it. `compare=previous` adds the leaderboard of the period before: the owner's position there, the"
        " position that the current value would have there (as a new arrival). It is null for all time. An owner who"
        " had an entry then and has none yet has null for the current position and value. A leaderboard that belongs to"
        " no family has no period before: 400."),
    "around": Words("The rows around an owner",
        problems=("unknown_column", "column_needed", "unknown_owner", "not_ranked", "archived"),
        description="`fill=true` takes more rows on the other side where the ranking ends."
        " The ranks agree with each other: all follow from the owner's rank by counting along the rows. An"
        " archived leaderboard has the rows of its archive; a `next` past them is answered with 410."),
    "entry": Words("An owner's entry", problems=("unknown_owner",),
        description="The entry of a hidden owner says that it is hidden, and has no `ETag`. That of a shadowed owner"
        " says so to the role `ops` alone."),
    "page": Words("A page of a ranking", problems=("bad_rank", "archived", "unknown_tier"),
        description="With `tier`, the pages have only the rows of this tier, with their ranks in the whole ranking and"
        " each `tier_rank`, the rank among them."
        " An archived leaderboard has the top that its archive holds; what follows is answered with 410."
        " `order=owner` lists all of its owners, in the order of their names, with the ranks of the record."
        " A page without profiles has an `ETag`, and `If-None-Match` is answered without reading rows."),
    "top": Words("The top of a leaderboard",
        problems=("bad_rank", "archived", "unknown_column", "column_needed", "unknown_tier"),
        description="A page of the ranking, with the parameters and the answer of that request. `column` may be left"
        " out if the leaderboard has one ranked column."),
    "value_positions": Words("Positions of values", problems=("bad_value", "value_out_of_range"),
        description="A value that nobody has gets the rank of a new arrival with it. `with` names more leaderboards"
        " whose entries are counted too, such as the shards of one game. The bracket allows for posts meanwhile. To"
        " name leaderboards whose ids have commas, repeat the parameter with one leaderboard each time."),
    "value_around": Words("The rows around a value",
        problems=("bad_value", "value_out_of_range", "archived"),
        description="`fill=true` takes more rows on the other side where the ranking ends. An archived leaderboard has"
        " the rows of its archive, as around an owner."),
    "values": Words("Values for ranks and percentiles", problems=("bad_rank",),
        description="Each value is the worst that still has the rank or a better one. Past the last rank it is the"
        " worst value of all."),
    "curve": Words("The curve that ranks are read off", problems=("no_curve",), statuses=(200, 304),
        response=CurveAnswer,
        description="The answer is enough to rank offline with the same results as the service. docs/curve.md"
        " is an example."),
    "buckets": Words("The distribution of values", response=Buckets,
        description="The buckets are of equal width. Each includes its `from` and not its `to`; the last includes"
        " both. With `rank=estimate` they are read off the curve, if there is one, and nothing is counted."),
    "lookup": Words("Entries of many owners", problems=("unknown_column", "too_many_owners"),
        description="With a column, each entry has its position on the leaderboard and its place among the owners"
        " asked for."),
    "positions_on_boards": Words("One owner on many leaderboards",
        problems=("unknown_board", "unknown_column", "column_needed", "too_many_boards")),
    "post": Words("Post stats to a leaderboard", problems=_POST_CODES, statuses=(200, 202),
        response=(PostResults, Accepted),
        description=_FORMS + " The answer comes once everything in it is durable. `set` needs the role ops."
        + _QUEUED + _POSITIONED),
    "post_to_boards": Words("Post stats to several leaderboards at once", problems=_POST_CODES,
        statuses=(200, 202), response=(PostResults, Accepted),
        description=_FORMS + " Each post names its leaderboards and is applied to all of them or to none." + _QUEUED),
    "post_to_family": Words("Post stats to a family",
        problems=(*_POST_CODES, "unknown_facet", "post_rejected", "catalog_full", "own_tables_full"),
        statuses=(200, 202), response=(PostResults, Accepted),
        description=_FORMS + " A post reaches the leaderboards of its time (`at`) in every period, for every list of"
        " facets that it has values for. It is applied to all of them or to none,"
        " except that a leaderboard whose period is closed, or whose entry rules refuse it, does not take it: it is"
        " `rejected` in the result's `boards`. Its id is remembered once for all of them: sent again, the post"
        " is a duplicate, even after the end of a period." + _QUEUED + _POSITIONED),
    "create_league": Words("Create, confirm or change a league",
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "catalog_full"),
        statuses=(200, 201), response=LeagueAnswer,
        description="A league is a family with one kind of period, whose owners compete in small groups. All that reads"
        " a family or its leaderboards works on it, too. The rules of divisions, `cohort`, `absent` and `keep` can be"
        " changed at any time, and better divisions can be appended."),
    "league": Words("A league's specification"),
    "leagues": Words("Leagues by id"),
    "delete_league": Words("Delete a league with all its leaderboards"),
    "post_to_league": Words("Post to a league",
        problems=(*_POST_CODES, "unknown_facet", "post_rejected", "catalog_full", "bad_value"), statuses=(200, 202),
        response=(PostResults, Accepted),
        description=_FORMS + " The first post of a period takes a seat in a cohort of the owner's division. An owner"
        " whose result of the period before is not in yet gets the seat as soon as it is." + _QUEUED + _POSITIONED),
    "league_owner": Words("An owner's cohort", problems=("unknown_owner", "unknown_board"),
        description="All owners of the cohort, with exact ranks, zones and profiles."),
    "league_history": Words("An owner's results in a league",
        description="The closed periods in which the owner had a seat, as far back as the league keeps them."),
    "leave_league": Words("Let an owner leave a league", problems=("unknown_owner",),
        description="Erases the owner's entries in periods without a result, its seats there, and its division. Its"
        " earlier results stay. With its next post, it is a newcomer."),
    "cohort": Words("A cohort", problems=("unknown_board",),
        description="Zones are those of the present state; once `settled`, the history of an owner has its result."),
    "stream_cohort": Words("A cohort as it changes", problems=("unknown_board",), response=StreamEvent,
        media_type=stream.SSE_TYPE, request_headers=(stream.LAST_EVENT_ID,),
        description="Server-sent events, as of the stream of a leaderboard. `cohort` holds the whole cohort of the"
        " current period, without profiles. A cohort without a seat is refused. The stream stays with its period:"
        " follow the next cohort of an owner once `ends_at` has passed."),
    "divisions": Words("The divisions of a league", problems=("unknown_board",),
        description="How many owners have seats in the current period."),
    "reset_family": Words("Empty the current leaderboards of a kind of period",
        problems=("unknown_board",),
        description="With `week`, this empties the leaderboards of this week, for everybody and for every facet value."
        " Later posts whose `at` is before this moment are rejected there, `before_reset`; other periods take them. The"
        " remembered post ids stay."),
    "void_family_post": Words("Take back a post to a family",
        problems=("unknown_post", "unknown_owner", "journal_pruned", "archived"),
        description="The owner's entry on every leaderboard that the post reached is computed again from the journal"
        " without this post. Closed leaderboards are included as long as they have their rows. A leaderboard that"
        " cannot be computed again has an `error`, and keeps the post; if that holds for all of them, the request is"
        " refused. The id stays taken: the same post again is rejected, `post_voided`."),
    "family_board": Words("The leaderboard of a time and of facet values",
        problems=("unknown_board",),
        description="Without `at`, it is the leaderboard of the current time. A leaderboard that nothing was posted"
        " to is empty."),
    "facet_values": Words("The values of a facet", problems=("unknown_board",),
        description="Further parameters that are facets limit the answer to values within them."),
    "history": Words("An owner's final positions by period",
        problems=("unknown_board", "unknown_column", "column_needed"),
        description="The closed periods of one kind, newest first. Further parameters are facet values. Every period"
        " since the family was made is listed; `position` is null where the owner had no value in the column."),
    "create_family": Words("Create, confirm or change a family",
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "unsupported", "catalog_full"),
        statuses=(200, 201), response=FamilyAnswer,
        description="Columns can be added, tiers, `predictor` and `keep` can be changed, and `grace_seconds` can be"
        " shortened. Any other change is a conflict. New tiers hold for all leaderboards of the family, closed ones"
        " too."),
    "family": Words("A family's specification"),
    "families": Words("Families by id"),
    "delete_family": Words("Delete a family with all its leaderboards"),
    "post_state": Words("The outcome of a post", problems=("unknown_post",),
        description="Only a post with an id can be looked up, as long as the id is remembered. An id belongs to an"
        " owner: with `owner`, the answer is about that owner's post. Without it, the answer lists the posts of all"
        f" owners with the id, at most {POSTS_LISTED_MAX}. `pending` means that a post waits in the queue."),
    "void_post": Words("Take back a post",
        problems=("unknown_post", "unknown_owner", "family_board", "journal_pruned", "archived"),
        description="The owner's entry is computed again from the journal without this post, even if the leaderboard"
        " is closed. The id stays taken: the same post again is rejected, `post_voided`. It is refused if the journal"
        " no longer has the post that made the entry. A post to several leaderboards has its id on each of them, and"
        " is taken back on each by a request of its own."),
    "held_posts": Words("The held posts of a leaderboard, the oldest first",
        description="A post is held if it asks for it, or if it is beyond a limit of a column with"
        ' `"on_breach": "hold"`. Of each leaderboard, or segment of one, at most'
        f" {HELD_POSTS_MAX:,} are held; then posts beyond a limit are rejected."),
    "judge_post": Words("Accept or refuse a held post",
        problems=("unknown_board", "unknown_post", "verdict_conflict", "period_closed", "owner_merged"),
        description="`accept` applies the post with the time that it had, whatever the limits are; a leaderboard that"
        " has closed since refuses it, and it stays held. `refuse` voids its id. If the post is held on several"
        " leaderboards of a family, the verdict is about all of them. The same verdict again changes nothing."),
    "queue": Words("The posts that wait in the ingest queue, and its workers"),
    "boards": Words("Leaderboards by id, or by activity", problems=("too_many_boards",),
        description="With `order=activity`, those that were changed last come first. Archived ones are left out. This"
        " order takes at most 5,000 leaderboards; `families=false` leaves out those of families."),
    "create_board": Words("Create or confirm a leaderboard",
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "unsupported", "catalog_full",
        "own_tables_full", "family_board"), statuses=(200, 201), response=BoardAnswer,
        description="New columns, other tiers, entry rules and another predictor are accepted, and times under which"
        " every earlier post would have been taken or refused as it was. Any other change is answered with 409. A"
        " SQLite store holds at most `own_tables_max` leaderboards with tables of their own; more leaderboards may"
        ' share tables (`"table": "shared"`).'),
    "board": Words("A leaderboard's specification and the state of its curves"),
    "delete_board": Words("Delete a leaderboard", problems=("family_board",)),
    "reset_board": Words("Empty a leaderboard and keep its specification",
        problems=("family_board", "period_closed"),
        description="The remembered post ids are forgotten too. Later posts whose `at` is before this moment are"
        " rejected, `before_reset`; posts without `at` are never late. A closed leaderboard can't be emptied: its rows"
        " are final."),
    "grants": Words("The grants of a leaderboard: who got which reward", problems=("bad_cursor",),
        description="Grants are made when the leaderboard has closed, and outlive its archive. `rank` is the rank of"
        " the owner then, among all visible owners with a value in the column. Later changes of entries, such as a post"
        " that is taken back, change no grant. An erased owner's grants are deleted, and a merged owner's go to the"
        " other owner. Grants are kept for `grant_retention_s`."),
    "preview_rewards": Words("Who would get which reward now", problems=("bad_cursor", "archived"),
        description="This makes no grant. A leaderboard without rewards has an empty page."),
    "owner_grants": Words("An owner's grants", problems=("bad_cursor",),
        description="Those of deleted leaderboards are listed, too."),
    "claim_grant": Words("Claim a grant", problems=("unknown_grant",),
        description="`first` is true in one answer only, however many requests there are at the same time. If that"
        " answer gets lost, nobody sees it, so let `id` be the key of what you pay out."),
    "erase_entries": Words("Erase many entries",
        problems=("unknown_column", "column_needed", "bad_value", "value_out_of_range", "bad_rank", "too_many_owners",
        "archived"),
        description="`owners` erases the entries of these owners, hidden ones included, and ignores owners without one."
        " `from_rank` erases that row of the ranking of `column` and all worse ones, and `worse_than` all entries worse"
        " than a value; hidden owners and owners without a value stay. One request erases at most 10,000 entries, in"
        " many transactions. If `more` is true, send it again; also if it fails with 503. Each entry is erased as by"
        " the request for one entry: its queued posts are dropped, and the name leaves the journal."),
    "join": Words("Join a leaderboard",
        problems=("no_entry_rules", "board_full", "not_open", "period_closed", "owner_merged", "catalog_full",
        "own_tables_full"), statuses=(200, 201), response=JoinAnswer,
        description="The leaderboard has entry rules. 201 if the owner is new; 200 with the same answer if the owner"
        " takes part already. With `owners_max`, exactly that many owners get in, whoever asks at the same time. In a"
        " family each leaderboard is joined for itself; one that nobody has posted to or joined is made, if its period"
        " is the present one."),
    "erase_entry": Words("Erase an owner's entry", problems=("unknown_owner",)),
    "erase_owner": Words("Erase an owner on every leaderboard",
        description="This erases entries, grants and profile, and the name, stats and post ids in the journal. A retry"
        " of an erased post stays a duplicate."),
    "hide_owner": Words("Hide an owner on every leaderboard",
        description="Posts still merge. Once this is answered, rankings, totals and streams no longer have the owner."
        " With `shadow`, the owner is hidden from everybody else: what is asked about the owner itself (entry,"
        " positions, the rows around it, lookups, its boards and streams, the positions in results of its posts) is"
        " answered as if it were ranked. A request may turn one into the other."),
    "show_owner": Words("Show a hidden or shadowed owner again"),
    "export_owner": Words("Export all that is stored of one person",
        response=ExportLine, media_type=NDJSON_TYPE,
        description="The answer is NDJSON, of the owner and all earlier ids: entries, hidden ones included, those in"
        " archives, posts in the journal and in the queue, profile, grants, joins, acts, merged ids, voided tokens, and"
        " since when the owner is hidden or shadowed. It ends with a line of the kind `end`; without it, something is"
        " missing, so ask again. Erasing the owner removes the same."),
    "hidden_owners": Words("The hidden owners, by name",
        description="Each has the time, key and reason of the act, and whether it is shadowed."),
    "acts": Words("What operators have done, the newest first", problems=("bad_cursor",),
        description="An act is kept with the transaction of its effect, for `acts_retention_s`. A request that changes"
        " nothing is not listed again. When an owner is erased, the name goes from the acts."),
    "merge_owner": Words("Merge an owner into another one: two accounts become one",
        problems=("bad_value", "merge_conflict", "journal_pruned", "archived", "value_out_of_range"),
        description="On each leaderboard, `into` gets the entry of both: what the posts of both make in the order of"
        " the journal, or the stored values, as `from` says. If `into` has no entry, it gets the owner's as it is. Each"
        " leaderboard is merged in a transaction of its own. If the request is interrupted, the same request finishes"
        " it. A leaderboard that can't be merged has an `error` and keeps the earlier id: an archived one, one"
        " whose journal no longer reaches back (merge it with `entries`), and one on which a value would leave its"
        " range. If no leaderboard could be merged because of the journal, the answer is 409 `journal_pruned`; the"
        " owner is merged all the same. Posts to the earlier id are rejected, `owner_merged`, also those that wait in"
        " the queue; a retry of an applied one stays a duplicate. Reads of the earlier id answer 404 `owner_merged`"
        " with `into`. `into` keeps its profile, or gets the owner's. If one of them is hidden, `into` is hidden; if"
        " one is shadowed and none hidden, `into` is shadowed. A merge can't be undone; erasing `into` erases the"
        " earlier ids, too. It needs all partitions."),
    "put_profile": Words("Store an owner's profile",
        description="This replaces an earlier profile. `profiles=true` adds profiles to the rows of a read."),
    "profile": Words("An owner's profile", problems=("no_profile",)),
    "remove_profile": Words("Remove an owner's profile", problems=("no_profile",)),
    "owner_boards": Words("The leaderboards on which an owner has an entry",
        description="Archived leaderboards and entries of hidden owners are left out. A request looks at 100"
        " leaderboards, so a page may have few or none of the owner's and still a `next`."),
    "owner_posts": Words("An owner's posts, the newest first", problems=("bad_cursor",),
        description="The list reaches as far back as the journal is kept."),
    "stream": Words("The top of a ranking, or an owner's position, as it changes",
        problems=("unknown_column", "column_needed", "unknown_owner", "not_ranked"), response=StreamEvent,
        media_type=stream.SSE_TYPE, request_headers=(stream.LAST_EVENT_ID,),
        description="The answer is server-sent events. `top` (without `owner`) and `position` each hold the whole"
        " state, so events in between may be left out. `id` is a place in the journal. With"
        " `Last-Event-ID`, the stream sends at once what the client has missed, and nothing that it has seen. If that"
        " id is too old to tell, `reset` comes first. The stream of an owner without a position begins with the first"
        " one; that of a hidden owner is refused, and so is that of a missing owner of an archive. A stream ends when"
        " its leaderboard is deleted or emptied, and when the first post reaches a leaderboard of a family."),
    "journal": Words("The durable log of accepted posts", problems=("bad_cursor", "journal_pruned"),
        response=JournalLine, media_type=NDJSON_TYPE,
        description="Lines come by sequence number. Numbers grow and may have gaps. Once a number was shown, no"
        " smaller one appears later. `after` is the last `seq` seen. An answer without a line means that nothing"
        " newer is there yet. If the store has several partitions, `seq` is an opaque cursor that covers all of them."
        " The lines of a leaderboard come in their order; those of several leaderboards by the time of logging. If some"
        " partitions do not answer, the lines of the others come, and the header `Partitions-Away` has their numbers."
        " Their lines come later, because the cursor keeps its place in them."),
    "refresh_curve": Words("Refresh a curve now", problems=("no_job_process", "timeout", "archived"),
        description="A job process does the work. The answer comes when the new curve is in use."),
    "audit_curve": Words("Count random owners and compare the counts with the curve",
        problems=("no_curve", "archived"),
        description="Ranks are compared as of the curve's time: later posts are subtracted from the counts."),
    "create_key": Words("Create an API key", problems=("catalog_full", "ops_key_needed"), statuses=(201,),
        response=CreatedKey,
        description="Its text is in this answer only. Every process knows it within 5 s, this one at once. The first"
        " key needs the role ops, and from then on every caller needs a key."),
    "issue_token": Words("Issue a player token", problems=("unsupported", "bad_value"), statuses=(201,),
        response=IssuedToken,
        description="With the token, the program of a player may read, and for this owner alone post, join, and claim"
        " grants. A post by token has a number `n` and no `post_id`: each number is applied once to each leaderboard"
        " or family. The token is a JWT, and needs the setting `player_token_keys`. A login service whose public keys"
        " are in `player_token_jwks` may sign tokens, too."),
    "void_tokens": Words("Void an owner's player tokens", problems=("unsupported", "catalog_full"),
        description="Every process refuses all tokens that were issued for the owner until now within 5 s, this one at"
        " once, and ends their streams."),
    "keys": Words("API keys by time of creation, revoked ones included"),
    "revoke_key": Words("Revoke an API key", problems=("unknown_key", "ops_key_needed"),
        description="Every process refuses it within 5 s, this one at once, and ends its streams. A revoked key stays"
        " listed. The last one with the role ops can't be revoked."),
    "ask_lease": Words("Get the resource of a key, or a new one",
        problems=("unknown_pool", "unknown_region", "no_resource_available", "bad_value", "queue_full", "timeout"),
        description="A key that already has a resource keeps it, whatever its region, until the later of both times."
        " Otherwise it gets the resource of the region that has been free for longest. A key gets a lease that is over"
        " back, unless the resource was given to another key. The request is safe to repeat: the key has the same"
        " resource."),
    "lease": Words("The lease of a key", problems=("unknown_pool", "unknown_lease"),
        description="This only reads: nothing is extended."),
    "give_back_lease": Words("Give a lease back early",
        problems=("unknown_pool", "unknown_lease", "queue_full", "timeout")),
    "lease_journal": Words("The journal of leases: what happened to resources",
        response=LeaseEventLine, media_type=NDJSON_TYPE,
        description="The answer is NDJSON in the order of `seq`. Numbers grow and may have gaps; once a number was"
        " shown, no smaller one appears later. `kind` is added, removed, acquired, extended, released, liberated or"
        " moved. Where keys lease in several stores, it is also duplicate, or, for a lease in another store, wanted"
        " or returned; that store reads these lines."),
    "events": Words("What happened to leaderboards", problems=("journal_pruned",),
        response=EventLine, media_type=NDJSON_TYPE,
        description="The answer is NDJSON in the order of `seq`. Ask again with the last `seq` as `after`."
        " An event is there within a second, and stays for `change_log_retention_s`."),
    "webhooks": Words("All webhooks by id"),
    "put_webhook": Words("Create or change a webhook, which receives events", problems=("bad_value", "catalog_full"),
        statuses=(200, 201), response=WebhookAnswer,
        description="Deliveries follow Standard Webhooks: a POST with `webhook-id`,"
        " `webhook-timestamp` and `webhook-signature`, in order and at least once. A new webhook gets the events from"
        " now on; its `secret` is shown only in this answer. A receiver that does not answer 2xx within 10 s gets"
        " the event again after 5 s, later after an hour at most; after three days the webhook is paused."
        " The URL has to be `https` to a public address, unless `webhook_hosts` names its host."),
    "webhook": Words("A webhook and its deliveries", problems=("unknown_webhook",)),
    "delete_webhook": Words("Delete a webhook", problems=("unknown_webhook",)),
    "rotate_webhook": Words("Make a new secret for a webhook", problems=("unknown_webhook",), response=WebhookAnswer,
        statuses=(200,),
        description="For a day, deliveries have two signatures: by the new secret and by the one before it."),
    "resume_webhook": Words("Go on with the deliveries to a webhook", problems=("unknown_webhook",)),
    "test_webhook": Words("Send a test event to a webhook", problems=("unknown_webhook",), response=WebhookAnswer,
        statuses=(202,),
        description="A job sends an event of the type `webhook.test`; the webhook then shows if that failed."),
    "pools": Words("Pools by client and id"),
    "put_pool": Words("Create or confirm a pool", problems=("catalog_full",), statuses=(200, 201),
        response=PoolAnswer),
    "pool": Words("A pool and its regions", problems=("unknown_pool",)),
    "delete_pool": Words("Delete a pool with every lease in it", problems=("unknown_pool",)),
    "add_resources": Words("Put resources into a region",
        problems=("unknown_pool", "too_many_resources")),
    "resources": Words("The resources of a pool", problems=("unknown_pool",)),
    "remove_resources": Words("Take resources out of a pool",
        problems=("unknown_pool", "too_many_resources")),
    "healthz": Words("Check that the process is up"),
    "readyz": Words("Check that the store is reachable", problems=("store_busy", "store_damaged")),
    "metrics": Words("Metrics in the text format of Prometheus", media_type=METRICS_TYPE),
    "openapi": Words("The OpenAPI 3.1 document"),
    "dashboard": Words("The dashboard, a page for people", statuses=(200, 304), media_type="text/html",
        description="The page shows boards, ranks, curves and the health of the node, by the requests of this"
        " document. It asks for a key if one is needed. The setting `dashboard` turns it off."),
    "dashboard_file": Words("A file of the dashboard or of the API page", problems=("not_found",),
        statuses=(200, 304), media_type="text/javascript"),
    "api_page": Words("The API, a page for people", statuses=(200, 304), media_type="text/html",
        description="The page shows the OpenAPI document and no data, so it needs no key. The setting `dashboard`"
        " turns it off."),
    **{
        view: Words(summary, _JOLOKIA, response=JolokiaAnswer)
        for view, summary in (
            ("jolokia", "Show the version of the Jolokia agent, or answer `p`"),
            ("jolokia_post", "Read and operate managed objects, one request or a list"),
            ("jolokia_get", "Read and operate managed objects"),
            ("jolokia_post_to", "Read and operate managed objects, as without an operation in the path"),
        )
    },
}  # fmt: skip
