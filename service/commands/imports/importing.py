"""`rankcurve import`: the command. It copies a CSV file or a sorted set of Redis to a leaderboard.

The board must exist, because its specification says how values are merged and ranked.
"""

from pathlib import Path
from typing import Annotated

import typer
from rankcurve import Retries

from service.commands.imports.csv_import import CsvFile
from service.commands.imports.import_records import UnusableSourceError
from service.commands.imports.redis_import import SortedSet
from service.commands.imports.sending import Job
from service.commands.target import DEFAULT_URL, BoardArgument, KeyOption, UrlOption, call_service, fail

CONCURRENCY_MAX = 64
BATCH_POSTS_MAX = 10_000

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE.csv", exists=True, dir_okay=False, show_default=False, help="CSV in UTF-8, headings first."
    ),
]
RedisOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--redis",
        metavar="URL KEY",
        show_default=False,
        help="Copy a sorted set of Redis instead of a file: redis://host:6379/0 and the name of the set, before BOARD. "
        "Scores replace what the leaderboard has, so this needs a key with the role ops.",
    ),
]
MergeOption = Annotated[
    bool,
    typer.Option(
        "--merge",
        help="With --redis: merge each score like a post, so that it never replaces a better one. For columns of merge "
        "`max` or `min`, while a game writes to both. Needs the role writer only.",
    ),
]
OwnerOption = Annotated[
    str | None, typer.Option(help="Heading of the column that holds the owner.", show_default=False)
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "-c",
        metavar="COLUMN=HEADING",
        help="The column of the leaderboard and the heading of the file that feeds it; repeatable. xp=score posts the "
        "values under `score` as `xp`; xp alone means xp=xp. Default: every column that the file has a heading for. "
        "With --redis, the one column that takes the scores; default: the first ranked one.",
    ),
]
DelimiterOption = Annotated[str, typer.Option(help="Character that separates cells; `tab` for a tabulator.")]
BatchOption = Annotated[int, typer.Option(min=1, max=BATCH_POSTS_MAX, help="Lines in each request.")]
ConcurrencyOption = Annotated[
    int, typer.Option(min=1, max=CONCURRENCY_MAX, help="Requests at the same time; one if the order of lines matters.")
]
RetriesOption = Annotated[
    int, typer.Option(min=0, max=1000, help="Further attempts for each request while the service is busy or away.")
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait", help="Wait for a service that is not up yet, as often as --retries says. Otherwise the import ends."
    ),
]
RejectedMaxOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Stop once more lines than this were rejected, because the mapping may be wrong. Applied lines "
        "stay applied; to continue, run again with a larger number.",
    ),
]
RejectsOption = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="Write the rejected lines here unchanged, after the headings. Correct them and import this file. "
        "FILE.reasons says why each was rejected.",
    ),
]
RoundOption = Annotated[
    bool,
    typer.Option(
        "--round",
        help="Round values with more digits than their column's scale, like 48.682000000000002 from a binary number, "
        "and say how many were rounded. Without this option such a line is rejected.",
    ),
]
LabelOption = Annotated[
    str,
    typer.Option(
        help="Part of the post ids. With a new label the same content counts once more. Use it on purpose, or if two "
        "files are equal by chance."
    ),
]
QueuedOption = Annotated[
    bool,
    typer.Option(
        "--queued",
        help="Queue the lines: the service applies them soon after its answer, which is faster. Lines that are "
        "rejected when they are applied are listed only in the service's journal.",
    ),
]


def import_posts(
    board: BoardArgument,
    file: FileArgument = None,
    redis: RedisOption = None,
    merge: MergeOption = False,
    owner_column: OwnerOption = None,
    column: MapOption = None,
    delimiter: DelimiterOption = ",",
    batch: BatchOption = 1000,
    concurrency: ConcurrencyOption = 4,
    retries: RetriesOption = 20,
    wait: WaitOption = False,
    rejected_max: RejectedMaxOption = 1000,
    rejects: RejectsOption = None,
    label: LabelOption = "",
    queued: QueuedOption = False,
    rounds: RoundOption = False,
    url: UrlOption = DEFAULT_URL,
    key: KeyOption = None,
) -> None:
    """Post every line of a CSV file to a leaderboard, or copy a sorted set of Redis.

    Each line is one post. Its id is made of the content of the file, the mapping and the line. After an import was
    stopped, run the same command again: it sends every line, and those that counted are duplicates. The service knows
    them for 30 days (its setting post_id_retention_s). An edited file is another file, and another mapping or label is
    another import, so all lines count again.

    Rejected lines are listed with their numbers, and the exit code is then 1. All other lines stay applied. To add the
    rejected lines, correct the file that --rejects wrote and import that file.

    Batches are sent one at a time if their order matters: if a mapped column merges by `last`, or the board breaks ties
    by `earliest`.

    A sorted set may change while it is copied. Each score replaces the owner's value, so a second import once Redis is
    at rest makes both equal, except that members which were removed from Redis stay.

    The leaderboard must exist. For example:

        rankcurve board create season --column xp:sum:high
        rankcurve import season players.csv --owner-column id --column xp=score
        rankcurve import --redis redis://localhost:6379 KEY_IN_REDIS season
    """
    source = choose_source(file, owner_column, delimiter, label, redis, merge=merge, queued=queued)
    job = Job(board, tuple(column or ()), batch, concurrency, rejected_max, rejects, queued, rounds)
    patient = Retries(attempts_max=retries + 1, before_first_answer=wait)
    try:
        call_service(url, key, lambda client: source.import_into(client, job), patient)
    except UnusableSourceError as cause:
        fail(str(cause))
    except OSError as cause:
        fail(f"{cause.filename or file}: {cause.strerror}")


def choose_source(
    file: Path | None,
    owner_column: str | None,
    delimiter: str,
    label: str,
    redis: tuple[str, str] | None,
    *,
    merge: bool,
    queued: bool,
) -> CsvFile | SortedSet:
    """Return what the import reads. Raises typer.BadParameter if the options do not go together."""
    if redis is not None:
        if file or owner_column or delimiter != "," or label or queued:
            raise typer.BadParameter("--redis URL KEY takes no file, --owner-column, --delimiter, --label or --queued")
        return SortedSet(*redis, merge=merge)
    if file is None or owner_column is None or merge:
        raise typer.BadParameter("give FILE.csv and --owner-column, or --redis URL KEY, which may have --merge")
    return CsvFile(file, owner_column, parse_delimiter(delimiter), label)


def parse_delimiter(text: str) -> str:
    """Return one character that can separate cells. Raises typer.BadParameter."""
    delimiter = "\t" if text in ("tab", "\\t") else text
    if len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise typer.BadParameter("--delimiter is one character, or `tab`")
    return delimiter
