"""Calls the service for a command, and reports failures to the shell.

Scripts rely on the exit codes: 0 for done, 1 for failed, with one line on stderr, and 2 for wrong arguments. Neither a
user nor a service can cause a traceback.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rankcurve import ApiError, AsyncClient, RankcurveError, Retries, UnreachableError
from rankcurve.errors import one_line

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "RANKCURVE_URL"
KEY_VARIABLE = "RANKCURVE_KEY"
RETRIES = Retries(attempts_max=3, before_first_answer=False)
TIMEOUT_S = 120.0

URL_OPTION = Parameter(
    "url",
    Parameter.KEYWORD_ONLY,
    default=DEFAULT_URL,
    annotation=Annotated[str, typer.Option("--url", envvar=URL_VARIABLE, help="Address of the service.")],
)
KEY_OPTION = Parameter(
    "api_key",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        str | None,
        typer.Option("--key", envvar=KEY_VARIABLE, help="API key. Set the variable instead to keep it out of `ps`."),
    ],
)
BoardArgument = Annotated[str, typer.Argument(metavar="BOARD", help="Id of the leaderboard.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
LimitOption = Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many.")]

HINTS: Mapping[str, str] = {
    "unknown_board": "to list the boards: rankcurve board list; to create one: rankcurve board create --help",
    "unknown_pool": "to list the pools: rankcurve pool list; to create one: rankcurve pool create CLIENT POOL",
    "unknown_region": "to list the regions: rankcurve pool show CLIENT POOL",
    "no_resource_available": "to see the regions: rankcurve pool show CLIENT POOL",
    "unauthorized": f"pass a key with --key or {KEY_VARIABLE}",
    "forbidden": "this needs a key with a higher role (reader < writer < ops)",
    "no_job_process": "start the service with --jobs embedded, or a `rankcurve jobs` process",
    "no_curve": "to fit the first one: rankcurve refresh BOARD",
}
AWAY_HINT = f"start it with `rankcurve serve`, or name another with --url or {URL_VARIABLE}"
T = TypeVar("T")


def fail(message: str, *, code: int = 1) -> NoReturn:
    typer.echo(f"error: {one_line(message)}", err=True)
    raise typer.Exit(code)


def say_waiting(error: RankcurveError) -> None:
    typer.echo(f"waiting for the service: {one_line(str(error))}", err=True)


async def take(records: AsyncGenerator[T, None], limit: int) -> list[T]:
    found: list[T] = []
    async with aclosing(records):
        async for record in records:
            found.append(record)
            if len(found) == limit:
                break
    return found


def service_command(
    retries: Retries = RETRIES, timeout_s: float = TIMEOUT_S
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """Decorate a coroutine function whose first parameter is an AsyncClient, to make it a command.

    The command has the function's other parameters, and the options --url and --key.
    """

    def decorate(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        def command(*, url: str, api_key: str | None, **arguments: Any) -> None:
            call_service(url, api_key, lambda client: function(client, **arguments), retries, timeout_s)

        return with_options(command, function, (URL_OPTION, KEY_OPTION), without="client")

    return decorate


def with_options(
    command: Callable[..., None], function: Callable[..., object], options: Sequence[Parameter], *, without: str = ""
) -> Callable[..., None]:
    """Give `command` the help and the parameters of `function`, except the parameter `without`, and add `options`."""
    parameters = [each for each in signature(function, eval_str=True).parameters.values() if each.name != without]
    command.__doc__ = function.__doc__
    # typer reads the arguments and options of a command from its signature.
    command.__signature__ = Signature([*parameters, *options])  # type: ignore[attr-defined]
    return command


def call_service(
    url: str,
    key: str | None,
    action: Callable[[AsyncClient], Awaitable[None]],
    retries: Retries = RETRIES,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Run `action` with a client of the service. On a RankcurveError, print it on one line and exit with code 1.

    The line ends with a hint of what to do.
    """

    async def session() -> None:
        async with AsyncClient(url, key, retries=retries, timeout_s=timeout_s, on_unreachable=say_waiting) as client:
            await action(client)

    try:
        asyncio.run(session())
    except RankcurveError as error:
        hint = HINTS.get(error.code) if isinstance(error, ApiError) else None
        hint = AWAY_HINT if isinstance(error, UnreachableError) else hint
        fail(f"{error} — {hint}" if hint else str(error))
    except BrokenPipeError:
        # In `rankcurve top … | head`, `head` has closed the pipe. Without the next line, Python would print another
        # error when it flushes its output at the end.
        sys.stderr.close()
        raise typer.Exit(1) from None
