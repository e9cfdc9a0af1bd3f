"""The command line of `rankcurve import`: every argument and option with its bounds and its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CONCURRENCY_MAX = 64
BATCH_POSTS_MAX = 10_000

FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE.csv", exists=True, dir_okay=False, show_default=False, help="CSV in UTF-8, headings first."
    ),
]
OwnerOption = Annotated[str, typer.Option(help="Heading of the column that holds the owner.", show_default=False)]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "-c",
        metavar="COLUMN=HEADING",
        help="The column of the leaderboard and the heading of the file that feeds it; repeatable. xp=score posts the "
        "values under `score` as `xp`; xp alone means xp=xp. Default: every column that the file has a heading for.",
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
        help="Stop once more lines than this were rejected, because the mapping may be wrong. Earlier runs of the same "
        "import count, too. Applied lines stay applied; to continue, run again with a larger number.",
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
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="File that notes an unfinished import. Default: beside FILE.csv. In the same folder, "
        "FILE.csv.BOARD.imported notes imports into columns of merge `sum`. The same file with another mapping would "
        "add its values again, so the command warns, and asks at a terminal.",
    ),
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Start from the first line, whatever was noted.")]
QueuedOption = Annotated[
    bool,
    typer.Option(
        "--queued",
        help="Queue the lines: the service applies them soon after its answer, which is faster. Lines that are "
        "rejected when they are applied are listed only in the service's journal.",
    ),
]
