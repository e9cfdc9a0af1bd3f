// An owner on all boards, and what operators can do about the owner everywhere.

import { ask, path } from "./api.js";
import { breakable } from "./boards.js";
import { announce, el, named, show } from "./dom.js";
import { ago, stored, whole } from "./format.js";
import { OWNER_BOARD_PAGES_MAX, OWNER_RANKED_KINDS_MAX } from "./limits.js";
import { moderation, ownerActions } from "./moderation.js";
import { nameOf } from "./names.js";
import { toBoard, toBoards } from "./routes.js";
import { empty, fault, loading, table } from "./tables.js";

const COLUMNS = [{ label: "Board" }, { label: "Ranks" }, { label: "Values" }, { label: "Changed", kind: "number", wide: true }];

/** The view of an owner on every board. */
export class OwnerBoardsView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.owner = route.owner;
    this.title = el("h1", { tabindex: "-1" }, named(route.owner));
    this.list = el("div", { class: "panel list" }, loading());
    const again = () => this.load();
    show(
      root,
      el("header", { class: "head" }, el("p", { class: "crumbs" }, el("a", { href: toBoards() }, "Boards")), this.title),
      this.list,
      moderation("everywhere", "Moderate this owner", ownerActions(route.owner, again)),
    );
    this.load();
  }

  get name() {
    return this.owner;
  }

  update() {}

  /**
   * The owner's positions by board. Boards with the same columns, such as those of a family, are asked for together, one
   * request for each ranked column.
   */
  async ranksOn(found) {
    const { owner, signal } = this;
    const alike = Map.groupBy(found, ({ stats }) => JSON.stringify(Object.keys(stats)));
    const ranks = new Map(found.map(({ board }) => [board, []]));
    for (const boards of [...alike.values()].slice(0, OWNER_RANKED_KINDS_MAX)) {
      const asked = boards.map(({ board }) => board);
      try {
        const { data: spec } = await ask(path`/v1/leaderboards/${asked[0]}`, { signal });
        const ranked = spec.columns.filter(({ sorted }) => sorted);
        const positionsIn = ({ name: column }) => ask(path`/v1/owners/${owner}/positions`, { method: "POST", body: { boards: asked, column }, signal });
        for (const { data } of await Promise.all(ranked.map(positionsIn))) {
          for (const position of data.positions) if (position.rank !== null) ranks.get(position.board).push(position);
        }
      } catch {
        // these boards stand without ranks
      }
    }
    return ranks;
  }

  async load() {
    const { owner, signal } = this;
    try {
      const found = [];
      let cursor = "";
      for (let page = 0; page < OWNER_BOARD_PAGES_MAX && cursor !== null; page += 1) {
        const query = cursor ? `?cursor=${encodeURIComponent(cursor)}` : "";
        const { data } = await ask(`${path`/v1/owners/${owner}/boards`}${query}`, { signal });
        found.push(...data.boards);
        cursor = data.next;
      }
      const ranks = await this.ranksOn(found);
      const rows = found.map(({ board, stats, updated_at: updatedAt }) => [
        el("a", { href: toBoard(board, { owner }), "data-key": `board:${board}` }, breakable(board)),
        listed((ranks.get(board) ?? []).map(({ column, rank, exact }) => [column, `${exact ? "" : "≈ "}${whole(rank)}`])),
        listed(Object.entries(stats).filter(([, value]) => value !== null).map(([name, value]) => [name, shown(value)])),
        ago(updatedAt),
      ]);
      const more = cursor === null ? null : el("p", { class: "quiet" }, "There may be more boards; these are the first by name.");
      if (rows.length) show(this.list, table(`Boards of ${owner}`, COLUMNS, rows), more);
      else show(this.list, empty("This owner has an entry on no board. Names are compared letter by letter."), more);
      announce(`${whole(rows.length)} boards`, 0);
      const { data } = await ask(path`/v1/owners/${owner}/profile`, { signal }).catch(() => ({ data: {} }));
      const name = nameOf(data.profile);
      if (name) show(this.title, named(name), " ", named(owner, { class: "id" }));
    } catch (error) {
      if (signal.aborted) return;
      show(this.list, fault(error));
      this.onFault?.(error);
    }
  }
}

/** Names with what belongs to each, in a line. */
function listed(pairs) {
  return pairs.flatMap(([name, text], index) => [index ? ", " : "", `${name} `, el("b", {}, text)]);
}

/** A value with the digits that came; text as it is. */
function shown(value) {
  return typeof value === "number" ? stored(value, String(value).split(".")[1]?.length ?? 0) : named(value);
}
