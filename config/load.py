"""Loads the settings from all sources: defaults, TOML file, environment and command line.

Whoever repairs a configuration wants to see everything that is wrong with it at once. So a single error reports all
unknown names and all bad values, each with its source.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, SecretStr, TypeAdapter, ValidationError

from config.masking import masked
from config.settings import Settings

PREFIX = "RANKCURVE_"
FILE_VARIABLE = "RANKCURVE_CONFIG"
# These variables are allowed, but they are not settings. Commands that send requests to a service read them.
CLIENT_VARIABLES = frozenset({"RANKCURVE_URL", "RANKCURVE_KEY"})
SECRETS = tuple[SecretStr, ...]  # the type of settings whose values are never shown, not even masked
# Variables that Kubernetes sets in containers for a Service named `rankcurve` or `rankcurve-…`. `load` ignores them.
_OF_KUBERNETES = re.compile(
    r"RANKCURVE_([A-Z0-9_]+_)?(SERVICE_HOST=.*|SERVICE_PORT(_[A-Z0-9_]+)?=\d+"
    r"|PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://.*|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*)"
)


class ConfigError(ValueError):
    """The configuration cannot be used. `problems` lists all reasons, one sentence each, with all values masked."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def load(overrides: Mapping[str, object], environ: Mapping[str, str], toml_path: Path | str | None = None) -> Settings:
    """Load the settings, merged from the defaults, the TOML file, the environment and `overrides`, in this order.

    A later source overrides an earlier one. The TOML file is `toml_path`, or else the file that RANKCURVE_CONFIG names.
    If neither is given, no file is read. A value of None in `overrides` is ignored.

    Raises ConfigError, which lists all problems.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    environ = {name: text for name, text in environ.items() if not _OF_KUBERNETES.fullmatch(f"{name}={text}")}
    for name, raw, source, is_text in _given(overrides, environ, toml_path, problems):
        try:
            adapter = _adapter(name)  # a value from TOML or Python must already have the setting's type
            values[name] = adapter.validate_strings(raw) if is_text else adapter.validate_python(raw, strict=True)
            sources[name] = source
        except ValidationError as error:
            problems.extend(f"{source}: {name} is {_shown(name, raw)}; {_reason(each)}" for each in error.errors())
    if problems:
        raise ConfigError(tuple(problems))
    settings = Settings(**values)
    settings._sources = sources
    return settings


def _given(
    overrides: Mapping[str, object], environ: Mapping[str, str], toml_path: Path | str | None, problems: list[str]
) -> Iterator[tuple[str, object, str, bool]]:
    """Yield (setting, value, source, whether to parse the value) for each value given. List bad names in `problems`."""
    path = toml_path or environ.get(FILE_VARIABLE)
    for name, raw in _file_values(path, problems).items():
        if _known(name, str(path), name, problems):
            yield name, raw, str(path), False
    for variable, text in sorted(environ.items()):
        if variable.startswith(PREFIX) and variable != FILE_VARIABLE and variable not in CLIENT_VARIABLES:
            name = variable.removeprefix(PREFIX).lower()
            # Accept only upper case. Otherwise RANKCURVE_Port would be a second name for the same setting.
            if _known(name if variable.isupper() else variable, "environment", variable, problems):
                yield name, text, variable, True
    for name, raw in overrides.items():
        if raw is not None and _known(name, "command line", name, problems):
            yield name, raw, "command line", isinstance(raw, str)


def _file_values(path: Path | str | None, problems: list[str]) -> Mapping[str, object]:
    if not path:
        return {}
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValueError: the file is not UTF-8 or TOML, or the path has a NUL
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        problems.append(f"{path}: cannot be read: {reason}")
        return {}


def _known(name: str, source: str, written: str, problems: list[str]) -> bool:
    if name in Settings.model_fields:
        return True
    near = difflib.get_close_matches(name.removeprefix(PREFIX).lower(), Settings.model_fields, n=1)
    hint = ""
    if near:
        hint = f"; did you mean {PREFIX + near[0].upper() if source == 'environment' else near[0]}?"
    problems.append(f"{source}: {masked(written)} is not a setting{hint}")
    return False


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Settings.model_fields[name]
    return TypeAdapter(field.rebuild_annotation(), config=ConfigDict(allow_inf_nan=False))


def _shown(name: str, raw: object) -> str:
    text = "not valid" if Settings.model_fields[name].annotation == SECRETS else repr(_masked_parts(raw))
    return text if len(text) <= 80 else text[:77] + "..."


def _masked_parts(raw: object) -> object:
    if isinstance(raw, str):
        return masked(raw)
    if isinstance(raw, list):
        return [_masked_parts(part) for part in raw]
    if isinstance(raw, dict):
        return {name: _masked_parts(f"{name}={part}") for name, part in raw.items()}
    return raw


def _reason(error: Any) -> str:
    return str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
