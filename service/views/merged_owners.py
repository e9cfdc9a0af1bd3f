"""The handler that merges one owner into another."""

from service.context import Context
from service.contract.problems import ProblemError, post_problem_of
from service.contract.requests import MergeOwner
from service.contract.responses.boards import MergedBoard, MergedOwner
from service.contract.routes import Call
from service.contract.values import parse_owner
from storage.errors import JournalIncompleteError
from storage.histories.owner_merges import MergedPart

from .owners.owners import change_owner
from .posts.posts import format_stats


async def merge_owner(context: Context, call: Call) -> MergedOwner:
    body: MergeOwner = call.body
    owner, into = call.path["owner"], parse_owner(body.into, pointer="/into")
    if owner == into:
        raise ProblemError("bad_value", "an owner can't be merged into itself", pointer="/into")
    call.detail = {"into": into, "from": body.from_}
    parts = await change_owner(context, owner).merge_into(into, by_posts=body.from_ == "journal")
    errors = [part.error for part in parts]
    if None not in errors and (pruned := [each for each in errors if isinstance(each, JournalIncompleteError)]):
        raise post_problem_of(pruned[0])
    return MergedOwner(owner, into, [_board_answer(part) for part in parts])


def _board_answer(part: MergedPart) -> MergedBoard:
    if part.error is not None:
        return MergedBoard(board=part.board_id, error=post_problem_of(part.error).to_document())
    assert part.spec is not None
    assert part.stats is not None
    missing = [None] * (len(part.spec.columns) - len(part.stats))  # columns that were added later
    return MergedBoard(board=part.board_id, status="merged", stats=format_stats(part.spec, [*part.stats, *missing]))
