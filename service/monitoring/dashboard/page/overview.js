// The overview: the node's verdict in one line, families, and the boards that changed last, each with its leaders.

import { changesOf, count, perMinute } from "./activity.js";
import { Away, Problem, ask, path, poll } from "./api.js";
import { stateTag, timeLeft, until } from "./board_state.js";
import { AS_TYPED, el, named, show, unseen } from "./dom.js";
import { readVerdict } from "./figures.js";
import { ago, rate, stored, whole } from "./format.js";
import {
  AGES_STALE_MS,
  BOARD_POLL_MS,
  BOARDS_PER_PAGE,
  CARDS_SHOWN,
  FAMILIES_SHOWN,
  FAMILY_LEADERS_SHOWN,
  LEADERS_POLL_MS,
  LEADERS_SHOWN,
  SEARCH_PAUSE_MS,
} from "./limits.js";
import { knownName, learn } from "./names.js";
import { toBoard, toBoards, toFamily, toLeague } from "./routes.js";
import { spark } from "./spark.js";
import { empty, fault, loading, numeric, table } from "./tables.js";

const COLUMNS = [
  { label: "Board" },
  numeric("Entries"),
  numeric("Changes a minute", { wide: true }),
  { label: "State", wide: true },
  numeric("Changed"),
];

/** The view of all that goes on now. */
export class Overview {
  constructor(root, route, signal) {
    this.signal = signal;
    this.route = route;
    this.leaders = new Map(); // board -> {changes, total, entries, column}
    this.periods = new Map(); // family -> [{board, period}], one of each kind
    this.title = el("h1", { tabindex: "-1" }, "Overview");
    this.health = el("p", { class: "health", role: "status", hidden: true });
    this.rate = el("span", { class: "line quiet" });
    this.notice = el("p", { class: "notice", role: "status", hidden: true });
    this.families = el("section", { class: "cards broad", "aria-label": "Families", hidden: true });
    this.wait = loading();
    this.boards = el("div", { class: "stack" });
    this.count = el("p", { class: "unseen", role: "status" });
    this.pages = el("nav", { class: "line pages", "aria-label": "Pages of boards" });
    this.input = el("input", {
      id: "contains",
      type: "search",
      value: route.parameters.contains ?? "",
      ...AS_TYPED,
      dir: "auto",
    });
    this.input.addEventListener("input", () => this.typed());
    this.form = el(
      "form",
      { class: "line", role: "search", "aria-label": "Boards", onsubmit: (event) => this.submit(event) },
      el("label", { for: "contains" }, "Only boards with"),
      this.input,
    );
    const head = el("header", { class: "head split" }, this.title, this.form, this.health);
    show(root, head, this.notice, this.count, this.wait, this.families, this.boards, this.pages);
    signal.addEventListener("abort", () => clearTimeout(this.timer));
    poll(() => this.load(), BOARD_POLL_MS, signal);
    poll(() => this.loadHealth(), BOARD_POLL_MS, signal);
    poll(() => this.loadPeriods(), LEADERS_POLL_MS, signal);
  }

  get name() {
    return "Overview";
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
      const asked = cursor ? { data: { families: [], next: null } } : ask(`/v1/families?limit=${FAMILIES_SHOWN}`, { signal });
      let [{ data: families }, data] = await Promise.all([asked, readBoards(contains, cursor, signal)]);
      const nothing = contains !== "" && !data.leaderboards.length;
      if (nothing) data = await readBoards("", "", signal);
      count(data.leaderboards, Date.now() / 1000);
      this.shown = { families, data, contains: nothing ? "" : contains, cursor };
      this.wait.hidden = true;
      this.tell(missing, nothing ? contains : "");
      this.draw();
      await this.loadLeaders(data.leaderboards.slice(0, CARDS_SHOWN), signal);
      this.draw();
      if (!this.periods.size && families.families.length) this.loadPeriods();
    } catch (error) {
      if (signal.aborted) return;
      if (this.shown && error instanceof Away) return; // keep the old list; the bar at the top reports the failure
      this.shown = null;
      this.families.hidden = this.wait.hidden = true;
      show(this.boards, el("div", { class: "panel" }, fault(error)));
      show(this.pages);
      this.onFault?.(error);
    }
  }

  /** Read the leaders of those boards that have changed since they were read. */
  async loadLeaders(boards, signal) {
    const changed = boards.filter(({ id, changes, entries, closed }) => entries && this.leaders.get(id)?.state !== `${changes} ${closed}`);
    await Promise.all(
      changed.map(async ({ id, columns, changes, closed }) => {
        const column = columns.find(({ sorted }) => sorted);
        if (!column) return;
        const leaders = await leadersOf(id, column.name, LEADERS_SHOWN, signal);
        if (leaders) this.leaders.set(id, { ...leaders, state: `${changes} ${closed}`, column });
      }),
    );
  }

  async loadHealth() {
    try {
      const { level, told, perSecond, points } = await readVerdict(this.signal);
      const chart = points.length > 1 ? spark(points, "Posts a minute, the last quarter of an hour") : null;
      if (this.told !== told) {
        const light = el("span", { class: `light ${level}`, "aria-hidden": "true" });
        show(this.health, light, el("a", { href: "#/node", "data-key": "health" }, told), this.rate);
      }
      this.told = told;
      show(this.rate, perSecond === null ? null : `${rate(perSecond * 60)} posts a minute`, chart);
      this.health.hidden = false;
    } catch {
      this.health.hidden = true; // only operators see it
    }
  }

  /** Find the current periods of the first families, and their leaders. */
  async loadPeriods() {
    const families = (this.shown?.families.families ?? []).slice(0, FAMILY_LEADERS_SHOWN);
    try {
      for (const { id, periods, columns } of families) {
        const column = columns.find(({ sorted }) => sorted)?.name;
        const found = periods.map((kind) => this.currentOf(id, kind.name ?? kind, column));
        this.periods.set(id, (await Promise.all(found)).filter(Boolean));
      }
      if (!this.signal.aborted && this.shown) this.draw();
    } catch (error) {
      if (!(error instanceof Away || error instanceof Problem || this.signal.aborted)) throw error;
    }
  }

  async currentOf(family, kind, column) {
    const known = this.periods.get(family)?.find((each) => each.kind === kind);
    const isCurrent = known && (!known.period.ends_at || Date.parse(known.period.ends_at) > Date.now());
    const current = isCurrent
      ? known
      : await ask(`${path`/v1/families/${family}/boards`}?period=${kind}`, { signal: this.signal }).then(
          ({ data }) => data,
          () => null,
        );
    const leaders = current && column ? await leadersOf(current.board, column, 1, this.signal) : null;
    return current && { ...current, kind, leaders };
  }

  tell(missing, unmatched) {
    const text = missing ? ["There is no board ", el("bdi", {}, `“${missing}”`), ". "] : [];
    if (unmatched) text.push("No board’s name contains ", el("bdi", {}, `“${unmatched}”`), ". These are all of them.");
    show(this.notice, text);
    this.notice.hidden = text.length === 0;
  }

  draw() {
    const { families, data, contains, cursor } = this.shown;
    const wanted = families.families.filter(({ id }) => id.toLowerCase().includes(contains.toLowerCase()));
    const { leaderboards, next } = data;
    const pictures = leaderboards.map(({ id }) => rate(perMinute(id)));
    const drawn = JSON.stringify([this.shown, pictures, [...this.leaders], [...this.periods]]);
    if (drawn === this.drawn && Date.now() - this.drawnAt < AGES_STALE_MS) return;
    this.drawn = drawn;
    this.drawnAt = Date.now();
    this.families.hidden = wanted.length === 0;
    show(this.families, wanted.map((family) => familyCard(family, this.periods.get(family.id) ?? [])));
    const isEmpty = !leaderboards.length && !families.families.length;
    this.form.hidden = isEmpty && !contains && !cursor;
    if (!leaderboards.length) show(this.boards, isEmpty ? beginning() : empty("No boards outside the families."));
    else {
      const cards = leaderboards.slice(0, CARDS_SHOWN).map((board) => boardCard(board, this.leaders.get(board.id)));
      const changed = el("section", { class: "cards", "aria-label": "Boards that changed last" }, cards);
      show(this.boards, changed, more(leaderboards.slice(CARDS_SHOWN)));
    }
    const shown = `${whole(leaderboards.length)} ${leaderboards.length === 1 ? "board" : "boards"}`;
    const unsorted = tooMany && !contains ? "; there are too many to show the last changed ones first" : "";
    const counted = `${shown}${next ? ", and more on the next page" : ""}${unsorted}`;
    if (this.count.textContent !== counted) this.count.textContent = counted;
    show(
      this.pages,
      cursor ? el("a", { class: "button", href: toBoards({ contains }), "data-key": "first" }, "First page") : null,
      next ? el("a", { class: "button", href: toBoards({ contains, cursor: next }), "data-key": "next" }, "Next page") : null,
      el("span", { class: "quiet", "aria-hidden": "true" }, this.count.textContent),
    );
  }
}

let tooMany = false; // whether there are too many boards to order them by activity

/** Read a page of boards: boards with `contains` in their names or, without it, the last changed outside families. */
async function readBoards(contains, cursor, signal) {
  const query = new URLSearchParams({ limit: BOARDS_PER_PAGE });
  if (contains) query.set("contains", contains);
  else query.set("families", "false");
  if (!contains && !tooMany) query.set("order", "activity");
  if (cursor) query.set("cursor", cursor);
  try {
    return (await ask(`/v1/leaderboards?${query}`, { signal })).data;
  } catch (error) {
    if (tooMany || error.code !== "too_many_boards") throw error;
    tooMany = true;
    return readBoards(contains, cursor, signal);
  }
}

/** Return the best entries of a board, {entries, total}, or null if the board has no ranking now. */
export async function leadersOf(board, column, limit, signal) {
  try {
    const { data } = await ask(`${path`/v1/leaderboards/${board}/rankings/${column}`}?limit=${limit}&profiles=true`, { signal });
    learn(data.entries);
    return { entries: data.entries, total: data.total };
  } catch (error) {
    if (error instanceof Problem) return null;
    throw error;
  }
}

/** Return the link that leads back to the overview. */
export function wayBack() {
  return el("p", { class: "crumbs" }, el("a", { href: toBoards() }, "Overview"));
}

/** Return the link to an owner on a board, with the owner's name. `key` is the element's `data-key`. */
export function placeLink(board, { column, owner }, key) {
  const properties = { href: toBoard(board, { column, owner }), title: owner, "data-key": key };
  return el("a", properties, named(knownName(owner) || owner));
}

/** Return a board's id with places where a narrow column may break the line. */
export function breakable(id) {
  return id.split(/(?<=[:=,])/).flatMap((part, index) => (index ? [el("wbr"), part] : [part]));
}

function boardCard(board, leaders) {
  const { id, columns, entries } = board;
  const ranked = columns.filter(({ sorted }) => sorted).map(({ name }) => name);
  const { column } = leaders ?? {};
  const changes = perMinute(id);
  const points = changesOf(id);
  return el(
    "article",
    { class: "card", "aria-labelledby": `card:${id}` },
    el("h2", { id: `card:${id}` }, el("a", { href: toBoard(id), "data-key": `board:${id}` }, breakable(id)), " ", stateTag(board)),
    el(
      "p",
      { class: "quiet" },
      timeLeft(board) ??
        `${board.active_at ? "changed" : "created"} ${ago(board.active_at ?? board.created_at).textContent}`,
      ranked.length ? ` · by ${ranked.join(", ")}` : null,
    ),
    leaders?.entries.length
      ? el("ol", { class: "leaders" }, leaders.entries.map((entry) => leaderRow(id, entry, column)))
      : el("p", { class: "quiet leaders" }, entries ? "" : "Nobody is ranked here yet."),
    el(
      "p",
      { class: "card-foot quiet" },
      el("span", {}, `${whole(entries)} ${entries === 1 ? "entry" : "entries"}`),
      el("span", {}, changes === null ? "" : `${rate(changes)} changes a minute`),
      points.length > 1 ? spark(points, `Changes a minute on ${id} since the page was opened`) : null,
    ),
  );
}

function leaderRow(board, { owner, rank, value, exact }, column) {
  const link = placeLink(board, { column: column.name, owner }, `leader:${board}:${owner}`);
  const place = el("span", { class: "quiet" }, unseen("rank "), exact ? whole(rank) : `≈ ${whole(rank)}`);
  return el("li", {}, place, link, el("b", {}, stored(value, column.scale)));
}

function familyCard({ id, boards, league, columns }, periods) {
  const scale = columns.find(({ sorted }) => sorted)?.scale ?? 0;
  const rows = periods.map(({ board, kind, period, leaders }) => {
    const [best] = leaders?.entries ?? [];
    return el(
      "li",
      {},
      el("a", { href: toBoard(board), "data-key": `current:${board}` }, NAMES[kind] ?? kind),
      el("span", { class: best ? "short" : "quiet" }, best ? named(knownName(best.owner) || best.owner) : "nobody yet"),
      el("b", {}, best ? stored(best.value, scale) : ""),
      el("span", { class: "quiet" }, period.ends_at ? until(period.ends_at, "ends in") : ""),
    );
  });
  const link = el("a", { href: league ? toLeague(id) : toFamily(id), "data-key": `family:${id}` }, named(id));
  return el(
    "article",
    { class: "card", "aria-labelledby": `card:${id}:` },
    el("h2", { id: `card:${id}:` }, link, " ", el("span", { class: "tag" }, league ? "league" : "family")),
    el("ul", { class: "leaders periods" }, rows),
    el("p", { class: "quiet" }, `${whole(boards)} ${boards === 1 ? "board" : "boards"}`),
  );
}

const NAMES = { all: "All time", year: "This year", month: "This month", week: "This week", day: "Today" };

/** Return the table of the boards that have no card, or null if there is none. */
function more(boards) {
  if (!boards.length) return null;
  const rows = boards.map((board) => [
    el("a", { href: toBoard(board.id), "data-key": `board:${board.id}` }, breakable(board.id)),
    whole(board.entries),
    rate(perMinute(board.id)),
    stateTag(board),
    board.active_at ? ago(board.active_at) : "–",
  ]);
  return el("div", { class: "panel list" }, table("More boards", COLUMNS, rows));
}

/** Return how to begin with an empty store. */
function beginning() {
  const command = (method, target, body) =>
    `curl -X ${method} ${location.origin}/v1/leaderboards/${target} -H 'Content-Type: application/json' \\\n  -d '${body}'`;
  const board = command("PUT", "arena", '{"columns": [{"name": "score", "merge": "max"}]}');
  const post = command("POST", "arena/posts", '{"owner": "ada", "stats": {"score": 100}}');
  return el(
    "section",
    { class: "panel stack", "aria-labelledby": "begin" },
    el("h2", { id: "begin" }, "No boards yet"),
    el("p", {}, "Create a board, then post a score to it. It appears here by itself."),
    el("pre", { tabindex: "0", "aria-label": "Commands to begin with" }, el("code", {}, `${board}\n\n${post}`)),
    el(
      "p",
      { class: "quiet" },
      "With API keys, add -H \"Authorization: Bearer $KEY\". All requests are on ",
      el("a", { href: "/docs" }, "the page of the API"),
      ".",
    ),
  );
}
