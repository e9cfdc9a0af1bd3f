"""The route table: every request of the wire contract, with its handler, types, role and problems."""

from service.contract import queries, requests
from service.contract.keys import Role
from service.contract.post_bodies import NDJSON_TYPE
from service.contract.responses.boards import (
    Accepted,
    BoardAnswer,
    Buckets,
    CurveAnswer,
    FamilyAnswer,
    PostResults,
)
from service.contract.responses.journal import JournalLine, StreamEvent
from service.contract.routes import Route
from service.views.boards import boards, families
from service.views.keys import KEYS
from service.views.leases.leases import LEASES
from service.views.leases.pools import POOLS
from service.views.owners import owners, positions, profiles
from service.views.posts import family_posts, journal, posts, queue, stream
from service.views.rankings import around, curves, rankings
from service.views.retry_on_change import retry_on_change
from storage.queue.outcomes import POSTS_LISTED_MAX

_BOARD = "/v1/leaderboards/{board}"
_OWNER = _BOARD + "/entries/{owner}"
_PROFILE = "/v1/owners/{owner}/profile"
_RANKING = _BOARD + "/rankings/{column}"
_POST_CODES = (
    "unknown_board", "unknown_column", "bad_value", "value_out_of_range", "at_in_future", "post_id_conflict",
    "too_many_posts", "too_many_boards", "family_board", "period_closed", "not_open_yet", "queue_full",
    "rate_limited", "store_busy", "timeout",
)  # fmt: skip
_FORMS = 'The body is one post, a list (`[…]` or `{"posts": […]}`), or NDJSON.'
_QUEUED = (
    " With `mode=queued` the answer is 202 once the posts are durable in the ingest queue. Job workers apply them"
    " within seconds, exactly once, and an owner's posts in their order. If one post of a queued request can't be"
    " taken, the whole request is refused. A retry of an applied post is not refused, even if its period is closed."
)

_READS = [
    Route("GET", _OWNER + "/positions", positions.unless_hidden(positions.get_positions), Role.READER, "positions",
        operation="getOwnerPositions", summary="An owner's positions", tag="Owners", has_own_metrics=True,
        query=queries.PositionsQuery, problems=("unknown_column", "unknown_owner", "not_ranked"),
        description="Without `columns`, the answer has every ranked column. `rank=auto` counts near the top and where"
        " there is no curve. `next=true` adds to each position the next better place and the points that are missing"
        " to take it. `compare=previous` adds the leaderboard of the period before: the owner's position there, the"
        " position that the current value would have there (as a new arrival), and how many places the owner and the"
        " others have moved since. It is null for all time. An owner who had an entry then and has none yet has null"
        " for the current position and value. A leaderboard that belongs to no family has no period before: 400."),
    Route("GET", _OWNER + "/around", positions.unless_hidden(around.get_rows_around_owner), Role.READER, "around",
        operation="getRowsAroundOwner", summary="The rows around an owner", tag="Owners", has_own_metrics=True,
        query=queries.AroundOwnerQuery, problems=("unknown_column", "unknown_owner", "not_ranked", "archived"),
        description="The ranks agree with each other: all follow from the owner's rank by counting along the rows. An"
        " archived leaderboard has the rows of its archive; a `next` past them is answered with 410."),
    Route("GET", _OWNER, owners.get_entry, Role.READER, "entry",
        operation="getEntry", summary="An owner's entry", tag="Owners", has_own_metrics=True,
        query=queries.ProfilesQuery, problems=("unknown_owner",),
        description="The entry of a hidden owner says that it is hidden."
        " It has no `ETag`, because it changes without the leaderboard."),
    Route("GET", _RANKING, rankings.get_page, Role.READER, "page",
        operation="getRankingPage", summary="A page of a ranking", tag="Rankings", has_own_metrics=True,
        query=queries.PageQuery, problems=("bad_rank", "archived"),
        description="An archived leaderboard has the top that its archive holds; what follows is answered with 410."
        " `order=owner` lists all of its owners, in the order of their names, with the ranks of the record."
        " A page without profiles has an `ETag`, and `If-None-Match` is answered without reading rows."),
    Route("GET", _RANKING + "/positions", rankings.get_value_positions, Role.READER, "value_positions",
        operation="getValuePositions", summary="Positions of values", tag="Rankings", query=queries.ValuePositionsQuery,
        problems=("bad_value", "value_out_of_range"),
        description="A value that nobody has gets the rank of a new arrival with it. `with` names more leaderboards"
        " whose entries are counted too, such as the shards of one game. The bracket allows for posts meanwhile. To"
        " name leaderboards whose ids have commas, repeat the parameter with one leaderboard each time."),
    Route("GET", _RANKING + "/around", around.get_rows_around_value, Role.READER, "value_around",
        operation="getRowsAroundValue", summary="The rows around a value", tag="Rankings",
        query=queries.AroundValueQuery, problems=("bad_value", "value_out_of_range", "archived"),
        description="An archived leaderboard has the rows of its archive, as around an owner."),
    Route("GET", _RANKING + "/values", rankings.get_values, Role.READER, "values",
        operation="getValues", summary="Values for ranks and percentiles", tag="Rankings", query=queries.ValuesQuery,
        problems=("bad_rank",),
        description="Each value is the worst that still has the rank or a better one. Past the last rank it is the"
        " worst value of all."),
    Route("GET", _RANKING + "/curve", curves.get_curve, Role.READER, "curve", operation="getCurve",
        summary="The curve that ranks are read off", tag="Rankings", response=CurveAnswer, statuses=(200, 304),
        problems=("no_curve",),
        description="The answer is enough to rank offline with the same results as the service. docs/curve.md"
        " is an example."),
    Route("GET", _RANKING + "/buckets", rankings.get_buckets, Role.READER, "buckets",
        operation="getBuckets", summary="The distribution of values", tag="Rankings", query=queries.BucketsQuery,
        response=Buckets,
        description="The buckets are of equal width. Each includes its `from` and not its `to`; the last includes"
        " both. With `rank=estimate` they are read off the curve, if there is one, and nothing is counted."),
    Route("POST", _BOARD + "/entries/lookup", owners.look_up_entries, Role.READER, "lookup",
        operation="lookUpEntries", summary="Entries of many owners", tag="Owners", query=queries.ProfilesQuery,
        body=requests.Lookup, problems=("unknown_column", "too_many_owners"),
        description="With a column, each entry has its position on the leaderboard and its place among the owners"
        " asked for."),
    Route("POST", "/v1/owners/{owner}/positions", positions.get_positions_on_boards, Role.READER, "many_boards",
        operation="getOwnerPositionsOnBoards", summary="One owner on many leaderboards", tag="Owners",
        body=requests.ManyBoards, problems=("unknown_board", "unknown_column", "too_many_boards")),
]  # fmt: skip

_POSTS = [
    Route("POST", _BOARD + "/posts", posts.post_to_board, Role.WRITER, "post",
        operation="postStats", summary="Post stats to a leaderboard",
        tag="Posting", has_own_metrics=True, body=(requests.PostBody, requests.PostList), raw_body=True, ndjson=True,
        query=queries.PostsQuery, response=(PostResults, Accepted), statuses=(200, 202), problems=_POST_CODES,
        description=_FORMS + " The answer comes once everything in it is durable. `set` needs the role ops." + _QUEUED),
    Route("POST", "/v1/posts", posts.post_to_boards, Role.WRITER, "post_many", operation="postStatsToBoards",
        summary="Post stats to several leaderboards at once", tag="Posting",
        body=(requests.FanPostBody, requests.FanPostList), raw_body=True, ndjson=True, query=queries.PostsQuery,
        response=(PostResults, Accepted), statuses=(200, 202), problems=_POST_CODES,
        description=_FORMS + " Each post names its leaderboards and is applied to all of them or to none." + _QUEUED),
]  # fmt: skip

_FAMILY = "/v1/families/{family}"
_FAMILIES = [
    Route("POST", _FAMILY + "/posts", family_posts.post_to_family, Role.WRITER, "post_family",
        operation="postStatsToFamily",
        summary="Post stats to a family", tag="Families", body=(requests.FacetedPostBody, requests.FacetedPostList),
        raw_body=True, ndjson=True, query=queries.PostsQuery, response=(PostResults, Accepted), statuses=(200, 202),
        problems=(*_POST_CODES, "unknown_facet", "post_rejected", "catalog_full", "own_tables_full"),
        description=_FORMS + " A post reaches the leaderboards of its time (`at`) in every period, for every list of"
        " facets that it has values for. It is applied to all of them or to none;"
        " those whose period is closed are left out. Its id is remembered once for all of them: sent again, the post"
        " is a duplicate, even after the end of a period." + _QUEUED),
    Route("GET", _FAMILY + "/boards", families.get_family_board, Role.READER, "family_boards",
        operation="getFamilyBoard", summary="The leaderboard of a time and of facet values", tag="Families",
        query=queries.FamilyBoardsQuery, problems=("unknown_board",),
        description="Without `at`, it is the leaderboard of the current time. A leaderboard that nothing was posted"
        " to is empty."),
    Route("GET", _FAMILY + "/facets", families.get_facet_values, Role.READER, "family_facets",
        operation="listFamilyFacets", summary="The values of a facet", tag="Families", query=queries.FacetsQuery,
        problems=("unknown_board",),
        description="Further parameters that are facets limit the answer to values within them."),
    Route("GET", _FAMILY + "/owners/{owner}/history", families.get_history, Role.READER, "family_history",
        operation="getOwnerHistory", summary="An owner's final positions by period", tag="Families",
        query=queries.HistoryQuery, problems=("unknown_board", "unknown_column"),
        description="The closed periods of one kind, newest first. Further parameters are facet values. Every period"
        " since the family was made is listed; `position` is null where the owner had no value in the column."),
    Route("PUT", _FAMILY, families.put_family_spec, Role.OPS, "put_family", operation="putFamily",
        summary="Create, confirm or change a family", tag="Families", body=requests.PutFamily, response=FamilyAnswer,
        statuses=(200, 201),
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "unsupported", "catalog_full"),
        description="Columns can be added, `predictor` and `keep` can be changed, and `grace_seconds` can be shortened."
        " Any other change is a conflict."),
    Route("GET", _FAMILY, families.get_family, Role.READER, "family",
        operation="getFamily", summary="A family's specification", tag="Families"),
    Route("GET", "/v1/families", families.get_families, Role.READER, "families",
        operation="listFamilies", summary="Families by id", tag="Families", query=queries.ListQuery),
    Route("DELETE", _FAMILY, families.remove_family, Role.OPS, "delete_family",
        operation="deleteFamily", summary="Delete a family with all its leaderboards", tag="Families"),
]  # fmt: skip

_OTHERS = [
    Route("GET", _BOARD + "/posts/{post_id}", posts.get_post_state, Role.WRITER, "post_state",
        operation="getPostState", summary="What became of a post", tag="Posting", query=queries.PostStateQuery,
        problems=("unknown_post",),
        description="Only a post with an id can be looked up, as long as the id is remembered. An id belongs to an"
        " owner: with `owner`, the answer is about that owner's post. Without it, the answer lists the posts of all"
        f" owners with the id, at most {POSTS_LISTED_MAX}. `pending` means that a post waits in the queue."),
    Route("GET", "/v1/queue", queue.show_queue, Role.OPS, "queue",
        operation="getQueue", summary="The posts that wait in the ingest queue, and its workers", tag="Posting"),
    Route("GET", "/v1/leaderboards", boards.get_boards, Role.READER, "boards",
        operation="listBoards", summary="Leaderboards by id, or by activity", tag="Leaderboards",
        query=queries.BoardsQuery, problems=("too_many_boards",),
        description="With `order=activity`, those that were changed last come first. Archived ones are left out. This"
        " order takes at most 5,000 leaderboards; `families=false` leaves out those of families."),
    Route("PUT", _BOARD, boards.put_board, Role.OPS, "put_board",
        operation="putBoard", summary="Create or confirm a leaderboard",
        tag="Leaderboards", body=requests.PutBoard, response=BoardAnswer, statuses=(200, 201),
        problems=("spec_conflict", "bad_spec", "bad_value", "value_out_of_range", "unsupported", "catalog_full",
        "own_tables_full", "family_board"),
        description="New columns and another predictor are accepted, and times under which every earlier post would"
        " have been taken or refused as it was. Any other change is answered with 409. A SQLite store holds at most"
        " `own_tables_max` leaderboards with tables of their own; more leaderboards may share tables"
        ' (`"table": "shared"`).'),
    Route("GET", _BOARD, boards.get_board, Role.READER, "board",
        operation="getBoard", summary="A leaderboard's specification and the state of its curves", tag="Leaderboards"),
    Route("DELETE", _BOARD, boards.remove_board, Role.OPS, "delete_board",
        operation="deleteBoard", summary="Delete a leaderboard", tag="Leaderboards", problems=("family_board",)),
    Route("POST", _BOARD + "/reset", boards.empty_board, Role.OPS, "reset",
        operation="resetBoard", summary="Empty a leaderboard and keep its specification", tag="Leaderboards",
        problems=("family_board", "period_closed"),
        description="The remembered post ids are forgotten too. A closed leaderboard can't be emptied: its rows are"
        " final."),
    Route("DELETE", _OWNER, owners.erase_entry, Role.OPS, "erase_entry",
        operation="eraseEntry", summary="Erase an owner's entry", tag="Owners", problems=("unknown_owner",)),
    Route("DELETE", "/v1/owners/{owner}", owners.erase_owner, Role.OPS, "erase_owner",
        operation="eraseOwner", summary="Erase an owner on every leaderboard", tag="Owners",
        description="This erases entries and profile, and the name, stats and post ids in the journal. A retry of an"
        " erased post stays a duplicate."),
    Route("PUT", "/v1/owners/{owner}/hidden", owners.hide_owner, Role.OPS, "hide_owner",
        operation="hideOwner", summary="Hide an owner on every leaderboard", tag="Owners",
        description="Posts still merge. Once this is answered, rankings, totals and streams no longer have the owner."),
    Route("DELETE", "/v1/owners/{owner}/hidden", owners.show_owner, Role.OPS, "show_owner",
        operation="showOwner", summary="Show a hidden owner again", tag="Owners"),
    Route("PUT", _PROFILE, profiles.put_profile, Role.WRITER, "put_profile",
        operation="putProfile", summary="Store an owner's profile", tag="Owners", body=requests.ProfileBody,
        raw_body=True,
        description="This replaces an earlier profile. `profiles=true` adds profiles to the rows of a read."),
    Route("GET", _PROFILE, profiles.get_profile, Role.READER, "profile",
        operation="getProfile", summary="An owner's profile", tag="Owners", problems=("no_profile",)),
    Route("DELETE", _PROFILE, profiles.remove_profile, Role.WRITER, "remove_profile",
        operation="removeProfile", summary="Remove an owner's profile", tag="Owners", problems=("no_profile",)),
    Route("GET", "/v1/owners/{owner}/boards", owners.get_owner_boards, Role.READER, "owner_boards",
        operation="listOwnerBoards", summary="The leaderboards on which an owner has an entry", tag="Owners",
        query=queries.ListQuery,
        description="Archived leaderboards and hidden entries are left out. A request looks at 100 leaderboards, so a"
        " page may have few or none of the owner's and still a `next`."),
    Route("GET", "/v1/owners/{owner}/posts", journal.get_owner_posts, Role.READER, "owner_posts",
        operation="listOwnerPosts", summary="An owner's posts, the newest first", tag="Journal",
        query=queries.OwnerPostsQuery, needs_key=True, problems=("bad_cursor",),
        description="The list reaches as far back as the journal is kept."),
    Route("GET", _BOARD + "/stream", stream.get_stream, Role.READER, "stream", operation="followRanking",
        summary="The top of a ranking, or an owner's position, as it changes", tag="Journal", query=queries.StreamQuery,
        response=StreamEvent, media_type=stream.SSE_TYPE, request_headers=(stream.LAST_EVENT_ID,),
        problems=("unknown_column", "unknown_owner", "not_ranked"),
        description="The answer is server-sent events. `top` (without `owner`) and `position` each hold the whole"
        " state, so events in between may be left out. `id` is a place in the journal. With"
        " `Last-Event-ID`, the stream sends at once what the client has missed, and nothing that it has seen. If that"
        " id is too old to tell, `reset` comes first. The stream of an owner without a position begins with the first"
        " one; that of a hidden owner is refused, and so is that of a missing owner of an archive. A stream ends when"
        " its leaderboard is deleted or emptied, and when the first post reaches a leaderboard of a family."),
    Route("GET", "/v1/journal", journal.read_journal, Role.WRITER, "journal", operation="readJournal",
        summary="The durable log of accepted posts", tag="Journal", query=queries.JournalQuery, response=JournalLine,
        media_type=NDJSON_TYPE, problems=("bad_cursor", "journal_pruned"),
        description="Lines come by sequence number. Numbers grow and may have gaps. Once a number was shown, no"
        " smaller one appears later. `after` is the last `seq` seen. An answer without a line means that nothing"
        " newer is there yet. If the store has several partitions, `seq` is an opaque cursor that covers all of them."
        " The lines of a leaderboard come in their order; those of several leaderboards by the time of logging."),
    Route("POST", _RANKING + "/refresh", curves.refresh_curve, Role.OPS, "refresh",
        operation="refreshCurve", summary="Refresh a curve now", tag="Rankings",
        problems=("no_job_process", "timeout", "archived"),
        description="A job process does the work. The answer comes when the new curve is in use."),
    Route("POST", _RANKING + "/audit", curves.audit_curve, Role.OPS, "audit",
        operation="auditCurve", summary="Count random owners and compare the counts with the curve", tag="Rankings",
        query=queries.AuditQuery, problems=("no_curve", "archived"),
        description="Ranks are compared as of the curve's time: later posts are subtracted from the counts."),
]  # fmt: skip

ROUTES = [*_POSTS, *LEASES, *POOLS, *KEYS, *map(retry_on_change, [*_FAMILIES, *_READS, *_OTHERS])]
