"""Test how the tests drive a browser. A click reaches its element, even if the page moves it meanwhile."""

from tests.browser import open_page

MOVING = """(() => {
  document.body.innerHTML = '<p hidden style="height: 300px"></p>'
    + '<button>wanted</button><button id="other">other</button>';
  globalThis.clicks = [];
  addEventListener("pointerdown", (event) => clicks.push(event.target.textContent));
  addEventListener("click", (event) => clicks.push(event.target.textContent));
  const scroll = Element.prototype.scrollIntoView;
  Element.prototype.scrollIntoView = function (...given) {
    scroll.apply(this, given);
    queueMicrotask(() => { document.querySelector("p").hidden = false; }); // just after the click was aimed
  };
})()"""


async def test_a_click_reaches_its_element_though_the_page_moved_it_away(chromium_address: str) -> None:
    async with open_page(chromium_address) as page:
        await page.evaluate(MOVING)
        await page.click("button")
        assert await page.evaluate("clicks") == ["wanted", "wanted"], "the page saw no click beside the element"
        await page.click("#other")
        assert (await page.evaluate("clicks"))[2:] == ["other", "other"]
