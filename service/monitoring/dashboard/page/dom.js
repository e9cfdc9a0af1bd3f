// Makes elements by calls only. So text from the service, such as an owner's name, is never parsed as HTML.

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

/** Return an element. A property such as `onclick` becomes a listener, any other an attribute. Children may be text. */
export function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Return an SVG element. The arguments are as for `el`. */
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Properties of a field for names and ids, which the browser must neither complete nor correct. */
export const AS_TYPED = { autocomplete: "off", autocapitalize: "off", spellcheck: "false" };

let pressed = null; // the element on which the pointer was pressed and not yet released
const waiting = new Map(); // parent -> children to show after the pointer is released

// If an element is replaced between press and release, a link gets no click, and selected text loses its selection.
addEventListener("pointerdown", (event) => (pressed = event.target), true);
for (const name of ["click", "pointerup", "pointercancel", "blur"]) {
  addEventListener(name, () => {
    if (name !== "pointerup") pressed = null; // a click may follow a pointerup
    setTimeout(() => {
      pressed = null;
      for (const [parent, children] of [...waiting]) show(parent, ...children);
    });
  }, name !== "blur");
}

/** Replace the content of `parent` by `children`. The new element with the same `data-key` gets the focus back, and
 * unfolded details with the same `data-key` stay unfolded. */
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

/** Return an element for a name that a user chose. Its text direction does not affect the text around it. */
export function named(text, properties = {}) {
  return el("bdi", properties, text);
}

/** Return invisible text for screen readers. */
export function unseen(text) {
  return el("span", { class: "unseen" }, text);
}

/** Return children with commas between them. An item is a node, a text, or an array of these. */
export function separated(items) {
  return items.flatMap((item, index) => [index ? ", " : "", ...[item].flat()]);
}

/** Return a `section` with its `heading`, an `aside` beside the heading, and a `body` for the content. */
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

/** Return a list of facts. A row is [term, value as a node or text, hint to show on hover]. */
export function facts(rows) {
  const row = ([term, value, hint]) => el("div", { title: hint }, el("dt", {}, term), el("dd", {}, value));
  return el("dl", { class: "facts" }, rows.filter(Boolean).map(row));
}

let announcedAt = 0;

/** Let screen readers read out a change, unless another change was announced less than `pauseMs` ago. */
export function announce(text, pauseMs) {
  const now = Date.now();
  if (now - announcedAt < pauseMs) return;
  announcedAt = now;
  document.getElementById("announcer").textContent = text;
}
