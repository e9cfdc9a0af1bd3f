"""Runs the work of a command on the store itself, without a service, and reads the settings for it.

Settings come from the command line, the environment, a TOML file and defaults; the first of these that sets a setting
wins.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from config import ConfigError, Settings, load
from config.masking import masked
from service.commands.request_commands import option
from service.commands.target import fail, with_options
from storage.errors import StorageError, StoreLockedError

if TYPE_CHECKING:
    from storage.store import Store

# The settings that have an option of their own, each with the flag and the help text of the option.
FLAGS = {
    "host": ("--host", "Address to listen on."),
    "port": ("--port", "Port to listen on."),
    "jobs_port": ("--port", "Port of /healthz, /readyz and /metrics."),
    "store": ("--store", "Address of the store, like sqlite:///data/rankcurve.db."),
    "memcached_servers": ("--memcached", "memcached servers that share curves: HOST:PORT, several with commas."),
    "jobs": ("--jobs", "embedded: this service runs the jobs, too. none: it runs no jobs."),
    "workers": ("--workers", "Number of processes that serve; on SQLite, one more writes."),
}
SETTING_OPTIONS = {name: option(name, str, about, flag) for name, (flag, about) in FLAGS.items()}
SETTING_OPTIONS["read_only"] = option(
    "read_only", bool, "Refuse all writes, while the store is being copied.", "--read-only"
)
CONFIG_OPTION = option(
    "config", Path, "TOML file with settings. Default: the file that RANKCURVE_CONFIG names.", dir_okay=False
)
SET_OPTION = option(
    "assignments", list[str], "Any setting of `rankcurve config`; repeatable.", "--set", metavar="NAME=VALUE"
)


def settings_command(
    *names: str, create_store: bool | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a function whose first parameter is the settings, to make it a command.

    The command has --config, --set and an option for each setting in `names`. `create_store` says whether the command
    may create the store. If it is None, the settings decide.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        def command(*, config: Path | None, assignments: list[str] | None, **arguments: Any) -> None:
            named = {name: arguments.pop(name) for name in names}
            function(read_settings({**named, "create_store": create_store}, assignments, config), **arguments)

        options = (*(SETTING_OPTIONS[name] for name in names), CONFIG_OPTION, SET_OPTION)
        return with_options(command, function, options, without="settings")

    return decorate


def read_settings(named: Mapping[str, object], assignments: list[str] | None, toml_path: Path | None) -> Settings:
    """Read the effective settings. If any setting is invalid, list all invalid settings and exit with code 2.

    `named` maps a setting, such as `port`, to the value of its own option --port, or to None if the user did not give
    the option. `assignments` has the NAME=VALUE texts of --set.
    """
    overrides: dict[str, object] = {}
    for text in assignments or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"--set {masked(text)}: write NAME=VALUE")
        overrides[name] = value
    overrides |= {name: value for name, value in named.items() if value is not None}
    try:
        return load(overrides, os.environ, toml_path)
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(f"error: {problem}", err=True)
        raise typer.Exit(2) from None


T = TypeVar("T")
STOP_FIRST = "stop the service first (`systemctl stop rankcurve`, or Ctrl-C where it runs)"


@contextmanager
def failing_plainly(if_locked: str) -> Iterator[None]:
    """End the command if the `with` block raises a StorageError: print one line and exit with code 1.

    If a service has locked the store, the line begins with the text `if_locked`.
    """
    try:
        yield
    except StoreLockedError as error:
        fail(f"{if_locked}: {error.detail}")
    except StorageError as error:
        fail(error.detail)


def run_on_store(
    settings: Settings,
    work: Callable[[Store], Awaitable[T]],
    *,
    if_locked: str = f"{STOP_FIRST}, because the command opens the store itself",
) -> T:
    """Open the store that `settings` names, call `work` with it, close it, and return the result of `work`.

    On a StorageError, fail as `failing_plainly` does.
    """

    async def session() -> T:
        # Imported here, because the other commands need no database driver.
        from service.stores import open_store
        from service.telemetry.logs import logging_to_stderr

        with logging_to_stderr():
            store = await open_store(settings)
            try:
                return await work(store)
            finally:
                await store.close()

    with failing_plainly(if_locked):
        return asyncio.run(session())


def refuse_one_file(settings: Settings, reason: str) -> None:
    """Exit with code 2 if the store is a SQLite file. `reason` says why the command needs another store."""
    from service.stores import is_shared  # imported here: other commands need no database driver

    if not is_shared(settings.store):
        fail(f"{settings.store}: a SQLite file {reason}", code=2)
