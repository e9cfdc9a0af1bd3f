// Elements, made by calls only: text from the service is never read as HTML, whatever an owner is called.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An element: attributes, `onclick` and the like as listeners, then children; text is text. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element, likewise. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

let pressed = null; // what the pointer is held on
const waiting = new Map(); // parent -> children that come when it is let go

// A link that is drawn anew between press and release takes no click, nor does text stay selected.
addEventListener("pointerdown", (event) => (pressed = event.target), true);
for (const name of ["click", "pointerup", "pointercancel", "blur"]) {
  addEventListener(name, () => {
    if (name !== "pointerup") pressed = null; // a click may follow that
    setTimeout(() => {
      pressed = null;
      for (const [parent, children] of [...waiting]) show(parent, ...children);
    });
  }, name !== "blur");
}

/** Put `children` in the place of what is in `parent`. By its `data-key` what had the focus has it again, and what was
 * unfolded stays so. */
export function show(parent, ...children) {
  if (pressed !== null && parent.contains(pressed)) {
    waiting.set(parent, children);
    return;
  }
  waiting.delete(parent);
  const active = document.activeElement;
  const key = active && parent.contains(active) ? active.dataset.key : undefined;
  const unfolded = new Set([...parent.querySelectorAll("details[open] > summary")].map((summary) => summary.dataset.key));
  parent.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  for (const summary of parent.querySelectorAll("summary")) {
    if (unfolded.has(summary.dataset.key)) summary.parentElement.open = true;
  }
  if (key === undefined) return;
  const again = [...parent.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key);
  again?.focus({ preventScroll: true });
}

/** A name that somebody chose: kept apart from the direction of the text around it. */
export function named(text, properties = {}) {
  return el("bdi", properties, text);
}

/** Text for those who hear the page. */
export function unseen(text) {
  return el("span", { class: "unseen" }, text);
}

/** A section with a heading; `body` is where its content goes. */
export function panel(id, title, properties = {}) {
  const heading = el("h2", { id: `${id}-title`, tabindex: "-1" }, title);
  const aside = el("div", { class: "panel-aside" });
  const body = el("div", { class: "panel-body" });
  const section = el(
    "section",
    { id, "aria-labelledby": `${id}-title`, ...properties, class: `panel ${properties.class ?? ""}` },
    el("div", { class: "panel-head" }, heading, aside),
    body,
  );
  return { section, heading, aside, body };
}

/** Terms and what they are, as a list of definitions: [term, node or text, hint]. */
export function facts(rows) {
  return el(
    "dl",
    { class: "facts" },
    rows.filter(Boolean).map(([term, value, hint]) => el("div", { title: hint }, el("dt", {}, term), el("dd", {}, value))),
  );
}

let announcedAt = 0;

/** Have a change read out, unless one was a moment ago. */
export function announce(text, pauseMs) {
  const now = Date.now();
  if (now - announcedAt < pauseMs) return;
  announcedAt = now;
  document.getElementById("announcer").textContent = text;
}
