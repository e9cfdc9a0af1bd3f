// The card of one owner on one board: ranks with brackets, distance to the next rank, neighbours and closed periods.
// A stream about the owner keeps the card up to date.

import { correction, erasingAction, erasure, hidingActions, moderation } from "./acts.js";
import { Problem, ask, path, poll, throttled } from "./api.js";
import { tierTag } from "./cells.js";
import { announce, el, named, panel, separated, show } from "./dom.js";
import { ago, method, percentile, rankNodes, stored, whole } from "./format.js";
import { ANNOUNCE_PAUSE_MS, AROUND_ROWS, HISTORY_PERIODS, OVERTAKERS_SHOWN, OWNER_POLL_MS, OWNER_RELOAD_MS } from "./limits.js";
import { knownName, learn, nameOf } from "./names.js";
import { rankedTable } from "./ranking.js";
import { toBoard, toOwner } from "./routes.js";
import { follow } from "./streams.js";
import { empty, fault, loading, numeric, table, tellFreshness } from "./tables.js";

export const KINDS = [["year", /^\d{4}$/], ["month", /^\d{4}-\d{2}$/], ["week", /^\d{4}-W\d{2}$/], ["day", /^\d{4}-\d{2}-\d{2}$/]];

/** The card of an owner. `start` fills it. */
export class OwnerPanel {
  constructor() {
    this.panel = panel("owner", "Owner", { class: "owner-card" });
    this.state = el("span", { class: "state" });
    this.everywhere = el("a", { "data-key": "owner-boards" }, "All boards and posts");
    this.close = el("a", { "data-key": "close-owner" }, "Close");
    this.panel.aside.append(this.state, this.everywhere, this.close);
    this.news = el("p", { class: "news", hidden: true });
    this.standing = el("div", { class: "stack standing" });
    this.near = el("div", { class: "stack near" });
    this.past = el("div", { class: "stack past" });
    this.acts = el("div", { class: "owner-acts" });
    this.panel.body.append(this.news, el("div", { class: "owner-parts" }, this.standing, this.near, this.past), this.acts);
  }

  /** Show an owner until `signal` aborts. `onPosition` is called with the owner's position in the column, or null. */
  start(view, signal, onPosition) {
    const { board, spec, column, owner, parameters } = view;
    this.title(view, "");
    this.close.href = toBoard(board, { ...parameters, owner: undefined });
    this.everywhere.href = toOwner(owner);
    this.state.textContent = "";
    this.news.hidden = true;
    show(this.standing, loading());
    show(this.near);
    show(this.past);
    show(this.acts);
    const reload = throttled(() => this.load(view, signal, onPosition), OWNER_RELOAD_MS, signal);
    poll(reload, OWNER_POLL_MS, signal);
    this.loadPast(view, signal);
    try {
      const query = new URLSearchParams({ column: column.name, owner });
      let began = false; // the first event has the state that `load` reads anyway
      const onEvent = (_, data) => {
        this.tell(view, data);
        if (began) reload();
        began = true;
      };
      const onState = (state) => tellFreshness(this.state, state, spec);
      follow(`${path`/v1/leaderboards/${board}/stream`}?${query}`, { onEvent, onState }, signal);
    } catch {
      // the board's id can't be part of an address; `load` shows the error
    }
  }

  title({ owner }, name) {
    const known = name || knownName(owner);
    show(this.panel.heading, named(known || owner), known && known !== owner ? named(owner, { class: "id" }) : null);
  }

  /** Show how an event changed the rank and who overtook the owner, which the card does not show. */
  tell({ column, owner }, { rank, previous_rank: before, overtaken_by: past }) {
    if (rank === null || before === null || rank === before) return;
    const places = Math.abs(rank - before);
    const way = rank < before ? "Up" : "Down";
    const by = separated(past.slice(0, OVERTAKERS_SHOWN).map((each) => named(knownName(each) || each)));
    const more = past.length > OVERTAKERS_SHOWN ? ` and ${past.length - OVERTAKERS_SHOWN} more` : "";
    show(this.news, `${way} ${whole(places)} to rank ${whole(rank)} by ${column.name}`, by.length ? [", passed by ", ...by, more] : null);
    this.news.className = `news ${rank < before ? "rose" : "fell"}`;
    this.news.hidden = false;
    announce(`${knownName(owner) || owner}: rank ${whole(rank)} by ${column.name}`, ANNOUNCE_PAUSE_MS);
  }

  async load(view, signal, onPosition) {
    const { board, column, owner } = view;
    try {
      const entry = path`/v1/leaderboards/${board}/entries/${owner}`;
      const asked = [`${entry}/positions?next=true`, `${entry}/around?${around(column)}`];
      const [positions, neighbours] = await Promise.allSettled(asked.map((each) => ask(each, { signal })));
      const own =
        neighbours.value?.data.entries.find((each) => each.owner === owner) ??
        (await ask(`${entry}?profiles=true`, { signal })).data;
      if (signal.aborted) return;
      learn(neighbours.value?.data.entries ?? [own]);
      this.title(view, nameOf(own.profile));
      const ranked = positions.value?.data.positions ?? [];
      const here = ranked.find((position) => position.column === column.name && position.rank !== null) ?? null;
      show(this.standing, this.ranks(view, own, ranked, positions.reason), this.others(view, own));
      show(this.near, own.hidden ? null : this.around(view, neighbours, here));
      this.drawActs(view, own, () => this.load(view, signal, onPosition));
      onPosition(here);
    } catch (error) {
      if (signal.aborted) return;
      onPosition(null);
      show(this.near);
      show(this.standing, absent(error) ? this.absent(owner) : fault(error));
    }
  }

  absent(owner) {
    return el(
      "p",
      {},
      "This owner has no entry on this board. Names are compared letter by letter. ",
      el("a", { href: toOwner(owner), "data-key": "elsewhere" }, "Look on all boards"),
      " or search again above.",
    );
  }

  /** Draw the operators' actions once for an owner, so that typed text stays. Give later stats to the correction. */
  drawActs({ board, owner, spec }, { stats, hidden = "shown" }, again) {
    const state = hidden === true ? "hidden" : hidden;
    if (!this.acts.childElementCount || this.actsOf !== JSON.stringify([board, owner, state])) {
      this.actsOf = JSON.stringify([board, owner, state]);
      this.correction = correction(board, owner, spec.columns, again);
      const actions = [
        this.correction.form,
        ...hidingActions(owner, state, again),
        erasure(board, owner, again),
        erasingAction(owner, again),
      ];
      show(this.acts, moderation("owner", "Moderate this owner", actions));
    }
    this.correction.tell(stats);
  }

  /** Return the ranks in all ranked columns, beginning with the shown column. */
  ranks({ spec, column }, own, positions, reason) {
    if (own.hidden) {
      return empty(
        "This owner is hidden: rankings, totals and streams leave the owner out. Posts still merge. ",
        el("a", { href: toOwner(own.owner), "data-key": "why" }, "Who hid the owner, and why"),
      );
    }
    if (!positions.length) return reason ? fault(reason) : empty("Not ranked in any column.");
    const first = [...positions].sort((one, other) => (other.column === column.name) - (one.column === column.name));
    const columns = Object.fromEntries(spec.columns.map((each) => [each.name, each]));
    return el(
      "ul",
      { class: "ranks" },
      first.map((position) => rankItem(position, columns[position.column], position.column === column.name)),
    );
  }

  /** Return the stats of unranked columns, and the time of the last change. */
  others({ spec }, { stats, updated_at: updatedAt }) {
    const rows = spec.columns.filter(({ sorted, name }) => !sorted && name in stats).map(({ name, type, scale }) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, type === "text" ? named(stats[name] ?? "–") : stored(stats[name], scale))),
    );
    return el("div", {}, rows.length ? el("dl", { class: "facts" }, rows) : null, el("p", { class: "quiet" }, "Changed ", ago(updatedAt)));
  }

  around({ board, spec, column, parameters, owner }, neighbours, here) {
    const title = el("h3", {}, `Around by ${column.name}`);
    if (neighbours.status === "rejected") {
      const { reason } = neighbours;
      if (reason.code === "archived") return [title, empty("The archive has the neighbours of the best owners only.")];
      return [title, reason.code === "not_ranked" ? empty(`No value in ${column.name}.`) : fault(reason)];
    }
    const entries = atRank(neighbours.value.data.entries, owner, here);
    return [title, rankedTable(`Neighbours by ${column.name}`, { board, spec, column, parameters, entries, marked: owner })];
  }

  /** Show the owner's ranks in closed periods, if the board belongs to a period of a family. */
  async loadPast({ board, column, owner, parameters }, signal) {
    const [family, period, facets = ""] = board.split(":");
    const kind = KINDS.find(([, form]) => form.test(period ?? ""))?.[0];
    if (!kind) return;
    const query = new URLSearchParams(facets ? facets.split(",").map((each) => each.split(/=(.*)/s).slice(0, 2)) : []);
    for (const [name, value] of [["period", kind], ["column", column.name], ["limit", HISTORY_PERIODS]]) query.set(name, value);
    try {
      const { data } = await ask(`${path`/v1/families/${family}/owners/${owner}/history`}?${query}`, { signal });
      const rows = data.history.map(({ board: then, period: { name }, position }) => [
        el("a", { href: toBoard(then, { ...parameters, owner, from: undefined }), "data-key": `past:${then}` }, name),
        position ? [...rankNodes(position), el("small", { class: "quiet" }, ` of ${whole(position.total)}`)] : "–",
        position ? stored(position.value, column.scale) : "",
      ]);
      const columns = [{ label: "Period" }, { label: "Rank", kind: "text" }, numeric("Value")];
      const closed = rows.length ? table(`Closed periods by ${column.name}`, columns, rows) : empty("No closed period has posts.");
      show(this.past, el("h3", {}, "Closed periods"), closed);
    } catch {
      show(this.past); // show the card without closed periods
    }
  }
}

/** Shift the neighbours' ranks so that the owner's rank among them is the rank that the card shows. */
function atRank(entries, owner, here) {
  const own = entries.find((each) => each.owner === owner);
  const shift = here === null || !own ? 0 : here.rank - own.rank;
  const exact = here === null ? (entry) => entry.exact : () => here.exact;
  return entries.map((entry) => ({ ...entry, rank: Math.max(1, entry.rank + shift), exact: exact(entry) }));
}

function rankItem(position, column, main) {
  const label = el("span", { class: "of" }, position.column);
  if (position.rank === null) return el("li", {}, label, " ", el("span", { class: "quiet" }, "no value"));
  return el(
    "li",
    { class: main ? "main" : null },
    label,
    el(
      "span",
      { class: "line" },
      rankNodes(position),
      position.tier ? tierTag(position.tier, column.tiers, position.tier_certain !== false) : null,
      el("span", { class: "quiet" }, ofAll(position)),
    ),
    el("span", {}, stored(position.value, column.scale), " · ", nextText(position.next, column)),
    el("small", { class: "quiet", title: `as of ${position.as_of}` }, method(position.method)),
  );
}

/** Return how many owners are ranked, and unless the owner is first, the share of the others who are not better. */
function ofAll({ rank, total, percentile: share }) {
  return `of ${whole(total)}${rank > 1 ? `, at least as good as ${percentile(share)}` : ""}`;
}

function around({ name }) {
  return new URLSearchParams({ column: name, better: AROUND_ROWS, worse: AROUND_ROWS, profiles: true });
}

function absent(error) {
  return error instanceof Problem && error.code === "unknown_owner";
}

/** Return the distance to the next better rank as text. */
export function nextText(place, { scale, best }) {
  if (place === null || place === undefined) return "leads";
  if (place.points === null) return "nothing more to reach";
  return `${stored(place.points, scale)} ${best === "high" ? "more" : "less"} for rank ${place.exact ? "" : "≈ "}${whole(place.rank)}`;
}
