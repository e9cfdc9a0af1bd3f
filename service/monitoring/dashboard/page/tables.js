// Tables, and what stands where there is none: loading, empty, refused, away.

import { Away, Problem } from "./api.js";
import { el } from "./dom.js";

/**
 * A table. `columns`: {label, kind: "number" | "text", wide: only where there is room}; `rows`: arrays of nodes or text,
 * the first is the row's header. `caption` names the table to those who can't see what stands above it.
 */
export function table(caption, columns, rows, { captionShown = false } = {}) {
  const kinds = columns.map(({ kind = "text", wide = false }) => `${kind}${wide ? " wide" : ""}`);
  const cell = (content, index) =>
    el(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: kinds[index] }, content);
  return el(
    "table",
    {},
    el("caption", { class: captionShown ? null : "unseen" }, caption),
    el("thead", {}, el("tr", {}, columns.map(({ label }, index) => el("th", { scope: "col", class: kinds[index] }, label)))),
    el(
      "tbody",
      {},
      rows.map((row) => (row instanceof Node ? row : el("tr", {}, row.map(cell)))),
    ),
  );
}

/** Where a wide table can be moved sideways, by keyboard too. */
export function scrolled(label, content) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, content);
}

/** Say in `node` how fresh a ranking of the board is: a stream's state, or that it is a page; a closed board is final. */
export function tellFreshness(node, state, { archived, closed }) {
  const live = archived ? "Archived" : closed ? "Final" : "Live";
  node.textContent = { live, away: "Reconnecting …", page: closed ? live : "As of now, not live" }[state] ?? "";
  node.className = `state ${closed && state === "live" ? "final" : state}`;
}

/** Something comes. */
export function loading() {
  return el("p", { class: "quiet loading" }, "Loading …");
}

/** There is nothing, and that is no fault. */
export function empty(...text) {
  return el("p", { class: "quiet" }, text);
}

/** What went wrong, as far as a reader can do something about it. */
export function fault(error) {
  const text = error instanceof Problem || error instanceof Away ? error.message : "Something in this page failed.";
  if (!(error instanceof Problem || error instanceof Away)) console.error(error);
  if (error instanceof Problem && error.status === 401) return el("p", { class: "quiet needs-key" }, "A key is needed to see this.");
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return el("p", { class: "fault" }, /[.!?]$/.test(sentence) ? sentence : `${sentence}.`);
}
