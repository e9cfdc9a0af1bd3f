// The view of one person: all boards with ranks, ranks of past periods, posts with what they did, acts, grants.

import { actTable, erasingAction, hiddenBy, hidingActions, moderation, voiding } from "./acts.js";
import { ask, path } from "./api.js";
import { avatar, tierTag, valueCell } from "./cells.js";
import { announce, el, named, panel, separated, show } from "./dom.js";
import { ago, moment, rankNodes, stored, whole } from "./format.js";
import {
  ACTS_SHOWN,
  CALENDAR_PERIODS,
  OWNER_BOARD_PAGES_MAX,
  OWNER_HISTORIES_MAX,
  OWNER_POSTS_SHOWN,
  OWNER_RANKED_BOARDS_MAX,
  OWNER_SPECS_MAX,
} from "./limits.js";
import { learnName } from "./names.js";
import { breakable, wayBack } from "./overview.js";
import { KINDS, nextText } from "./owner_card.js";
import { toBoard, toFamily } from "./routes.js";
import { spark } from "./spark.js";
import { empty, fault, loading, numeric, scrolled, table } from "./tables.js";

const COLUMNS = [{ label: "Board" }, { label: "Ranks" }, { label: "Others", wide: true }, numeric("Changed", { wide: true })];
const POSTS = [{ label: "When" }, { label: "Post" }, { label: "Boards" }, { label: "Act" }];

/** Shows an owner on all boards. */
export class OwnerView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.owner = route.owner;
    this.specs = new Map(); // board -> its document, for one board of each set of columns
    this.title = el("h1", { tabindex: "-1" }, named(route.owner));
    this.state = el("p", { class: "notice", role: "status", hidden: true });
    this.boards = panel("boards", "Boards");
    this.past = panel("past", "Past periods");
    this.posts = panel("posts", "Posts, the newest first");
    this.acts = panel("acts", "Acts");
    this.grants = panel("grants", "Prizes");
    this.hiding = el("ul", { class: "acts of-owner" });
    this.moderation = el("div", {});
    show(this.boards.body, loading());
    for (const { section } of [this.past, this.posts, this.acts, this.grants]) section.hidden = true;
    const head = el("header", { class: "head" }, wayBack(), this.title, this.state, this.hiding);
    show(root, head, this.boards.section, this.posts.section, this.acts.section, this.past.section, this.grants.section, this.moderation);
    this.load();
  }

  get name() {
    return this.owner;
  }

  async load() {
    const { owner, signal } = this;
    try {
      const name = await learnName(owner, signal);
      if (signal.aborted) return;
      show(this.title, avatar(owner, name), named(name || owner), name ? [" ", named(owner, { class: "id" })] : null);
      const found = await this.find();
      await this.loadBoards(found);
      await Promise.all([this.loadActs(), this.loadPosts(), this.loadPast(found), this.loadGrants()]);
    } catch (error) {
      if (signal.aborted) return;
      show(this.boards.body, fault(error));
      this.onFault?.(error);
    }
  }

  /** Return the owner's entries, up to a bound, and whether there are more. */
  async find() {
    const found = [];
    let cursor = "";
    for (let page = 0; page < OWNER_BOARD_PAGES_MAX && cursor !== null; page += 1) {
      const query = cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
      const { data } = await ask(`${path`/v1/owners/${this.owner}/boards`}${query}`, { signal: this.signal });
      found.push(...data.boards);
      cursor = data.next;
    }
    this.more = cursor !== null;
    const parts = ({ board }) => board.split(":").length; // boards without facets first, because these are looked for most
    return found.sort((one, other) => parts(one) - parts(other));
  }

  async loadBoards(found) {
    const { owner, signal } = this;
    const alike = Map.groupBy(found, ({ stats }) => JSON.stringify(Object.keys(stats)));
    await Promise.all([...alike.values()].slice(0, OWNER_SPECS_MAX).map(async (entries) => {
      const answer = await ask(path`/v1/leaderboards/${entries[0].board}`, { signal }).catch(() => null);
      for (const { board } of entries) if (answer) this.specs.set(board, answer.data);
    }));
    const ranked = await Promise.all(
      found.slice(0, OWNER_RANKED_BOARDS_MAX).map(({ board }) =>
        ask(`${path`/v1/leaderboards/${board}/entries/${owner}/positions`}?next=true`, { signal }).then(
          ({ data }) => data.positions,
          () => [],
        ),
      ),
    );
    if (signal.aborted) return;
    const rows = found.map(({ board, stats, updated_at: updatedAt }, index) => {
      const columns = this.specs.get(board)?.columns ?? [];
      const positions = (ranked[index] ?? []).filter(({ rank }) => rank !== null);
      const placed = new Set(positions.map(({ column }) => column));
      const others = Object.entries(stats).filter(([column, value]) => !placed.has(column) && value !== null);
      return [
        el("a", { href: toBoard(board, { owner }), "data-key": `board:${board}` }, breakable(board)),
        positions.length
          ? places(positions.map((each) => place(each, columns.find(({ name }) => name === each.column))))
          : el("span", { class: "quiet" }, index < OWNER_RANKED_BOARDS_MAX ? "not ranked" : "–"),
        separated(others.map(([name, value]) => [`${name} `, el("b", {}, statCell(columns, name, value))])),
        ago(updatedAt),
      ];
    });
    const note = this.more ? empty("There may be more boards; these are the first by name.") : null;
    if (rows.length) show(this.boards.body, table(`Boards of ${owner}`, COLUMNS, rows), note);
    else show(this.boards.body, empty("This owner has an entry on no board. Names are compared letter by letter."), note);
    announce(`${whole(rows.length)} boards`, 0);
  }

  /** Show what operators did about the owner, and what else they may do. Only operators may see it. */
  async loadActs() {
    const { owner, signal } = this;
    const again = () => this.load();
    try {
      const { data } = await ask(`/v1/acts?${new URLSearchParams({ owner, limit: ACTS_SHOWN })}`, { signal });
      const by = hiddenBy(data.acts);
      this.state.hidden = by === null;
      if (by) {
        show(
          this.state,
          el("b", {}, by.act === "owner.shadowed" ? "Shadowed" : "Hidden"),
          " since ",
          moment(by.at),
          by.key ? ` by the key ${by.key}` : "",
          by.reason ? [": ", named(by.reason)] : ". No reason was given.",
        );
      }
      this.acts.section.hidden = false;
      const none = "No operator has done anything about this owner.";
      show(this.acts.body, data.acts.length ? actTable(data.acts, { ofOwner: true }) : empty(none));
      const state = by === null ? "shown" : by.act === "owner.shadowed" ? "shadow" : "hidden";
      if (by && !this.boards.body.querySelector("table")) {
        const told = "Lists leave a hidden owner out. The posts below still count once the owner is shown again.";
        show(this.boards.body, empty(told));
      }
      if (state === this.drawnState) return; // what a user has typed stays
      this.drawnState = state;
      show(this.hiding, hidingActions(owner, state, again).map((each) => el("li", {}, each)));
      show(this.moderation, moderation("everywhere", "Erase this owner", [erasingAction(owner, again)]));
    } catch (error) {
      if (!signal.aborted) show(this.hiding); // the key is not that of an operator
    }
  }

  async loadPosts() {
    const { owner, signal } = this;
    const { data } = await ask(`${path`/v1/owners/${owner}/posts`}?limit=${OWNER_POSTS_SHOWN}`, { signal }).catch(() => ({ data: null }));
    if (!data || signal.aborted) return;
    const voided = new Set(data.posts.filter(({ kind }) => kind === "void").map(({ post_id: id }) => id));
    const posts = Map.groupBy(
      data.posts.filter(({ kind }) => kind === "post"),
      ({ post_id: id, accepted_at: at, stats, set }) => id ?? JSON.stringify([at, stats, set]),
    );
    this.posts.section.hidden = false;
    const rows = [...posts.values()].map((lines) => this.post(lines, voided));
    const more = data.next === null ? null : empty(`The newest ${whole(rows.length)} are shown.`);
    const title = `Posts of ${owner}`;
    const list = rows.length ? scrolled(title, table(title, POSTS, rows)) : empty("No post is kept in the journal.");
    show(this.posts.body, list, more);
  }

  /** Return the row of a post, which has a line for each of its boards. */
  post(lines, voided) {
    const [{ at, accepted_at: acceptedAt, stats = {}, set = {}, post_id: id }] = lines;
    const columns = this.specs.get(lines[0].board)?.columns ?? [];
    const told = Object.entries({ ...stats, ...set }).map(([name, value]) => [name, statCell(columns, name, value)]);
    const gone = voided.has(id);
    const boards = lines.map((line) => line.board).filter(Boolean);
    const [first, ...others] = lines.map(({ board, status, stored: now, error }) => {
      const changed = Object.keys({ ...stats, ...set }).filter((name) => now?.[name] !== undefined);
      const applied = changed.map((name) => `${name} ${shown(now[name])}`).join(", ");
      const what = status === "applied" ? applied : `${status}${error ? `: ${error.detail}` : ""}`;
      return el(
        "li",
        {},
        board
          ? el("a", { href: toBoard(board, { owner: this.owner }), "data-key": `post:${id}:${board}` }, breakable(board))
          : "a deleted board",
        " ",
        el("span", { class: "quiet" }, gone || !what ? "" : `→ ${what}`),
      );
    });
    const isLive = id && boards.length && lines.some(({ status }) => status === "applied" || status === "unchanged");
    const posted = told.map(([name]) => `${name} ${stats[name] ?? set[name]}`).join(", ");
    const takeBack = () => voiding(this.owner, id, boards, posted, () => this.load());
    return el(
      "tr",
      { class: gone ? "gone" : null },
      el("th", { scope: "row", class: "when quiet" }, ago(at ?? acceptedAt)),
      el(
        "td",
        { class: "text" },
        separated(told.map(([name, value]) => [`${name} `, el("b", {}, value)])),
        id ? el("div", { class: "id" }, named(id)) : null,
      ),
      el("td", { class: "text" }, places([first]), others.length ? furtherPlaces(id, others) : null),
      el("td", {}, gone ? el("span", { class: "tag bad" }, "taken back") : isLive ? takeBack() : null),
    );
  }

  /** Show the owner's ranks in closed periods of those families on whose boards the owner is. */
  async loadPast(found) {
    const { owner, signal } = this;
    const kinds = new Map();
    for (const { board } of found) {
      const [family, period, facets] = board.split(":");
      const kind = KINDS.find(([, pattern]) => pattern.test(period ?? ""))?.[0];
      if (!kind || facets) continue;
      const column = this.specs.get(board)?.columns.find(({ sorted }) => sorted)?.name;
      kinds.set(`${family} ${kind}`, { family, kind, column });
    }
    const lines = await Promise.all([...kinds.values()].slice(0, OWNER_HISTORIES_MAX).map(async ({ family, kind, column }) => {
      const query = new URLSearchParams({ period: kind, limit: CALENDAR_PERIODS, ...(column ? { column } : {}) });
      const target = path`/v1/families/${family}/owners/${owner}/history`;
      const { data } = await ask(`${target}?${query}`, { signal }).catch(() => ({ data: { history: [] } }));
      const ranks = data.history.filter(({ position }) => position).map(({ position }) => position.rank).reverse();
      if (!ranks.length) return null;
      const worst = Math.max(...ranks);
      const told = `${column} in each ${kind} of ${family}, the oldest first: ranks ${ranks.join(", ")}`;
      return [
        el("a", { href: toFamily(family, { period: kind }), "data-key": `past:${family}:${kind}` }, `${family}, each ${kind}`),
        ranks.map(whole).join(" → "),
        spark(ranks.map((rank, index) => [index, worst - rank + 1]), told),
      ];
    }));
    const rows = lines.filter(Boolean);
    this.past.section.hidden = rows.length === 0;
    const columns = [{ label: "Periods" }, { label: "Ranks" }, { label: "Higher is better", wide: true }];
    show(this.past.body, table("Ranks in closed periods", columns, rows));
  }

  async loadGrants() {
    const target = `${path`/v1/owners/${this.owner}/grants`}?limit=${OWNER_POSTS_SHOWN}`;
    const { data } = await ask(target, { signal: this.signal }).catch(() => ({ data: { grants: [] } }));
    this.grants.section.hidden = data.grants.length === 0;
    const rows = data.grants.map(({ reward, board, rank, claimed_at: at }) => [
      reward,
      el("a", { href: toBoard(board), "data-key": `grant:${board}:${reward}` }, breakable(board)),
      whole(rank),
      at ? ago(at) : "not yet",
    ]);
    const columns = [{ label: "Prize" }, { label: "Board" }, numeric("Rank"), { label: "Claimed" }];
    show(this.grants.body, table("Prizes", columns, rows));
  }
}

/** Return a rank on a board with its tier, and how far the next place is. */
function place(position, column) {
  const { column: name, total, tier, tier_certain: certain, next, value } = position;
  const known = column ?? { name, ...plain(value), best: "high" };
  return el(
    "li",
    {},
    `${name} ${stored(value, known.scale)}: rank `,
    rankNodes(position),
    el("span", { class: "quiet" }, ` of ${whole(total)} `),
    ...(tier ? [tierTag(tier, known.tiers ?? [], certain !== false), " "] : []),
    el("span", { class: "quiet" }, `· ${nextText(next, known)}`),
  );
}

/** Return what a cell shows of one of an owner's stats. */
function statCell(columns, name, value) {
  return valueCell(columns.find((each) => each.name === name) ?? plain(value), value);
}

function places(lines) {
  return el("ul", { class: "places" }, lines);
}

function furtherPlaces(id, lines) {
  const text = `and ${whole(lines.length)} more ${lines.length === 1 ? "board" : "boards"}`;
  return el("details", {}, el("summary", { "data-key": `boards:${id}` }, text), places(lines));
}

/** Return what is known of a column whose board's document is not at hand. */
function plain(value) {
  return typeof value === "number" ? { type: "number", scale: String(value).split(".")[1]?.length ?? 0 } : { type: "text" };
}

function shown(value) {
  return typeof value === "number" ? stored(value, plain(value).scale) : String(value ?? "empty").slice(0, 40);
}
