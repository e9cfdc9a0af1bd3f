"""Describes each route beyond its types: a summary, a description and further problem codes.

The service itself never reads these words. `docs/openapi_document.py` puts them into the OpenAPI document, and every
other reference page is made from that, so a new route needs an entry here, under the route's `view`.
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
    " durable. If that read fails, the answer is 503 `timeout`, and a retry with the same post ids returns them. With"
    " `moved=true`, each has `rank_before`: the rank of the previous value among everybody else's. It is null for a"
    " first value, and absent for a duplicate."
)
_QUEUED = (
    " With `mode=queued` the answer is 202 once the posts are durable in the ingest queue. Job workers apply them"
    " within seconds, exactly once, and keep the order of each owner's posts. If one post of a queued request can't be"
    " accepted, the whole request is refused. A retry of an applied post succeeds even after its period has closed."
)
_JOLOKIA = (
    "Jolokia protocol 7.2 with read, list, search, exec and version. The HTTP status is 200 even for a request that"
    " fails, whose own status is in the answer. In the path, `!/` is a slash and `!!` an exclamation mark. The query"
    " accepts `ignoreErrors` and `includeRequest`, and `p` instead of a path."
)

ROUTE_WORDS: dict[str, Words] = {
    "positions": Words("An owner's positions",
        problems=("unknown_column", "unknown_owner", "not_ranked"),
        description="Without `columns`, the answer has every ranked column. `rank=auto` counts near the top and where"
        " there is no curve. `next=true` adds to each position the next better place and the points still needed to"
        " reach it. `compare=previous` adds the leaderboard of the previous period: the owner's position there, and the"
        " position that the current value would have had there as a new arrival. It is null for all time. If the owner"
        " had an entry then but has none yet, the current position and value are null. Outside a family there is no"
        " previous period, and the answer is 400."),
    "around": Words("The rows around an owner",
        problems=("unknown_column", "column_needed", "unknown_owner", "not_ranked", "archived"),
        description="Where the ranking ends, `fill=true` takes more rows from the other side."
        " The ranks always agree with each other, because they are counted row by row from the owner's rank. An"
        " archived leaderboard has the rows of its archive; a `next` past them is answered with 410."),
    "entry": Words("An owner's entry", problems=("unknown_owner",),
        description="The entry of a hidden owner says that it is hidden, and has no `ETag`. Only the role `ops` sees"
        " that an owner is shadowed."),
    "page": Words("A page of a ranking", problems=("bad_rank", "archived", "unknown_tier"),
        description="With `tier`, the pages have only the rows of this tier, with their ranks in the whole ranking and"
        " a `tier_rank` within the tier."
        " An archived leaderboard has the top that its archive kept; pages past it are answered with 410."
        " `order=owner` lists all of its owners by name, with the ranks of the record."
        " A page without profiles has an `ETag`, and `If-None-Match` is answered without reading rows."),
    "top": Words("The top of a leaderboard",
        problems=("bad_rank", "archived", "unknown_column", "column_needed", "unknown_tier"),
        description="The same as a page of the ranking, except that `column` may be left out if the leaderboard has one"
        " ranked column."),
    "value_positions": Words("Positions of values", problems=("bad_value", "value_out_of_range"),
        description="A value that nobody has gets the rank that a new arrival with it would get. `with` names more"
        " leaderboards to count, such as the shards of one game. The bracket allows for posts that arrive during the"
        " request. To name leaderboards whose ids contain commas, repeat the parameter with one of them each time."),
    "value_around": Words("The rows around a value",
        problems=("bad_value", "value_out_of_range", "archived"),
        description="Where the ranking ends, `fill=true` takes more rows from the other side. An archived leaderboard"
        " has the rows of its archive, as around an owner."),
    "values": Words("Values for ranks and percentiles", problems=("bad_rank",),
        description="Each value is the worst that still has the rank or a better one. Past the last rank it is the"
        " worst value of all."),
    "curve": Words("A column's curve", problems=("no_curve",), statuses=(200, 304),
        response=CurveAnswer,
        description="Ranks are estimated from the curve. The answer is enough to rank offline with the same results as"
        " the service; docs/curve.md has an example."),
    "buckets": Words("The distribution of values", response=Buckets,
        description="The buckets have equal widths. Each includes its `from` and excludes its `to`; the last includes"
        " both. With `rank=estimate` they come from the curve, if there is one, and nothing is counted."),
    "lookup": Words("Entries of many owners", problems=("unknown_column", "too_many_owners"),
        description="With a column, each entry has its position on the leaderboard and its place among the requested"
        " owners."),
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
        " facets that it has values for. It is applied to all of them or to none, with one exception: a leaderboard"
        " whose period is closed, or whose entry rules refuse the post, is skipped and is `rejected` in the result's"
        " `boards`. The id is remembered once for all of them, so sending the post again is a duplicate even after a"
        " period has ended." + _QUEUED + _POSITIONED),
    "create_league": Words("Create, confirm or change a league",
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "catalog_full"),
        statuses=(200, 201), response=LeagueAnswer,
        description="A league is a family with one kind of period, whose owners compete in small groups. Every request"
        " that reads a family or its leaderboards works on a league, too. The rules of divisions, `cohort`, `absent`"
        " and `keep` can be changed at any time, and better divisions can be appended."),
    "league": Words("A league's specification"),
    "leagues": Words("Leagues by id"),
    "delete_league": Words("Delete a league with all its leaderboards"),
    "post_to_league": Words("Post to a league",
        problems=(*_POST_CODES, "unknown_facet", "post_rejected", "catalog_full", "bad_value"), statuses=(200, 202),
        response=(PostResults, Accepted),
        description=_FORMS + " The first post of a period takes a seat in a cohort of the owner's division. If the"
        " owner's result of the previous period is not known yet, the seat follows as soon as it is."
        + _QUEUED + _POSITIONED),
    "league_owner": Words("An owner's cohort", problems=("unknown_owner", "unknown_board"),
        description="All owners of the cohort, with exact ranks, zones and profiles."),
    "league_history": Words("An owner's results in a league",
        description="The closed periods in which the owner had a seat, as far back as the league keeps them."),
    "leave_league": Words("Let an owner leave a league", problems=("unknown_owner",),
        description="Erases the owner's division, and its entries and seats in periods without a result. Earlier"
        " results stay. With the next post the owner is a newcomer."),
    "cohort": Words("A cohort", problems=("unknown_board",),
        description="Zones show how the cohort stands now. Once it is `settled`, each owner's history has the result."),
    "stream_cohort": Words("A cohort as it changes", problems=("unknown_board",), response=StreamEvent,
        media_type=stream.SSE_TYPE, request_headers=(stream.LAST_EVENT_ID,),
        description="Server-sent events, as of the stream of a leaderboard. `cohort` holds the whole cohort of the"
        " current period, without profiles. A cohort without a seat is refused. The stream stays with its period:"
        " follow the next cohort of an owner once `ends_at` has passed."),
    "divisions": Words("The divisions of a league", problems=("unknown_board",),
        description="For each division, how many owners have seats in the current period."),
    "reset_family": Words("Empty the current leaderboards of a kind of period",
        problems=("unknown_board",),
        description="With `week`, this empties this week's leaderboards for everybody and for every facet value. Later"
        " posts whose `at` is before this moment are rejected there with `before_reset`; other periods accept them."
        " Post ids stay remembered."),
    "void_family_post": Words("Take back a post to a family",
        problems=("unknown_post", "unknown_owner", "journal_pruned", "archived"),
        description="On every leaderboard that the post reached, the owner's entry is recomputed from the journal"
        " without this post. Closed leaderboards are included as long as they have their rows. Where that is not"
        " possible, the leaderboard keeps the post and has an `error`; if it is possible nowhere, the request is"
        " refused. The id stays reserved: the same post again is rejected with `post_voided`."),
    "family_board": Words("The leaderboard of a time and of facet values",
        problems=("unknown_board",),
        description="Without `at`, this is the current leaderboard. A leaderboard without posts is empty."),
    "facet_values": Words("The values of a facet", problems=("unknown_board",),
        description="Further parameters that are facets limit the answer to values within them."),
    "history": Words("An owner's final positions by period",
        problems=("unknown_board", "unknown_column", "column_needed"),
        description="The closed periods of one kind, newest first. Further parameters are facet values. Every period"
        " since the family was created is listed; `position` is null where the owner had no value in the column."),
    "create_family": Words("Create, confirm or change a family",
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "unsupported", "catalog_full"),
        statuses=(200, 201), response=FamilyAnswer,
        description="You can add columns, change tiers, `predictor` and `keep`, and shorten `grace_seconds`. Any other"
        " change is a conflict. New tiers apply to all leaderboards of the family, closed ones too."),
    "family": Words("A family's specification"),
    "families": Words("Families by id"),
    "delete_family": Words("Delete a family with all its leaderboards"),
    "post_state": Words("The outcome of a post", problems=("unknown_post",),
        description="A post can be looked up by its id as long as the id is remembered. Ids belong to owners: with"
        " `owner`, the answer is about that owner's post; without it, the answer lists every owner's post with the id,"
        f" at most {POSTS_LISTED_MAX}. `pending` means that a post waits in the queue."),
    "void_post": Words("Take back a post",
        problems=("unknown_post", "unknown_owner", "family_board", "journal_pruned", "archived"),
        description="The owner's entry is recomputed from the journal without this post, even if the leaderboard is"
        " closed. The id stays reserved: the same post again is rejected with `post_voided`. The request is refused if"
        " the journal no longer has the post that made the entry. A post to several leaderboards has its id on each of"
        " them; take it back on each with a request of its own."),
    "held_posts": Words("The held posts of a leaderboard, the oldest first",
        description="A post is held for review if it asks to be, or if it exceeds a limit of a column with"
        ' `"on_breach": "hold"`. A leaderboard, or each segment of one, holds at most'
        f" {HELD_POSTS_MAX:,}; further posts that exceed a limit are rejected."),
    "judge_post": Words("Accept or refuse a held post",
        problems=("unknown_board", "unknown_post", "verdict_conflict", "period_closed", "owner_merged"),
        description="`accept` applies the post with its original time, whatever the limits are. If the leaderboard has"
        " closed since, the post stays held. `refuse` voids its id. If the post is held on several leaderboards of a"
        " family, the verdict covers all of them. Repeating a verdict changes nothing."),
    "queue": Words("The ingest queue and its workers"),
    "boards": Words("Leaderboards by id, or by activity", problems=("too_many_boards",),
        description="With `order=activity`, the most recently changed come first and archived ones are left out. This"
        " order sorts at most 5,000 leaderboards; `families=false` leaves out those of families."),
    "create_board": Words("Create or confirm a leaderboard",
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "unsupported", "catalog_full",
        "own_tables_full", "family_board"), statuses=(200, 201), response=BoardAnswer,
        description="To an existing leaderboard you can add columns, and you can change tiers, entry rules and the"
        " predictor. You can change its times if every earlier post would still have been accepted or refused as it"
        " was. Any other change is answered with 409. A SQLite store holds at most `own_tables_max` leaderboards with"
        ' their own tables; any others share tables (`"table": "shared"`).'),
    "board": Words("A leaderboard's specification and its curves"),
    "delete_board": Words("Delete a leaderboard", problems=("family_board",)),
    "reset_board": Words("Empty a leaderboard and keep its specification",
        problems=("family_board", "period_closed"),
        description="This also forgets the post ids. Later posts whose `at` is before this moment are rejected with"
        " `before_reset`; posts without `at` are never late. A closed leaderboard can't be emptied, because its rows"
        " are final."),
    "grants": Words("The grants of a leaderboard", problems=("bad_cursor",),
        description="A grant says who got which reward. Grants are made when the leaderboard closes, and they outlive"
        " its archive. `rank` is the owner's rank at that moment, among all visible owners with a value in the column;"
        " later changes, such as a post that is taken back, do not affect it. Erasing an owner deletes the owner's"
        " grants, and merging passes them to the other owner. Grants are kept for `grant_retention_s`."),
    "preview_rewards": Words("Preview the rewards", problems=("bad_cursor", "archived"),
        description="Shows who would get which reward now, without making grants. The page is empty if the leaderboard"
        " has no rewards."),
    "owner_grants": Words("An owner's grants", problems=("bad_cursor",),
        description="Grants of deleted leaderboards are included."),
    "claim_grant": Words("Claim a grant", problems=("unknown_grant",),
        description="`first` is true in exactly one answer, however many requests arrive at the same time. That answer"
        " can get lost, so use `id` as the idempotency key of your payout."),
    "erase_entries": Words("Erase many entries",
        problems=("unknown_column", "column_needed", "bad_value", "value_out_of_range", "bad_rank", "too_many_owners",
        "archived"),
        description="`owners` erases the entries of these owners, hidden ones included, and ignores owners without one."
        " `from_rank` erases that row of the ranking of `column` and all worse ones, and `worse_than` all entries worse"
        " than a value; both skip hidden owners and owners without a value. One request erases at most 10,000 entries,"
        " in many transactions. Send it again if `more` is true or if it fails with 503. Erasing an entry also drops"
        " its queued posts and removes the name from the journal."),
    "join": Words("Join a leaderboard",
        problems=("no_entry_rules", "board_full", "not_open", "period_closed", "owner_merged", "catalog_full",
        "own_tables_full"), statuses=(200, 201), response=JoinAnswer,
        description="Only leaderboards with entry rules are joined. The answer is 201 for a new owner, and the same"
        " with 200 for one who has already joined. With `owners_max`, exactly that many owners get in, however many"
        " ask at the same time. Each leaderboard of a family is joined separately; one of the current period is created"
        " if nobody has posted to it or joined it yet."),
    "erase_entry": Words("Erase an owner's entry", problems=("unknown_owner",)),
    "erase_owner": Words("Erase an owner on every leaderboard",
        description="This erases the owner's entries, grants and profile, and the name, stats and post ids in the"
        " journal. A retry of an erased post is still a duplicate."),
    "hide_owner": Words("Hide an owner on every leaderboard",
        description="Posts still merge. Once this is answered, the owner is gone from rankings, totals and streams."
        " With `shadow`, the owner is hidden from everybody else only: requests about the owner itself (entry,"
        " positions, the rows around it, lookups, its boards and streams, the positions in results of its posts) are"
        " answered as if it were ranked. A further request can turn one into the other."),
    "show_owner": Words("Show a hidden or shadowed owner again"),
    "export_owner": Words("Export everything stored about one person",
        response=ExportLine, media_type=NDJSON_TYPE,
        description="The answer is NDJSON and covers the owner and all earlier ids: entries (also hidden and archived"
        " ones), posts in the journal and in the queue, profile, grants, joins, acts, merged ids, voided tokens, and"
        " since when the owner is hidden or shadowed. It ends with a line of the kind `end`. If that line is missing,"
        " so is something else: ask again. Erasing the owner removes the same data."),
    "hidden_owners": Words("Hidden owners by name",
        description="Each has the time, key and reason of the act, and whether the owner is shadowed."),
    "acts": Words("Acts of operators, newest first", problems=("bad_cursor",),
        description="An act is stored in the transaction of its effect and kept for `acts_retention_s`. A request that"
        " changes nothing adds no act. Erasing an owner removes the name from the acts."),
    "merge_owner": Words("Merge an owner into another one",
        problems=("bad_value", "merge_conflict", "journal_pruned", "archived", "value_out_of_range"),
        description="Two accounts become one. On each leaderboard, `into` gets the merged entry: either the posts of"
        " both replayed in the order of the journal, or the stored values merged, as `from` says. If `into` has no"
        " entry, it gets the owner's unchanged. Each leaderboard is merged in its own transaction; after an"
        " interruption, the same request finishes the merge. A leaderboard that can't be merged has an `error` and"
        " keeps the earlier id: an archived one, one whose journal no longer reaches back (merge it with `entries`),"
        " and one on which a value would leave its range. If the journal prevents the merge on every leaderboard, the"
        " answer is 409 `journal_pruned`, but the owner is merged all the same. Posts to the earlier id, even queued"
        " ones, are rejected with `owner_merged`; a retry of an applied one is still a duplicate. Reads of the earlier"
        " id answer 404 `owner_merged` with `into`. `into` keeps its profile, or gets the owner's. If either is"
        " hidden, `into` is hidden; if either is shadowed and neither hidden, `into` is shadowed. A merge can't be"
        " undone, and erasing `into` erases the earlier ids, too. All partitions must be reachable."),
    "put_profile": Words("Store an owner's profile",
        description="This replaces any earlier profile. `profiles=true` adds profiles to the rows of a read."),
    "profile": Words("An owner's profile", problems=("no_profile",)),
    "remove_profile": Words("Remove an owner's profile", problems=("no_profile",)),
    "owner_boards": Words("The leaderboards on which an owner has an entry",
        description="Archived leaderboards and entries of hidden owners are left out. Each request looks at 100"
        " leaderboards, so a page can be short or even empty and still have a `next`."),
    "owner_posts": Words("An owner's posts, newest first", problems=("bad_cursor",),
        description="The list reaches as far back as the journal is kept."),
    "stream": Words("Stream the top of a ranking or an owner's position",
        problems=("unknown_column", "column_needed", "unknown_owner", "not_ranked"), response=StreamEvent,
        media_type=stream.SSE_TYPE, request_headers=(stream.LAST_EVENT_ID,),
        description="The answer is server-sent events. `top` (without `owner`) and `position` each carry the whole"
        " state, so intermediate events may be skipped. `id` is a place in the journal. With `Last-Event-ID`, the"
        " stream first sends what the client has missed, and nothing that it has seen. If that id is too old to tell,"
        " `reset` comes first. The stream of an owner without a position starts with the first position; streams of"
        " hidden owners, and of owners missing from an archive, are refused. A stream ends when its leaderboard is"
        " deleted or emptied, and when a leaderboard of a family gets its first post."),
    "journal": Words("The durable log of accepted posts", problems=("bad_cursor", "journal_pruned"),
        response=JournalLine, media_type=NDJSON_TYPE,
        description="Lines are ordered by sequence number. Numbers increase with gaps, and once a number has been shown"
        " no smaller one appears later. Pass the last `seq` seen as `after`; an empty answer means that there is"
        " nothing newer yet. If the store has several partitions, `seq` is an opaque cursor that covers all of them:"
        " the lines of one leaderboard keep their order, and different leaderboards are ordered by the time of logging."
        " If some partitions do not answer, the answer has the lines of the others, and the header `Partitions-Away`"
        " lists the missing numbers. Their lines follow later, because the cursor keeps its place in them."),
    "refresh_curve": Words("Refresh a curve now", problems=("no_job_process", "timeout", "archived"),
        description="A job process does the work. The answer comes once the new curve is in use."),
    "audit_curve": Words("Audit a curve",
        problems=("no_curve", "archived"),
        description="Counts the ranks of random owners and compares them with the curve. To compare them as of the"
        " curve's time, later posts are subtracted from the counts."),
    "create_key": Words("Create an API key", problems=("catalog_full", "ops_key_needed"), statuses=(201,),
        response=CreatedKey,
        description="The key itself is shown only in this answer. This process accepts it at once, every other one"
        " within 5 s. The first key must have the role ops, and from then on every caller needs a key."),
    "issue_token": Words("Issue a player token", problems=("unsupported", "bad_value"), statuses=(201,),
        response=IssuedToken,
        description="With the token, a player's program may read, and may post, join and claim grants for this owner"
        " alone. A post by token has a number `n` and no `post_id`: each number is applied once to each leaderboard"
        " or family. The token is a JWT and needs the setting `player_token_keys`. A login service whose public keys"
        " are in `player_token_jwks` may sign tokens, too."),
    "void_tokens": Words("Void an owner's player tokens", problems=("unsupported", "catalog_full"),
        description="All tokens issued for the owner so far stop working, and their streams end: at once in this"
        " process, within 5 s in every other one."),
    "keys": Words("API keys by time of creation, including revoked ones"),
    "revoke_key": Words("Revoke an API key", problems=("unknown_key", "ops_key_needed"),
        description="The key stops working and its streams end: at once in this process, within 5 s in every other one."
        " A revoked key stays listed. The last key with the role ops can't be revoked."),
    "ask_lease": Words("Get the resource of a key, or a new one",
        problems=("unknown_pool", "unknown_region", "no_resource_available", "bad_value", "queue_full", "timeout"),
        description="A key that already has a resource keeps it, whatever its region, until the later of both times."
        " A key whose lease has expired gets the same resource back, unless another key has it by then. Otherwise the"
        " key gets the resource of the region that has been free the longest. The request is safe to repeat, because"
        " it returns the same resource."),
    "lease": Words("The lease of a key", problems=("unknown_pool", "unknown_lease"),
        description="This only reads; it does not extend the lease."),
    "give_back_lease": Words("Give a lease back early",
        problems=("unknown_pool", "unknown_lease", "queue_full", "timeout")),
    "lease_journal": Words("The journal of leases",
        response=LeaseEventLine, media_type=NDJSON_TYPE,
        description="The answer is NDJSON in the order of `seq`. Numbers increase with gaps, and once a number has been"
        " shown no smaller one appears later. `kind` says what happened to a resource: added, removed, acquired,"
        " extended, released, liberated or moved. Where keys lease in several stores, it can also be duplicate or, for"
        " a lease in another store, wanted or returned; that store reads these lines."),
    "events": Words("Events of leaderboards", problems=("journal_pruned",),
        response=EventLine, media_type=NDJSON_TYPE,
        description="The answer is NDJSON in the order of `seq`. Ask again with the last `seq` as `after`."
        " An event appears within a second, and stays for `change_log_retention_s`."),
    "webhooks": Words("Webhooks by id"),
    "put_webhook": Words("Create or change a webhook", problems=("bad_value", "catalog_full"),
        statuses=(200, 201), response=WebhookAnswer,
        description="A webhook receives events. Deliveries follow Standard Webhooks: a POST with `webhook-id`,"
        " `webhook-timestamp` and `webhook-signature`, in order and at least once. A new webhook gets the events from"
        " now on; its `secret` is shown only in this answer. If the receiver does not answer 2xx within 10 s, the event"
        " is sent again after 5 s, then after longer pauses of at most an hour; after three days the webhook is paused."
        " The URL must be `https` to a public address, unless `webhook_hosts` names its host."),
    "webhook": Words("A webhook and its deliveries", problems=("unknown_webhook",)),
    "delete_webhook": Words("Delete a webhook", problems=("unknown_webhook",)),
    "rotate_webhook": Words("Rotate the secret of a webhook", problems=("unknown_webhook",), response=WebhookAnswer,
        statuses=(200,),
        description="For a day, deliveries carry two signatures: one by the new secret and one by the previous one."),
    "resume_webhook": Words("Resume the deliveries to a webhook", problems=("unknown_webhook",)),
    "test_webhook": Words("Send a test event to a webhook", problems=("unknown_webhook",), response=WebhookAnswer,
        statuses=(202,),
        description="A job sends an event of the type `webhook.test`; read the webhook afterwards to see whether it"
        " failed."),
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
    "metrics": Words("Metrics in the Prometheus text format", media_type=METRICS_TYPE),
    "openapi": Words("The OpenAPI 3.1 document"),
    "dashboard": Words("The dashboard", statuses=(200, 304), media_type="text/html",
        description="A web page with boards, ranks, curves and the health of the node, which it gets by the requests of"
        " this document. It asks for a key if one is needed. The setting `dashboard` turns it off."),
    "dashboard_file": Words("A file of the dashboard or of the API page", problems=("not_found",),
        statuses=(200, 304), media_type="text/javascript"),
    "api_page": Words("The API reference", statuses=(200, 304), media_type="text/html",
        description="A web page made from the OpenAPI document. It shows no data, so it needs no key. The setting"
        " `dashboard` turns it off."),
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
