"""`rankcurve serve` and `rankcurve jobs` run the API, the jobs, or both, in one process or in several.

`rankcurve config` shows the effective settings and their sources; the package `config` masks the secrets.
"""

import os
from collections.abc import Callable
from functools import partial

from config import Settings, describe
from service.commands.operating.own_store import refuse_one_file, settings_command
from service.commands.tables import show_table
from service.commands.target import fail
from service.contract.problems import ServiceError
from service.stores import is_shared
from storage.errors import StorageError, StoreLockedError


@settings_command("host", "port", "store", "memcached_servers", "jobs", "workers", "read_only")
def serve(settings: Settings) -> None:
    """Serve leaderboards over HTTP. The service is ready when /readyz answers 200.

    After Ctrl-C or SIGTERM the service finishes the requests that it has accepted, then exits.

    Without options it listens on http://127.0.0.1:8080, keeps its data in data/rankcurve.db and runs the jobs, too.
    Every option is also a setting: see `rankcurve config`.

    Until there is an API key, the service listens on loopback only and treats every caller as ops. Create the first key
    like this, with --store if the service is not running:

        rankcurve keys create NAME --role ops
    """
    # On PostgreSQL, one process needs no supervisor. On a file, one worker runs beside the owner process.
    supervised_min = 2 if is_shared(settings.store) else 1
    # Imported here, because these modules load the whole server, and `--help` and other commands should start quickly.
    if _count_workers(settings) >= supervised_min:
        from service.processes.node import run
    else:
        from service.serve import serve_until_stopped as run
    _run(run, settings, settings.port)


@settings_command("host", "jobs_port", "store", "memcached_servers")
def run_jobs(settings: Settings) -> None:
    """Run only the background jobs, beside `rankcurve serve --jobs none` on the same PostgreSQL store.

    You can run any number of these processes. With --port (or the setting jobs_port), each answers monitoring requests
    on that port.
    """
    refuse_one_file(settings, "belongs to one service, which has its jobs: use rankcurve serve --jobs embedded")
    from service.serve import serve_until_stopped

    _run(partial(serve_until_stopped, only_jobs=True), settings, settings.jobs_port)


@settings_command()
def show_config(settings: Settings) -> None:
    """Print the effective settings with units, bounds and sources. Secrets are masked.

    The command line overrides the environment (RANKCURVE_PORT=…), which overrides the TOML file and the defaults.
    """
    show_table(("setting", "value", "unit", "bounds", "description", "source"), describe(settings))


def _count_workers(settings: Settings) -> int:
    """Choose how many processes serve requests. On a machine with one core, more than one only costs memory."""
    if settings.read_only and not is_shared(settings.store):
        return 0  # there is no owner process that several processes could share
    is_chosen = "workers" in settings.model_fields_set
    return settings.workers if is_chosen or (os.cpu_count() or 1) > 1 else 0


def _run(run: Callable[[Settings], None], settings: Settings, port: int) -> None:
    try:
        run(settings)
    except StoreLockedError as error:
        fail(f"{error.detail}; use that service over HTTP, stop it first, or serve another --store")
    except (StorageError, ServiceError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"cannot serve on {settings.host}:{port}: {error.strerror or error}")
