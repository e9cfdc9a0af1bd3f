"""Masks passwords and tokens in text.

The address of a store may contain a password, and settings end up in logs, errors and the output of commands. So all
code that shows the value of a setting calls `masked` first. If `masked` cannot tell whether a text is secret, it masks
the text.
"""

import re
from urllib.parse import unquote

_STARS = "***"
# A parameter is secret if its name ends in one of these words, like sslpassword, PGPASSWORD or RANKCURVE_KEY.
_SECRETS = ("key", "passfile", "passwd", "password", "pwd", "secret", "token")
_PARAMETER = re.compile(r"([\w%.-]+)\s*=\s*")
# The value of a parameter may be in quotes. Otherwise it may contain spaces, and ends before the next parameter.
_PARAMETER_VALUE = re.compile(r"'(?:[^'\\]|\\.)*'?|.*?(?=\s+[\w%.-]+\s*=|&|$)", re.DOTALL)
# The match extends to the last @, because a password may contain @ or /.
_USER_AND_PASSWORD = re.compile(r"([^\s:@/,=]*):(?!//).*@", re.DOTALL)
# In an address without @, the text after the colon counts as a password unless it is a port number.
_PASSWORD_WITHOUT_HOST = re.compile(r"(?<=://)([^\s:@/\[]*):(?!\d{1,5}(?:[/?#,]|$)).*", re.DOTALL)
_TOKEN = re.compile(r"(https?://)[^\s/:@]+@")


def masked(text: str) -> str:
    """Replace every password and token in `text` by three stars, as in postgresql://user:***@host/name."""
    text = _USER_AND_PASSWORD.sub(rf"\1:{_STARS}@", _without_parameters(text))
    if "@" not in text:
        text = _PASSWORD_WITHOUT_HOST.sub(rf"\1:{_STARS}", text)
    return _TOKEN.sub(rf"\1{_STARS}@", text)


def _without_parameters(text: str) -> str:
    """Mask the values of parameters with secret names, as in `?password=…` and `host=… password=…`."""
    parts, done = [], 0
    for found in _PARAMETER.finditer(text):
        if found.start() >= done and unquote(found[1]).lower().endswith(_SECRETS):
            value = _PARAMETER_VALUE.match(text, found.end())
            parts += [text[done : found.end()], _STARS]
            done = found.end() if value is None else value.end()
    return "".join((*parts, text[done:]))
