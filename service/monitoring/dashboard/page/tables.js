// Makes tables, and the texts that stand in place of a table: loading, empty, or an error.

import { Away, Problem } from "./api.js";
import { el } from "./dom.js";

/**
 * Return a table. `columns`: {label, kind: "number" | "text", wide: whether only wide screens show it}. `rows`:
 * arrays of nodes or text, beginning with the row's header, or row elements. `caption` is mainly for screen readers.
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
    el("tbody", {}, rows.map((row) => (row instanceof Node ? row : el("tr", {}, row.map(cell))))),
  );
}

/** Return a column of numbers for `table`. */
export function numeric(label, properties = {}) {
  return { label, kind: "number", ...properties };
}

/** Return a region in which a wide table can be scrolled sideways, even by keyboard. */
export function scrolled(label, content) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, content);
}

/** Show in `node` how fresh a ranking is. `state` is a stream's state, or "page". A closed board's ranking is final. */
export function tellFreshness(node, state, { archived, closed }) {
  const live = archived ? "Archived" : closed ? "Final" : "Live";
  node.textContent = { live, away: "Reconnecting …", page: closed ? live : "As of now, not live" }[state] ?? "";
  node.className = `state ${closed && state === "live" ? "final" : state}`;
}

/** Return the text that is shown until data has come. */
export function loading() {
  return el("p", { class: "quiet loading" }, "Loading …");
}

/** Return a text that says that there is nothing to show. This is no error. */
export function empty(...text) {
  return el("p", { class: "quiet" }, text);
}

/** Return an error as text for users. Details of errors in the page itself go to the console only. */
export function fault(error) {
  const text = error instanceof Problem || error instanceof Away ? error.message : "Something in this page failed.";
  if (!(error instanceof Problem || error instanceof Away)) console.error(error);
  if (error instanceof Problem && error.status === 401) return el("p", { class: "quiet needs-key" }, "A key is needed to see this.");
  const sentence = text.charAt(0).toUpperCase() + text.slice(1);
  return el("p", { class: "fault" }, /[.!?]$/.test(sentence) ? sentence : `${sentence}.`);
}
