// The search at the top of every view. It proposes boards, families and owners while a user types.
// The service has no list of owners, so the page proposes owners that it has seen, and the id as it was typed.

import { ask, path } from "./api.js";
import { AS_TYPED, el, named, show } from "./dom.js";
import { SEARCH_PAUSE_MS, SEEDED_BOARDS, SEEDED_OWNERS, SUGGESTIONS_MAX } from "./limits.js";
import { learn, namesLike } from "./names.js";
import { toBoard, toBoards, toFamily, toLeague, toOwner } from "./routes.js";

const LIST = "search-list";

/** The field with its list of suggestions, after the pattern of a combobox: arrows choose, Enter goes, Escape closes. */
export class Search {
  constructor(form) {
    this.found = []; // the suggestions: {text, kind, to}
    this.chosen = 0;
    this.input = el("input", {
      id: "search-input",
      type: "search",
      role: "combobox",
      placeholder: "Find a board or an owner",
      "aria-label": "Find a board or an owner",
      "aria-expanded": "false",
      "aria-controls": LIST,
      "aria-autocomplete": "list",
      ...AS_TYPED,
      dir: "auto",
    });
    this.list = el("ul", { id: LIST, role: "listbox", "aria-label": "Suggestions", hidden: true });
    show(form, this.input, el("kbd", { "aria-hidden": "true" }, "/"), this.list);
    this.input.addEventListener("focus", () => {
      this.families = undefined; // ask again
      this.seed();
    });
    this.input.addEventListener("input", () => this.typed());
    this.input.addEventListener("keydown", (event) => this.pressed(event));
    this.input.addEventListener("blur", () => this.close());
    this.list.addEventListener("mousedown", (event) => event.preventDefault()); // keep the focus until the click
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      clearTimeout(this.timer);
      if (this.searched !== this.input.value.trim()) await this.search();
      this.go(this.found[this.chosen]);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
      event.preventDefault();
      this.input.focus();
    });
  }

  /** Learn the names of the best owners on the boards that changed last, once. */
  async seed() {
    if (this.seeded) return;
    this.seeded = true;
    try {
      const { data } = await ask(`/v1/leaderboards?order=activity&limit=${SEEDED_BOARDS}`);
      for (const { id, columns } of data.leaderboards) {
        const column = columns.find(({ sorted }) => sorted)?.name;
        if (!column) continue;
        const page = await ask(`${path`/v1/leaderboards/${id}/rankings/${column}`}?limit=${SEEDED_OWNERS}&profiles=true`);
        learn(page.data.entries);
      }
    } catch {
      this.seeded = false; // try again at the next focus; boards and ids are found anyway
    }
  }

  typed() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(), SEARCH_PAUSE_MS);
  }

  async search() {
    this.asking?.abort();
    this.asking = new AbortController();
    const { signal } = this.asking;
    const text = this.input.value.trim();
    this.searched = text;
    if (!text) return this.tell([]);
    const query = new URLSearchParams({ contains: text, limit: SUGGESTIONS_MAX });
    const [boards, families, entries] = await Promise.allSettled([
      ask(`/v1/leaderboards?${query}`, { signal }),
      (this.families ??= ask("/v1/families")),
      ask(`${path`/v1/owners/${text}/boards`}?limit=1`, { signal }),
    ]);
    if (signal.aborted) return;
    if (families.status === "rejected") this.families = undefined;
    const lower = text.toLowerCase();
    const starts = (id) => !id.toLowerCase().startsWith(lower);
    const known = namesLike(text, SUGGESTIONS_MAX).map(({ owner, name }) => ({
      text: name || owner,
      kind: name ? `${owner}, owner` : "owner",
      to: toOwner(owner),
      id: owner,
    }));
    const kind = entries.value?.data.boards.length ? "owner" : "look for this owner";
    const exact = known.some(({ id }) => id === text) ? [] : [{ text, kind, to: toOwner(text), id: text }];
    const listed = (boards.value?.data.leaderboards ?? []).map(({ id }) => ({ text: id, kind: "board", to: toBoard(id), id }));
    const groups = (families.value?.data.families ?? [])
      .filter(({ id }) => id.toLowerCase().includes(lower))
      .map(({ id, league }) => ({
        text: id,
        kind: league ? "league" : "family",
        to: league ? toLeague(id) : toFamily(id),
        id,
      }));
    const sure = exact.filter(({ kind }) => kind === "owner");
    const places = [...groups, ...listed].sort((a, b) => (b.id === text) - (a.id === text) || starts(a.id) - starts(b.id));
    const most = SUGGESTIONS_MAX - 1;
    const found = [...sure, ...known.slice(0, most / 2), ...places].slice(0, most);
    this.tell([...found.sort((a, b) => (b.id === text) - (a.id === text)), ...exact.filter((each) => !sure.includes(each))]);
  }

  tell(found) {
    this.found = found;
    this.chosen = 0;
    const options = found.map((each, index) =>
      el(
        "li",
        { id: `${LIST}-${index}`, role: "option", onclick: () => this.go(each) },
        named(each.text),
        " ",
        el("span", { class: "quiet" }, each.kind),
      ),
    );
    show(this.list, options);
    this.list.hidden = found.length === 0 || document.activeElement !== this.input;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((each, index) => each.setAttribute("aria-selected", String(index === this.chosen)));
    if (this.list.hidden) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `${LIST}-${this.chosen}`);
  }

  pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.found.length) {
      event.preventDefault();
      this.chosen = (this.chosen + step + this.found.length) % this.found.length;
      this.mark();
    } else if (event.key === "Escape") {
      if (!this.input.value) this.input.blur();
      this.input.value = "";
      this.close();
    }
  }

  close() {
    clearTimeout(this.timer);
    this.asking?.abort();
    this.searched = null;
    this.tell([]);
    this.list.hidden = true;
  }

  go(suggestion) {
    if (!suggestion) {
      if (this.input.value.trim()) location.hash = toBoards({ contains: this.input.value.trim() });
      return;
    }
    this.input.value = "";
    this.input.blur();
    location.hash = suggestion.to;
  }
}
