"""Build the TypeScript client: make its types from the OpenAPI document, and compile it.

python clients/typescript/build.py NODE_MODULES DIST

NODE_MODULES has openapi-typescript and typescript. The client is written to DIST.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from config import Settings
from service.api import ROUTES
from service.health_routes import add_health_routes
from service.http.openapi import read_document

HERE = Path(__file__).parent
_TIMEOUT_S = 300


def build(node_modules: Path, dist: Path) -> None:
    """Raise CalledProcessError if a tool finds a fault."""
    with tempfile.TemporaryDirectory(prefix="rankcurve-typescript-") as name:
        folder = Path(name)
        shutil.copytree(HERE / "src", folder / "src")
        shutil.copy(HERE / "tsconfig.json", folder)
        document = read_document(add_health_routes(ROUTES), Settings())
        (folder / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
        tool = node_modules / "openapi-typescript" / "bin" / "cli.js"
        _run("node", tool, folder / "openapi.json", "--output", folder / "src" / "api.ts")
        _run("node", node_modules / "typescript" / "bin" / "tsc", "--project", folder, "--outDir", dist)


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, timeout=_TIMEOUT_S, stdout=sys.stderr)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
