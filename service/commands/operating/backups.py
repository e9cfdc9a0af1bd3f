"""`rankcurve backup` copies a SQLite store into one file. `rankcurve restore` replaces the store with such a file.

PostgreSQL has better tools of its own, so these commands refuse a PostgreSQL store.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from service.commands.settings import ConfigOption, SetOption, StoreOption, read_settings
from service.commands.target import fail
from storage.errors import StorageError, StoreLockedError

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, show_default=False)]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Move an existing store aside, to *.replaced.")]


def backup(
    file: FileArgument,
    store: StoreOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Copy the SQLite store into a new FILE. The service may keep accepting posts. The store must be on this machine.

    The copy holds the store at one moment, with every post that was acknowledged before that moment. The command checks
    the copy before it gives it the name FILE.

    Example:
        rankcurve backup /backup/rankcurve-$(date +%F).db
    """
    from storage.engines.sqlite_backup import back_up_store  # imported here: the other commands need no driver

    database = _file_of(store, assignments, config)
    begun_s = time.perf_counter()
    try:
        size_bytes = back_up_store(database, file)
    except StorageError as error:
        fail(error.detail)
    typer.echo(f"{file}: {size_bytes:,} bytes in {time.perf_counter() - begun_s:.1f} s, sound")


def restore(
    file: FileArgument,
    replace: ReplaceOption = False,
    store: StoreOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Replace the SQLite store with a backup. Stop the service first, and start it again afterwards.

    The command checks FILE first and leaves it unchanged. With --replace, an existing store is kept beside the new one,
    together with its write-ahead log.
    """
    from storage.engines.sqlite_backup import restore_store as restore_file

    database = _file_of(store, assignments, config)
    try:
        aside = restore_file(file, database, replace=replace)
    except StoreLockedError as error:
        fail(f"stop the service first: {error.detail}")
    except StorageError as error:
        fail(error.detail)
    typer.echo(
        f"{database} now has the content of {file}"
        + (f"; the earlier store is kept as {', '.join(map(str, aside))}" if aside else "")
    )


def _file_of(store: str | None, assignments: list[str] | None, config: Path | None) -> Path:
    """Return the path of the SQLite store in the settings. Exit with code 2 if the store is no file."""
    from service.stores import SQLITE_PREFIX, is_shared

    settings = read_settings({"store": store}, assignments, config)
    if is_shared(settings.store):
        typer.echo("error: use pg_dump or pg_basebackup for a PostgreSQL store; see docs/operating.md", err=True)
        raise typer.Exit(2)
    return Path(settings.store.removeprefix(SQLITE_PREFIX))
