"""A worker process, which the supervisor starts by running this module, and orders through its standard input.

A worker that outlived its supervisor would hold the port and the store, with nobody to stop it. So the worker stops
when the pipe that carried the orders closes. If stopping takes longer than `stop_s_max` seconds, it exits without
cleaning up.
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
import threading
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import structlog

from config import Settings
from service.contract.problems import ServiceError
from service.serve import open_jobs, open_owner, open_service, run_process, run_until_stopped, watch_stop_signals
from service.stores import OwnerSockets
from service.telemetry.metrics.node_metrics import NodeMember
from service.telemetry.metrics.process import Metrics
from storage.errors import StorageError

from .supervisor import BEAT_S, Orders, Report, decode_orders, encode_line, stop_s_max

log = structlog.get_logger(__name__)
ORDERS_DESCRIPTOR = 0


def main() -> None:
    """Carry out the orders until SIGTERM arrives or the supervisor ends."""
    reports = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # only reports go to the supervisor; everything else that is printed goes to standard error
    # Ctrl-C reaches every process in a terminal. Ignore it here, because the supervisor passes it on.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Don't read from sys.stdin. The thread that waits for the supervisor's end would hold the lock of sys.stdin while
    # the interpreter exits.
    with open(ORDERS_DESCRIPTOR, "rb", buffering=0, closefd=False) as pipe:
        orders = decode_orders(pipe.readline())
    settings = Settings(**orders.settings)

    def send_report(report: Report) -> None:
        reports.write(encode_line(report) + b"\n")

    def report_ready(addresses: list[str]) -> None:
        log.info("started", work=orders.work, addresses=addresses)
        structlog.get_config()["logger_factory"]().flush()  # so that the supervisor's line `serving` is the last
        send_report(Report("ready"))
        os.set_blocking(reports.fileno(), False)  # so that a hanging supervisor makes no other process hang
        give_sign_of_life()

    def give_sign_of_life() -> None:
        with suppress(OSError):  # the supervisor has ended
            reports.write(b"\n")
        asyncio.get_running_loop().call_later(BEAT_S, give_sign_of_life)

    async def work(settings: Settings, metrics: Metrics) -> None:
        stop = watch_stop_signals(signal.SIGTERM)
        end_with_supervisor(asyncio.get_running_loop(), stop, orders.folder, stop_s_max(settings))
        await run_until_stopped(_open_process(orders, settings, metrics), stop, report_ready)

    try:
        run_process(settings, Metrics(NodeMember(Path(orders.folder), orders.name)), work, name=orders.name)
        return
    except (StorageError, ServiceError) as error:
        send_report(Report("refused", str(error)))
    except OSError as error:
        send_report(Report("refused", f"cannot serve on {settings.host}: {error.strerror or error}"))
    sys.exit(1)


def _open_process(orders: Orders, settings: Settings, metrics: Metrics) -> AbstractAsyncContextManager[list[str]]:
    if orders.work == "jobs":
        return open_jobs(settings, metrics)
    if orders.work == "own":
        return open_owner(settings, metrics, [socket.socket(fileno=number) for number in orders.listening])
    owner = OwnerSockets.in_folder(Path(orders.folder)) if orders.work == "front" else None
    return open_service(settings, metrics, reuse_port=True, owner=owner)


def end_with_supervisor(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, folder: str, stop_s_max: float) -> None:
    def watch() -> None:
        os.read(ORDERS_DESCRIPTOR, 1)  # no more bytes are sent, so this call only returns when the supervisor ends
        shutil.rmtree(folder, ignore_errors=True)  # the supervisor, which would otherwise do this, has ended
        detail = "stopping, because without a supervisor nobody would replace or stop this process"
        log.error("supervisor_gone", detail=detail)
        loop.call_soon_threadsafe(stop.set)
        threading.Event().wait(stop_s_max)
        os._exit(1)

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


if __name__ == "__main__":
    main()
