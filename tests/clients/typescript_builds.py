"""Build the TypeScript client, and serve pages that use it."""

import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.clients.served import serving_app
from tests.installed_clients import javascript_modules, node
from tests.service.real_service import ROOT, WAIT_S, environment


def build_typescript(folder: Path) -> Path:
    """Build the client as `make typescript` does. Return the folder with the JavaScript files."""
    dist = folder / "dist"
    compiler = javascript_modules() / "typescript/bin/tsc"
    command: list[str | Path] = [node(), compiler, "--project", ROOT / "clients/typescript", "--outDir", dist]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr + done.stdout
    shutil.copy(ROOT / "clients/typescript/package.json", folder)  # says that the files are modules
    return dist


@asynccontextmanager
async def serving_site(folders: Mapping[str, Path]) -> AsyncIterator[str]:
    """Serve folders by their paths, from an address of their own."""
    app = web.Application()
    for path, folder in folders.items():
        app.router.add_static(path, folder)
    async with serving_app(app) as site:
        yield site
