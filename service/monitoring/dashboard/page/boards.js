// The list of boards, by pages, with a search by what their ids begin with.

import { Away, ask, poll } from "./api.js";
import { el, show } from "./dom.js";
import { ago, whole } from "./format.js";
import { AGES_STALE_MS, BOARD_POLL_MS, BOARDS_PER_PAGE, SEARCH_PAUSE_MS } from "./limits.js";
import { toBoard, toBoards } from "./routes.js";
import { empty, fault, loading, table } from "./tables.js";

const COLUMNS = [
  { label: "Board" },
  { label: "Entries", kind: "number" },
  { label: "Ranked by" },
  { label: "State", wide: true },
  { label: "Created", wide: true },
];

/** The view of all boards. */
export class BoardsView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.route = route;
    this.title = el("h1", { tabindex: "-1" }, "Boards");
    this.list = el("div", { class: "panel" }, loading());
    this.count = el("p", { class: "unseen", role: "status" });
    this.pages = el("nav", { class: "line pages", "aria-label": "Pages of boards" });
    this.input = el("input", { id: "prefix", type: "search", value: route.parameters.prefix ?? "", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    this.input.addEventListener("input", () => this.typed());
    const form = el("form", { class: "line", role: "search", onsubmit: (event) => this.submit(event) }, el("label", { for: "prefix" }, "Board begins with"), this.input);
    show(root, el("header", { class: "head" }, this.title), form, this.count, this.list, this.pages);
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    poll(() => this.load(), BOARD_POLL_MS, signal);
  }

  get name() {
    return "Boards";
  }

  /** Another page or search. */
  update(route) {
    this.route = route;
    const prefix = route.parameters.prefix ?? "";
    if (document.activeElement !== this.input) this.input.value = prefix;
    this.load();
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(), SEARCH_PAUSE_MS);
  }

  submit(event) {
    event.preventDefault();
    clearTimeout(this.timer);
    this.search();
  }

  search() {
    const address = toBoards({ prefix: this.input.value.trim() });
    if (address === location.hash) return;
    // Not a step of its own: Back leaves the list instead of taking letters away.
    location.replace(address);
  }

  async load() {
    this.asking?.abort();
    this.asking = new AbortController();
    const signal = AbortSignal.any([this.signal, this.asking.signal]);
    const { prefix = "", cursor = "" } = this.route.parameters;
    const query = new URLSearchParams({ limit: BOARDS_PER_PAGE });
    if (prefix) query.set("prefix", prefix);
    if (cursor) query.set("cursor", cursor);
    try {
      const { data } = await ask(`/v1/leaderboards?${query}`, { signal });
      const drawn = JSON.stringify([prefix, cursor, data]);
      if (drawn === this.drawn && Date.now() - this.drawnAt < AGES_STALE_MS) return;
      this.drawn = drawn;
      this.drawnAt = Date.now();
      this.draw(data, prefix, cursor);
    } catch (error) {
      if (signal.aborted) return;
      if (this.drawn && error instanceof Away) return; // what was there stays; the bar tells
      this.drawn = null;
      show(this.list, fault(error));
      show(this.pages);
      this.onFault?.(error);
    }
  }

  draw({ leaderboards, next }, prefix, cursor) {
    const caption = prefix ? `Boards whose id begins with “${prefix}”` : "Boards by id";
    if (leaderboards.length) show(this.list, table(caption, COLUMNS, leaderboards.map(row)));
    else if (prefix) show(this.list, empty("No board’s id begins with ", el("bdi", {}, `“${prefix}”`), "."));
    else show(this.list, empty("No boards yet. To create one, use ", el("code", {}, "rankcurve board create"), "."));
    const shown = `${whole(leaderboards.length)} ${leaderboards.length === 1 ? "board" : "boards"}`;
    this.count.textContent = next ? `${shown}, and more on the next page` : shown;
    show(
      this.pages,
      cursor ? el("a", { href: toBoards({ prefix }), "data-key": "first" }, "First page") : null,
      next ? el("a", { href: toBoards({ prefix, cursor: next }), "data-key": "next" }, "Next page") : null,
      el("span", { class: "quiet", "aria-hidden": "true" }, this.count.textContent),
    );
  }
}

/** An id that a narrow column breaks at its parts. */
function breakable(id) {
  return id.split(/(?<=[:=,])/).flatMap((part, index) => (index ? [el("wbr"), part] : [part]));
}

function row(board) {
  const ranked = board.columns.filter((column) => column.sorted).map((column) => column.name);
  const state = board.archived ? "archived" : board.closed ? "closed" : "open";
  return [
    el("a", { href: toBoard(board.id), "data-key": `board:${board.id}` }, breakable(board.id)),
    whole(board.entries),
    ranked.join(", ") || "–",
    el("span", { class: `tag ${state}` }, state),
    ago(board.created_at),
  ];
}
