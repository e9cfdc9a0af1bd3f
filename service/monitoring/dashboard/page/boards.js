// The list of boards: a row for each family, the boards that changed last, and a search by any part of a name.

import { Away, ask, poll } from "./api.js";
import { el, show } from "./dom.js";
import { FamilyPicker } from "./family_picker.js";
import { ago, whole } from "./format.js";
import { AGES_STALE_MS, BOARD_POLL_MS, BOARDS_PER_PAGE, FAMILIES_SHOWN, FAMILIES_UNFOLDED, SEARCH_PAUSE_MS } from "./limits.js";
import { toBoard, toBoards, toOwner } from "./routes.js";
import { empty, fault, loading, table } from "./tables.js";

const COLUMNS = [
  { label: "Board" },
  { label: "Entries", kind: "number" },
  { label: "Ranked by", wide: true },
  { label: "State", wide: true },
  { label: "Changed", kind: "number" },
];

/** The view that lists all boards. */
export class BoardsView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.route = route;
    this.pickers = new Map(); // family id -> its picker, which keeps what the user has chosen
    this.title = el("h1", { tabindex: "-1" }, "Boards");
    this.notice = el("p", { class: "notice", role: "status", hidden: true });
    this.families = el("div", { class: "panel", hidden: true });
    this.wait = loading(); // both lists are shown at once, so that neither moves the other
    this.list = el("div", { class: "panel list", hidden: true });
    this.count = el("p", { class: "unseen", role: "status" });
    this.pages = el("nav", { class: "line pages", "aria-label": "Pages of boards" });
    this.input = searchField("contains", route.parameters.contains ?? "");
    this.input.addEventListener("input", () => this.typed());
    const boards = el("form", { class: "line", role: "search", onsubmit: (event) => this.submit(event) }, el("label", { for: "contains" }, "Find a board"), this.input);
    const owner = searchField("anywhere", "");
    owner.required = true;
    const go = (event) => {
      event.preventDefault();
      location.hash = toOwner(owner.value.trim());
    };
    const owners = el("form", { class: "line", role: "search", "aria-label": "Owners", onsubmit: go }, el("label", { for: "anywhere" }, "Find an owner"), owner, el("button", {}, "Find"));
    show(root, el("header", { class: "head split" }, this.title, boards, owners), this.notice, this.count, this.wait, this.families, this.list, this.pages);
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    poll(() => this.load(), BOARD_POLL_MS, signal);
  }

  get name() {
    return "Boards";
  }

  /** Show another page or another search. */
  update(route) {
    this.route = route;
    if (document.activeElement !== this.input) this.input.value = route.parameters.contains ?? "";
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
    const address = toBoards({ contains: this.input.value.trim() });
    if (address === location.hash) return;
    // Replace the entry in the browser's history, so that Back leaves the list instead of undoing typed letters.
    location.replace(address);
  }

  async load() {
    this.asking?.abort();
    this.asking = new AbortController();
    const signal = AbortSignal.any([this.signal, this.asking.signal]);
    const { contains = "", cursor = "", missing } = this.route.parameters;
    try {
      const families = cursor ? { families: [], next: null } : (await ask(`/v1/families?limit=${FAMILIES_SHOWN}`, { signal })).data;
      let data = await readBoards(contains, cursor, signal);
      const nothing = contains !== "" && !data.leaderboards.length;
      if (nothing) data = await readBoards("", "", signal);
      const drawn = JSON.stringify([contains, cursor, missing, data, families]);
      if (drawn === this.drawn && Date.now() - this.drawnAt < AGES_STALE_MS) return;
      this.drawn = drawn;
      this.drawnAt = Date.now();
      this.wait.hidden = true;
      this.list.hidden = false;
      this.tell(missing, nothing ? contains : "");
      this.drawFamilies(families, nothing ? "" : contains);
      this.draw(data, nothing ? "" : contains, cursor);
    } catch (error) {
      if (signal.aborted) return;
      if (this.drawn && error instanceof Away) return; // keep the old list; the bar at the top reports the failure
      this.drawn = null;
      this.families.hidden = true;
      this.wait.hidden = true;
      this.list.hidden = false;
      show(this.list, fault(error));
      show(this.pages);
      this.onFault?.(error);
    }
  }

  tell(missing, unmatched) {
    const text = missing ? ["There is no board ", el("bdi", {}, `“${missing}”`), ". "] : [];
    if (unmatched) text.push("No board’s name contains ", el("bdi", {}, `“${unmatched}”`), ". These are all of them.");
    show(this.notice, text);
    this.notice.hidden = text.length === 0;
  }

  drawFamilies({ families, next }, contains) {
    const wanted = families.filter(({ id }) => id.toLowerCase().includes(contains.toLowerCase()));
    this.families.hidden = wanted.length === 0;
    const rows = wanted.map((family) => {
      const picker = this.pickers.get(family.id) ?? new FamilyPicker(family, this.signal, wanted.length <= FAMILIES_UNFOLDED);
      this.pickers.set(family.id, picker);
      picker.tell(family);
      return picker.row;
    });
    const more = next === null ? null : el("p", { class: "quiet" }, `The first ${FAMILIES_SHOWN} families. Search finds the boards of all.`);
    if (this.families.childElementCount !== rows.length + 1 || rows.some((row) => row.parentElement !== this.families)) {
      show(this.families, el("h2", {}, "Families"), rows, more);
    }
  }

  draw({ leaderboards, next }, contains, cursor) {
    const caption = contains ? `Boards whose name contains “${contains}”` : "Boards, the last changed first";
    if (leaderboards.length) show(this.list, table(caption, COLUMNS, leaderboards.map(row)));
    else if (this.families.hidden) show(this.list, empty("No boards yet. To create one, use ", el("code", {}, "rankcurve board create"), "."));
    else show(this.list, empty("No boards outside the families."));
    const shown = `${whole(leaderboards.length)} ${leaderboards.length === 1 ? "board" : "boards"}`;
    this.count.textContent = next ? `${shown}, and more on the next page` : shown;
    show(
      this.pages,
      cursor ? el("a", { class: "button", href: toBoards({ contains }), "data-key": "first" }, "First page") : null,
      next ? el("a", { class: "button", href: toBoards({ contains, cursor: next }), "data-key": "next" }, "Next page") : null,
      el("span", { class: "quiet", "aria-hidden": "true" }, this.count.textContent),
    );
  }
}

/** Return an input field for a search by name. */
export function searchField(id, value) {
  return el("input", { id, type: "search", value, autocomplete: "off", autocapitalize: "off", spellcheck: "false", dir: "auto" });
}

/** Read a page of boards: boards with `contains` in their names or, without it, the last changed outside families. */
async function readBoards(contains, cursor, signal) {
  const query = new URLSearchParams({ limit: BOARDS_PER_PAGE });
  if (contains) query.set("contains", contains);
  else {
    query.set("order", "activity");
    query.set("families", "false");
  }
  if (cursor) query.set("cursor", cursor);
  const { data } = await ask(`/v1/leaderboards?${query}`, { signal });
  return data;
}

/** Return a board's id with places where a narrow column may break the line. */
export function breakable(id) {
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
    ago(board.active_at ?? board.created_at),
  ];
}
