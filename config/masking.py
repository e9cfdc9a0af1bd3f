"""Why here: settings are printed, logged and quoted in errors, and a store's address may carry a password.

The one rule: whatever shows a setting's value to anyone passes it through `masked` first.
"""

import re

# Greedy up to the last @: a password may itself hold @ or /. Masking too much is the safe mistake.
_PASSWORD = re.compile(r"(?<=://)([^/@:]*):\S*@")


def masked(text: str) -> str:
    """Replace the password of every URL in `text` by three stars: postgresql://user:***@host/name."""
    return _PASSWORD.sub(r"\1:***@", text)
