"""axe-core judges a page: what keeps people from using it who can't see it, or not well, or have no mouse.

The rule: all its rules, best practices included; none is switched off.
"""

from __future__ import annotations

from functools import cache

from tests.browser import Page
from tests.jolokia_clients import javascript_modules

_JUDGE = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.flatMap((rule) =>
  rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary.replace(/\\s+/g, " ")}`)))"""


@cache
def _axe() -> str:
    return (javascript_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """What is wrong with a page as it is now: rule, element and what would mend it."""
    if not await page.evaluate("'axe' in globalThis"):
        await page.evaluate(_axe())
    return list(await page.evaluate(_JUDGE))
