"""`rankcurve serve` and `rankcurve jobs` run the API, the jobs, or both, in one process or in several.

`rankcurve config` shows the effective settings, and where each comes from. The package `config` masks the secrets.
"""

from collections.abc import Callable
from typing import Annotated

import typer

from config import Settings, describe, settings_table_markdown
from service.commands.settings import ConfigOption, SetOption, StoreOption, read_settings
from service.commands.tables import show_table
from service.commands.target import fail
from service.contract.problems import ServiceError
from storage.errors import StorageError, StoreLockedError

JobsOption = Annotated[
    str | None,
    typer.Option(help="embedded: this service runs the jobs, too. none: it runs no jobs.", show_default=False),
]
HostOption = Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, max=64, help="Number of processes that serve (PostgreSQL only).", show_default=False),
]
MemcachedOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT,…", help="memcached servers that share curves.", show_default=False),
]
MonitorPortOption = Annotated[
    int | None,
    typer.Option("--port", min=0, max=65535, help="Port of /healthz, /readyz and /metrics.", show_default=False),
]

MarkdownOption = Annotated[
    bool, typer.Option("--markdown", help="Print all settings as the table of docs/settings.md.")
]


def serve(
    host: HostOption = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on.", show_default=False)] = None,
    store: StoreOption = None,
    memcached: MemcachedOption = None,
    jobs: JobsOption = None,
    workers: WorkersOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Serve leaderboards over HTTP. The service is ready when /readyz answers 200.

    After Ctrl-C or SIGTERM the service finishes the requests that it has accepted, and ends.

    Without options it listens on http://127.0.0.1:8080, keeps its data in data/rankcurve.db and runs the jobs, too.
    Every option is also a setting: see `rankcurve config`.

    Without any API key the service listens on loopback only and gives every caller the role ops. Create the first key
    like this, with --store if the service does not run:

        rankcurve keys create NAME --role ops
    """
    named = {"host": host, "port": port, "store": store, "jobs": jobs, "workers": workers}
    settings = read_settings({**named, "memcached_servers": memcached}, assignments, config)
    # Imported here, because these modules load the whole server, and `--help` and other commands should start quickly.
    if settings.workers > 1:
        _refuse_one_file(settings, f"{settings.workers} workers would all write to it: use one")
        from service.processes.node import run
    else:
        from service.serve import serve_until_stopped as run
    _run(run, settings, settings.port)


def run_jobs(
    host: HostOption = None,
    port: MonitorPortOption = None,
    store: StoreOption = None,
    memcached: MemcachedOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Run only the background jobs, beside `rankcurve serve --jobs none` on the same PostgreSQL store.

    Any number of these processes may run. With --port (or the setting jobs_port), each process answers monitoring
    requests on that port.
    """
    named = {"host": host, "jobs_port": port, "store": store, "memcached_servers": memcached}
    settings = read_settings(named, assignments, config)
    _refuse_one_file(settings, "its jobs run in the process that serves it: use rankcurve serve --jobs embedded")
    from service.serve import run_jobs_until_stopped as run

    _run(run, settings, settings.jobs_port)


def show_config(markdown: MarkdownOption = False, config: ConfigOption = None, assignments: SetOption = None) -> None:
    """Print the effective settings with units, bounds and sources. Secrets are masked.

    Order of precedence: command line, environment (RANKCURVE_PORT=…), TOML file, default.
    """
    if markdown:
        typer.echo(settings_table_markdown(), nl=False)
        return
    rows = describe(read_settings({}, assignments, config))
    show_table(("setting", "value", "unit", "bounds", "description", "source"), rows)


def _refuse_one_file(settings: Settings, instead: str) -> None:
    """Exit with code 2 if only one process can open the store."""
    from service.stores import is_shared

    if not is_shared(settings.store):
        fail(f"{settings.store}: a SQLite file belongs to one process, and {instead}", code=2)


def _run(run: Callable[[Settings], None], settings: Settings, port: int) -> None:
    try:
        run(settings)
    except StoreLockedError as error:
        fail(f"{error.detail}; use that service over HTTP, stop it first, or serve another --store")
    except (StorageError, ServiceError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot serve on {settings.host}:{port}: {error.strerror or error}")
