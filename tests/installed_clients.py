"""Find clients that others wrote, and generators of clients. `tests/install_missing.sh` puts them in `build/clients`.

A test whose client is missing fails. It is never skipped.
"""

from pathlib import Path

from tests.servers import INSTALL_HINT, ServerMissingError, program

CLIENTS = Path(__file__).parent / "clients"
_BUILD = Path(__file__).parents[1] / "build" / "clients"


def node() -> Path:
    return program("node", "nodejs")


def javascript_modules() -> Path:
    """Return the folder of the npm packages, which `tests/clients/package.json` lists."""
    return _installed("npm", "package-lock.json") / "node_modules"


def newtonsoft() -> Path:
    """Return a library that Unity has. This build of it is one for Unity, a little older than Unity's own."""
    plugins = javascript_modules() / "jillejr.newtonsoft.json-for-unity" / "Plugins"
    return plugins / "Newtonsoft.Json Editor" / "Newtonsoft.Json.dll"


def python_generator_modules() -> Path:
    """Return the folder of the Python packages of openapi-python-client."""
    return _installed("generator", "openapi_python_client.txt")


def _installed(tool: str, lock: str) -> Path:
    stamp = _BUILD / tool / ".installed"
    if not stamp.exists() or stamp.read_bytes() != (CLIENTS / lock).read_bytes():
        raise ServerMissingError(f"build/clients/{tool} is not what {lock} names: {INSTALL_HINT}")
    return stamp.parent
