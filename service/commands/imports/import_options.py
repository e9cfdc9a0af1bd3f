"""The command line of `rankcurve import`: every argument and option with its bounds and its help.

The help says what a person at a terminal needs to choose. Nothing in this module knows what an option does.
"""

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
        help="Which heading of the file feeds which column of the leaderboard, repeatable: xp=score posts what stands "
        "under `score` as `xp`; xp alone means xp=xp. Default: every column that the file has a heading for.",
    ),
]
DelimiterOption = Annotated[str, typer.Option(help="What separates cells; `tab` for a tabulator.")]
BatchOption = Annotated[int, typer.Option(min=1, max=BATCH_POSTS_MAX, help="Lines a request.")]
ConcurrencyOption = Annotated[
    int, typer.Option(min=1, max=CONCURRENCY_MAX, help="Requests at a time; one where order matters.")
]
RetriesOption = Annotated[
    int, typer.Option(min=0, max=1000, help="Further attempts a request while the service is busy or away.")
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait", help="Wait, as --retries says, for a service that is not there yet; otherwise that ends the import."
    ),
]
RejectedMaxOption = Annotated[
    int,
    typer.Option(
        min=0,
        help="Stop once more lines than this were rejected, those before a resumption included: the mapping may be "
        "wrong. What was applied stands; run again with a larger number to go on.",
    ),
]
RejectsOption = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="Write the rejected lines here as they are, headings first: correct them and import this file. "
        "Why each was rejected stands in FILE.reasons.",
    ),
]
RoundOption = Annotated[
    bool,
    typer.Option(
        "--round",
        help="Round values with more digits than their column's scale, like 48.682000000000002 from a binary number, "
        "and say how many; otherwise such a line is rejected.",
    ),
]
LabelOption = Annotated[
    str,
    typer.Option(
        help="Part of the post ids: a new label counts the same content once more, on purpose or because two files "
        "are equal by chance."
    ),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        dir_okay=False,
        help="Where an unfinished import is noted. Default: beside FILE.csv. What was imported into columns of merge "
        "`sum` is noted in the same folder, in FILE.csv.BOARD.imported: the same file with other columns would add up "
        "again, so the command warns, and asks at a terminal.",
    ),
]
RestartOption = Annotated[bool, typer.Option("--restart", help="Start from the top, whatever was noted.")]
QueuedOption = Annotated[
    bool,
    typer.Option(
        "--queued",
        help="Have the lines applied soon instead of before the answer: faster, but of lines that are rejected when "
        "their turn comes only the service's journal tells.",
    ),
]
