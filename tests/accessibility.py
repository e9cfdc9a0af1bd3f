"""Checks a page with axe-core, which finds what people who see badly, or who have no mouse, could not use.

All rules of axe-core apply, best practices included; none is switched off.
"""

from functools import cache

from tests.browser import Page
from tests.jolokia_clients import javascript_modules

_JUDGE = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.flatMap((rule) =>
  rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary.replace(/\\s+/g, " ")}`)))"""


@cache
def _axe() -> str:
    return (javascript_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """Return the rule, the element and the remedy of each violation of the current page."""
    if not await page.evaluate("'axe' in globalThis"):
        await page.evaluate(_axe())
    return list(await page.evaluate(_JUDGE))
