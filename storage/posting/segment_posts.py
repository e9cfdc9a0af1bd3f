"""Spreads the posts to segments of boards over the writers of their partitions.

A request to one board takes one transaction for each partition, all of them at once. A post is all or nothing, but the
posts in other partitions may be applied if one partition fails. Posts to several boards take one transaction together.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from storage.errors import OutcomeUnknownError
from storage.records import PartOutcome, Post
from storage.store import Store

Outcomes = list[list[PartOutcome]]
Submit = Callable[[Store, Sequence[Post]], Coroutine[Any, Any, Outcomes]]


async def submit_to_segments(store: Store, posts: Sequence[Post], submit: Submit) -> Outcomes:
    """Apply posts of which at least one is to a segment, and return their outcomes, as `Writer.submit` does.

    `submit` lets the writer of a store apply posts.

    Raises:
        OutcomeUnknownError: some posts were applied, but others were not.
    """
    boards = {part.board.key: part.board for post in posts for part in post.parts}.values()
    stores = {store.at(board.partition) for board in boards}
    if len(stores) == 1 or len({board.segment_of for board in boards}) > 1:
        return await submit(stores.pop() if len(stores) == 1 else store, posts)
    by_store: dict[Store, list[Post]] = defaultdict(list)
    for post in posts:
        by_store[store.at(post.parts[0].board.partition)].append(post)
    submitting = [submit(each, theirs) for each, theirs in by_store.items()]
    done = await asyncio.gather(*submitting, return_exceptions=True)
    errors = [found for found in done if isinstance(found, BaseException)]
    answers = [iter(found) for found in done if not isinstance(found, BaseException)]
    if errors and answers:
        raise OutcomeUnknownError("only the posts to some segments were applied") from errors[0]
    if errors:
        raise errors[0]
    by_answers = dict(zip(by_store, answers, strict=True))
    return [next(by_answers[store.at(post.parts[0].board.partition)]) for post in posts]
