"""Check a page with axe-core, a tool that finds obstacles for users with poor sight or without a mouse.

The check uses all rules of axe-core, best practices included.
"""

from functools import cache

from tests.browser import Page
from tests.installed_clients import javascript_modules

_JUDGE = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.flatMap((rule) =>
  rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")}: ${node.failureSummary.replace(/\\s+/g, " ")}`)))"""


@cache
def _axe() -> str:
    return (javascript_modules() / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """Return the violations of axe-core's rules on the current page.

    Each text has the rule, the element and the remedy.
    """
    if not await page.evaluate("'axe' in globalThis"):
        await page.evaluate(_axe())
    return list(await page.evaluate(_JUDGE))
