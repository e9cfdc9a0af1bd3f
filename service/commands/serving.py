"""`rankcurve serve`: the API and its jobs in one process.

The rule: this module reads options and nothing else; what they start is `service.serve`.
"""

from __future__ import annotations

from typing import Annotated

import typer

from service.commands.settings import ConfigOption, SetOption, StoreOption, settings_from
from service.commands.target import fail
from service.problems import ServiceError
from storage.errors import StorageError, StoreLocked

JobsOption = Annotated[
    str | None, typer.Option(help="embedded: jobs run in this process; none: they do not.", show_default=False)
]


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=False)] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port to listen on.", show_default=False)] = None,
    store: StoreOption = None,
    jobs: JobsOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
) -> None:
    """Serve leaderboards over HTTP. Ready when /readyz answers 200; Ctrl-C or SIGTERM finishes what was accepted.

    Without options: http://127.0.0.1:8080, data in data/rankcurve.db, jobs included. Every option is also a setting:
    see `rankcurve config`.

    Without any API key the service listens on loopback only and treats every caller as ops. The first key:

        rankcurve keys create NAME --role ops
    """
    settings = settings_from({"host": host, "port": port, "store": store, "jobs": jobs}, assignments, config)
    # Here, because it pulls in the whole server: `--help` and the other commands stay quick.
    from service.serve import run

    try:
        run(settings)
    except StoreLocked as error:
        fail(f"{error.detail}: talk to it over HTTP, stop it first, or serve another --store")
    except (StorageError, ServiceError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot serve on {settings.host}:{settings.port}: {error.strerror or error}")
