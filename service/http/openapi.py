"""Reads this service's OpenAPI 3.1 document, `openapi.json`, which `docs/write_reference.py` writes from the routes.

Where a setting defines a limit, `openapi.json` has the setting's name, which `read_document` replaces by its value.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from service.contract.api_keys import Role
from service.contract.routes import Route

FILE = Path(__file__).parent / "openapi.json"
_BOUNDS = ("maximum", "maxItems")  # JSON Schema keywords whose value may be the name of a setting


def read_document(routes: Sequence[Route], settings: Any) -> dict[str, Any]:
    """Read the OpenAPI document for a service with these routes and settings."""
    document: dict[str, Any] = _with_bounds(msgspec.json.decode(FILE.read_bytes()), settings)
    document["info"]["version"] = service_version()
    served = {route.path for route in routes}
    document["paths"] = {path: methods for path, methods in document["paths"].items() if path in served}
    if settings.anonymous_role == "reader":
        for route in routes:
            if route.role is Role.READER and not route.needs_key:
                document["paths"][route.path][route.method.lower()]["security"].append({})
    return document


def _with_bounds(part: Any, settings: Any) -> Any:
    if isinstance(part, list):
        return [_with_bounds(each, settings) for each in part]
    if not isinstance(part, dict):
        return part
    return {
        keyword: getattr(settings, value)
        if keyword in _BOUNDS and isinstance(value, str)
        else _with_bounds(value, settings)
        for keyword, value in part.items()
    }


@cache
def service_version() -> str:
    try:
        return version("rankcurve")
    except PackageNotFoundError:  # the service runs from a source tree
        return "0"
