"""Describes each setting as a row, for the command `rankcurve config`, for docs/settings.md and for default.toml.

All three are made from the declarations, so none of them can lack a setting or name an old default.
"""

import ast
import inspect
from functools import cache
from itertools import pairwise
from typing import Literal, NamedTuple, get_args, get_origin

from config import settings as declarations
from config.masking import masked
from config.settings import Settings


class SettingRow(NamedTuple):
    name: str
    value: str
    unit: str
    bounds: str
    description: str
    source: str


def describe(settings: Settings) -> list[SettingRow]:
    """Describe each setting as a row, in the order of the declarations. Secrets in the values are masked."""
    return [
        SettingRow(
            name=name,
            value=_shown(getattr(settings, name)),
            unit=_unit(name),
            bounds=_bounds(name),
            description=_descriptions().get(name, ""),
            source=settings._sources.get(name, "default"),
        )
        for name in Settings.model_fields
    ]


@cache
def _descriptions() -> dict[str, str]:
    # pydantic can collect the texts under the settings, too, but then every start of a service would read the source.
    found: dict[str, str] = {}
    groups = [each for each in ast.parse(inspect.getsource(declarations)).body if isinstance(each, ast.ClassDef)]
    for declared, text in (pair for group in groups for pair in pairwise(group.body)):
        match declared, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(description))):
                found[name] = " ".join(description.split())
    return found


def _unit(name: str) -> str:
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["unit"]) if isinstance(extra, dict) else ""


def _bounds(name: str) -> str:
    field = Settings.model_fields[name]
    low = [_number(limit.ge) for limit in field.metadata if hasattr(limit, "ge")]
    high = [_number(limit.le) for limit in field.metadata if hasattr(limit, "le")]
    if low and high:
        return f"{low[0]} to {high[0]}"
    if field.annotation is bool:
        return "true, false"
    return ", ".join(map(str, get_args(field.annotation))) if get_origin(field.annotation) is Literal else ""


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


def _shown(value: str | bool | float | tuple[object, ...]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return masked(",".join(map(str, value))) or "none"
    return masked(value) if isinstance(value, str) else _number(value)
