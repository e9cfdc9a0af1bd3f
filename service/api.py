"""The table of all routes under `/v1`: each has a handler, a minimum role, and the types of its query and body."""

from service.contract import queries, requests
from service.contract.api_keys import Role
from service.contract.routes import FOUND_BY_HANDLER, IN_BODY, IN_PATH, IN_PATH_AND_QUERY, Route
from service.views import acts, merged_owners
from service.views.acts import record_acts
from service.views.api_keys import KEYS
from service.views.boards import boards, families, grants
from service.views.events import EVENTS
from service.views.leagues.routes import LEAGUES
from service.views.leases import LEASES, POOLS
from service.views.owners import exporting, joining, owners, positions
from service.views.posts import family_posts, held, journal, posts, queue, stream, voiding
from service.views.rankings import around, curves, erasures, rankings
from service.views.retry_on_change import retry_on_change, tell_merged
from service.views.tokens import TOKENS

_BOARD = "/v1/leaderboards/{board}"
_OWNER = _BOARD + "/entries/{owner}"
_PROFILE = "/v1/owners/{owner}/profile"
_RANKING = _BOARD + "/rankings/{column}"

_READS = [
    Route("GET", _OWNER + "/positions", positions.get_positions, Role.READER, "positions",
        "Owners", has_own_metrics=True, query=queries.PositionsQuery),
    Route("GET", _OWNER + "/around", around.get_rows_around_owner, Role.READER, "around",
        "Owners", has_own_metrics=True, query=queries.AroundOwnerQuery),
    Route("GET", _OWNER, owners.get_entry, Role.READER, "entry", "Owners", has_own_metrics=True,
        query=queries.ProfilesQuery),
    Route("GET", _RANKING, rankings.get_page, Role.READER, "page", "Rankings", has_own_metrics=True,
        query=queries.PageQuery),
    Route("GET", _BOARD + "/rankings", rankings.get_page, Role.READER, "top", "Rankings", counted_as="page",
        query=queries.TopQuery),
    Route("GET", _RANKING + "/positions", rankings.get_value_positions, Role.READER, "value_positions", "Rankings",
        query=queries.ValuePositionsQuery, boards=IN_PATH_AND_QUERY),
    Route("GET", _RANKING + "/around", around.get_rows_around_value, Role.READER, "value_around", "Rankings",
        query=queries.AroundValueQuery),
    Route("GET", _RANKING + "/values", rankings.get_values, Role.READER, "values", "Rankings",
        query=queries.ValuesQuery),
    Route("GET", _RANKING + "/curve", curves.get_curve, Role.READER, "curve", "Rankings"),
    Route("GET", _RANKING + "/buckets", rankings.get_buckets, Role.READER, "buckets", "Rankings",
        query=queries.BucketsQuery),
    Route("POST", _BOARD + "/entries/lookup", owners.look_up_entries, Role.READER, "lookup", "Owners",
        query=queries.ProfilesQuery, body=requests.Lookup),
    Route("POST", "/v1/owners/{owner}/positions", positions.get_positions_on_boards, Role.READER, "positions_on_boards",
        "Owners", body=requests.ManyBoards, boards=IN_BODY),
]  # fmt: skip

_POSTS = [
    Route("POST", _BOARD + "/posts", posts.post_to_board, Role.PLAYER, "post", "Posting", has_own_metrics=True,
        body=(requests.PostBody, requests.PostList), raw_body=True, ndjson=True, by_fronts=True,
        query=queries.PositionedPostsQuery),
    Route("POST", "/v1/posts", posts.post_to_boards, Role.WRITER, "post_to_boards", "Posting",
        body=(requests.FanPostBody, requests.FanPostList), raw_body=True, ndjson=True, by_fronts=True,
        query=queries.PostsQuery),
]  # fmt: skip

_FAMILY = "/v1/families/{family}"
_FAMILIES = [
    Route("POST", _FAMILY + "/posts", family_posts.post_to_family, Role.PLAYER, "post_to_family", "Families",
        body=(requests.FacetedPostBody, requests.FacetedPostList), raw_body=True, ndjson=True,
        by_fronts=True, query=queries.PositionedPostsQuery),
    Route("DELETE", _FAMILY + "/posts/{post_id}", voiding.void_family_post, Role.OPS, "void_family_post", "Families",
        query=queries.VoidQuery, acts=("post.voided",)),
    Route("GET", _FAMILY + "/boards", families.get_family_board, Role.READER, "family_board", "Families",
        query=queries.FamilyBoardsQuery),
    Route("GET", _FAMILY + "/facets", families.get_facet_values, Role.READER, "facet_values", "Families",
        query=queries.FacetsQuery),
    Route("GET", _FAMILY + "/owners/{owner}/history", families.get_history, Role.READER, "history", "Families",
        query=queries.HistoryQuery, boards=FOUND_BY_HANDLER),
    Route("PUT", _FAMILY, families.put_family_spec, Role.OPS, "create_family", "Families", body=requests.PutFamily,
        acts=("family.created", "family.changed")),
    Route("GET", _FAMILY, families.get_family, Role.READER, "family", "Families"),
    Route("GET", "/v1/families", families.get_families, Role.READER, "families", "Families", query=queries.ListQuery),
    Route("POST", _FAMILY + "/reset", families.empty_period, Role.OPS, "reset_family", "Families",
        body=requests.ResetFamily, acts=("family.reset",)),
    Route("DELETE", _FAMILY, families.remove_family, Role.OPS, "delete_family", "Families", acts=("family.deleted",)),
]  # fmt: skip

_OTHERS = [
    Route("GET", _BOARD + "/posts/{post_id}", posts.get_post_state, Role.WRITER, "post_state", "Posting",
        query=queries.PostStateQuery),
    Route("DELETE", _BOARD + "/posts/{post_id}", voiding.void_board_post, Role.OPS, "void_post", "Posting",
        query=queries.VoidQuery, acts=("post.voided",)),
    Route("GET", _BOARD + "/held", held.get_held_posts, Role.OPS, "held_posts", "Posting", query=queries.ListQuery),
    Route("PUT", _BOARD + "/held/{post_id}", held.judge_post, Role.OPS, "judge_post", "Posting",
        query=queries.HeldQuery, body=requests.JudgePost, boards=IN_PATH, acts=("post.accepted", "post.refused")),
    Route("GET", "/v1/queue", queue.show_queue, Role.OPS, "queue", "Posting"),
    Route("GET", "/v1/leaderboards", boards.get_boards, Role.READER, "boards", "Leaderboards",
        query=queries.BoardsQuery),
    Route("PUT", _BOARD, boards.put_board, Role.OPS, "create_board", "Leaderboards", body=requests.PutBoard,
        acts=("board.created", "board.changed", "board.closed")),
    Route("GET", _BOARD, boards.get_board, Role.READER, "board", "Leaderboards"),
    Route("DELETE", _BOARD, boards.remove_board, Role.OPS, "delete_board", "Leaderboards", acts=("board.deleted",)),
    Route("POST", _BOARD + "/reset", boards.empty_board, Role.OPS, "reset_board", "Leaderboards",
        acts=("board.reset",)),
    Route("GET", _BOARD + "/grants", grants.get_board_grants, Role.READER, "grants", "Rewards",
        query=queries.ListQuery),
    Route("GET", _BOARD + "/rewards/preview", grants.preview_rewards, Role.READER, "preview_rewards", "Rewards",
        query=queries.ListQuery),
    Route("GET", "/v1/owners/{owner}/grants", grants.get_owner_grants, Role.READER, "owner_grants", "Rewards",
        query=queries.OwnerGrantsQuery),
    Route("POST", "/v1/grants/{grant}/claim", grants.claim_grant, Role.PLAYER, "claim_grant", "Rewards"),
    Route("POST", _BOARD + "/entries/erase", erasures.erase_entries, Role.OPS, "erase_entries", "Owners",
        body=requests.EraseEntries, acts=("entries.erased",)),
    Route("POST", _BOARD + "/entries", joining.join_board, Role.PLAYER, "join", "Owners", body=requests.JoinBoard),
    Route("DELETE", _OWNER, owners.erase_entry, Role.OPS, "erase_entry", "Owners", acts=("entry.erased",)),
    Route("DELETE", "/v1/owners/{owner}", owners.erase_owner, Role.OPS, "erase_owner", "Owners",
        acts=("owner.erased",)),
    Route("PUT", "/v1/owners/{owner}/hidden", owners.hide_owner, Role.OPS, "hide_owner", "Owners",
        body=requests.HideOwner, optional_body=True, query=queries.ActQuery,
        acts=("owner.hidden", "owner.shadowed")),
    Route("DELETE", "/v1/owners/{owner}/hidden", owners.show_owner, Role.OPS, "show_owner", "Owners",
        acts=("owner.shown",)),
    Route("GET", "/v1/owners/{owner}/export", exporting.export_owner, Role.OPS, "export_owner", "Owners"),
    Route("GET", "/v1/owners", acts.get_hidden_owners, Role.OPS, "hidden_owners", "Owners", query=queries.HiddenQuery),
    Route("GET", "/v1/acts", acts.get_acts, Role.OPS, "acts", "Operating", query=queries.ActsQuery),
    Route("POST", "/v1/owners/{owner}/merge", merged_owners.merge_owner, Role.OPS, "merge_owner", "Owners",
        body=requests.MergeOwner, acts=("owner.merged",)),
    Route("PUT", _PROFILE, owners.put_profile, Role.WRITER, "put_profile", "Owners", body=requests.ProfileBody,
        raw_body=True),
    Route("GET", _PROFILE, owners.get_profile, Role.READER, "profile", "Owners"),
    Route("DELETE", _PROFILE, owners.remove_profile, Role.WRITER, "remove_profile", "Owners"),
    Route("GET", "/v1/owners/{owner}/boards", owners.get_owner_boards, Role.READER, "owner_boards", "Owners",
        query=queries.ListQuery, boards=FOUND_BY_HANDLER),
    Route("GET", "/v1/owners/{owner}/posts", journal.get_owner_posts, Role.READER, "owner_posts", "Journal",
        query=queries.OwnerPostsQuery, needs_key=True),
    Route("GET", _BOARD + "/stream", stream.get_stream, Role.READER, "stream", "Journal", query=queries.StreamQuery),
    Route("GET", "/v1/journal", journal.read_journal, Role.WRITER, "journal", "Journal", query=queries.JournalQuery),
    Route("POST", _RANKING + "/refresh", curves.refresh_curve, Role.OPS, "refresh_curve", "Rankings"),
    Route("POST", _RANKING + "/audit", curves.audit_curve, Role.OPS, "audit_curve", "Rankings",
        query=queries.AuditQuery),
]  # fmt: skip

_RETRIED = [tell_merged(retry_on_change(route)) for route in (*_FAMILIES, *LEAGUES, *_READS, *_OTHERS)]
ROUTES = [*_POSTS, *LEASES, *map(record_acts, [*_RETRIED, *POOLS, *KEYS, *TOKENS, *EVENTS])]
