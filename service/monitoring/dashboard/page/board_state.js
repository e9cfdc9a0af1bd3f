// What state a board is in, and how much time is left, as coloured labels.

import { el } from "./dom.js";
import { age } from "./format.js";

const TEXTS = { soon: "not open yet", open: "open", closed: "final", archived: "archived" };

/** Return the state of a board: "soon", "open", "closed" or "archived". */
export function stateOf({ archived, closed, opens_at: opens }) {
  if (archived) return "archived";
  if (closed) return "closed";
  return opens && Date.parse(opens) > Date.now() ? "soon" : "open";
}

/** Return the label of a board's state. */
export function stateTag(board) {
  const state = stateOf(board);
  return el("span", { class: `tag ${state}` }, TEXTS[state]);
}

/** Return how long it takes until a board opens or closes as a time element, or null if it has no such time. */
export function timeLeft({ opens_at: opens, closes_at: closes, closed }, now = Date.now()) {
  if (opens && Date.parse(opens) > now) return until(opens, "opens in", now);
  if (closed || !closes) return null;
  return Date.parse(closes) > now ? until(closes, "closes in", now) : el("span", {}, "over, being closed");
}

/** Return a time element such as "ends in 3 h". */
export function until(iso, words, now = Date.now()) {
  return el("time", { datetime: iso, title: iso.replace(/\.\d+Z$/, "Z") }, `${words} ${age((Date.parse(iso) - now) / 1000)}`);
}
