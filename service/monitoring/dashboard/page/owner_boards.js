// The view of an owner on all boards, with the actions of operators that affect every board.

import { ask, path } from "./api.js";
import { breakable } from "./overview.js";
import { announce, el, named, show } from "./dom.js";
import { ago, stored, whole } from "./format.js";
import { OWNER_BOARD_PAGES_MAX, OWNER_RANKED_KINDS_MAX } from "./limits.js";
import { moderation, ownerActions } from "./moderation.js";
import { nameOf } from "./names.js";
import { toBoard, toBoards } from "./routes.js";
import { empty, fault, loading, table } from "./tables.js";

const COLUMNS = [{ label: "Board" }, { label: "Ranks" }, { label: "Values" }, { label: "Changed", kind: "number", wide: true }];

/** Lists the boards on which an owner has an entry, with ranks and values. */
export class OwnerBoardsView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.owner = route.owner;
    this.title = el("h1", { tabindex: "-1" }, named(route.owner));
    this.list = el("div", { class: "panel list" }, loading());
    const again = () => this.load();
    show(
      root,
      el("header", { class: "head" }, el("p", { class: "crumbs" }, el("a", { href: toBoards() }, "Overview")), this.title),
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
   * Return the owner's positions by board. Boards with the same columns, such as the boards of a family, share one
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
        // show these boards without ranks
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

/** Return pairs of a name and a text as one line, separated by commas. */
function listed(pairs) {
  return pairs.flatMap(([name, text], index) => [index ? ", " : "", `${name} `, el("b", {}, text)]);
}

/** Return a number with the digits that the service sent, or a text unchanged. */
function shown(value) {
  return typeof value === "number" ? stored(value, String(value).split(".")[1]?.length ?? 0) : named(value);
}
