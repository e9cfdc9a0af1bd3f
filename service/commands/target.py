"""The service that a command calls, and how failures reach the shell.

Every command exits with 0 (done), 1 (failed, with one line on stderr) or 2 (wrong arguments). A user or a service can
never cause a traceback.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, NoReturn

import typer

from service.client.client import ClientError, Patience, RefusedError, ServiceClient, UnreachableError
from service.client.client_answers import one_line

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "RANKCURVE_URL"
KEY_VARIABLE = "RANKCURVE_KEY"

UrlOption = Annotated[str, typer.Option("--url", envvar=URL_VARIABLE, help="Address of the service.")]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key", envvar=KEY_VARIABLE, show_envvar=True, help="API key. Set the variable instead to keep it out of `ps`."
    ),
]
BoardArgument = Annotated[str, typer.Argument(metavar="BOARD", help="Id of the leaderboard.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

HINTS: Mapping[str, str] = {
    "unknown_board": "to list the boards: rankcurve board list; to create one: rankcurve board create --help",
    "unknown_pool": "to list the pools: rankcurve pool list; to create one: rankcurve pool create CLIENT POOL",
    "unknown_region": "to list the regions: rankcurve pool show CLIENT POOL",
    "no_resource_available": "to see the regions: rankcurve pool show CLIENT POOL",
    "ops_key_needed": "in the store itself any key can be revoked: rankcurve keys revoke ID --store",
    "unauthorized": f"pass a key with --key or {KEY_VARIABLE}",
    "forbidden": "this needs a key with a higher role (reader < writer < ops)",
    "no_job_process": "start the service with --jobs embedded, or a `rankcurve jobs` process",
    "no_curve": "to fit the first one: rankcurve refresh BOARD",
}


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    key: str | None


def fail(message: str) -> NoReturn:
    typer.echo(f"error: {one_line(message)}", err=True)
    raise typer.Exit(1)


def explain_error(error: ClientError, *, away_hint: str | None = None) -> str:
    """Return the error, followed by a hint of what to do. `away_hint` is the hint if no service answers."""
    hint = HINTS.get(error.code) if isinstance(error, RefusedError) else None
    if isinstance(error, UnreachableError):
        hint = away_hint or f"start it with `rankcurve serve`, or name another with --url or {URL_VARIABLE}"
    return f"{error} — {hint}" if hint else str(error)


def say_waiting(error: ClientError) -> None:
    typer.echo(f"waiting for the service: {one_line(str(error))}", err=True)


def call_service(
    target: Target,
    action: Callable[[ServiceClient], Awaitable[None]],
    patience: Patience | None = None,
    *,
    away_hint: str | None = None,
) -> None:
    """Run `action` with a client of `target`. On a ClientError, print it on one line and exit with code 1."""

    async def session() -> None:
        async with ServiceClient(target.url, target.key, patience=patience, on_away=say_waiting) as client:
            await action(client)

    try:
        asyncio.run(session())
    except ClientError as error:
        fail(explain_error(error, away_hint=away_hint))
    except BrokenPipeError:
        # In `rankcurve top … | head`, `head` has closed the pipe. Without the next line, Python would print another
        # error when it flushes its output at the end.
        sys.stderr.close()
        raise typer.Exit(1) from None


def delete_if_confirmed(target: Target, path: str, name: str, question: str, *, yes: bool) -> None:
    """Delete the resource at a path of the service. Unless `yes` is true, ask `question` first."""
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)

    async def action(client: ServiceClient) -> None:
        await client.send_request("DELETE", path)
        typer.echo(f"deleted {name}", err=True)

    call_service(target, action)
