// The panel of a ranking: the top, which a stream keeps up to date, or a page that begins at any rank.

import { ask, path, throttled } from "./api.js";
import { announce, el, named, panel, show, unseen } from "./dom.js";
import { ago, stored, whole } from "./format.js";
import { ANNOUNCE_PAUSE_MS, RANKING_ROWS, TOP_DRAW_MS, TOP_ROWS } from "./limits.js";
import { knownName, learn, learnOwners } from "./names.js";
import { toBoard } from "./routes.js";
import { follow } from "./streams.js";
import { empty, fault, loading, table, tellFreshness } from "./tables.js";

const COLUMNS = [{ label: "Rank", kind: "number" }, { label: "Owner" }, { label: "Value", kind: "number" }];

/** Return the tie columns of a board, and whether the earlier of two equal values is better. */
export function tiesOf({ ties, columns }) {
  const names = typeof ties === "string" ? [ties] : ties;
  return { tied: names.map((name) => columns.find((each) => each.name === name)).filter(Boolean), timed: names.includes("earliest") };
}

/** Return a link to an owner's card. It shows the name in the profile, if there is one, and the owner's id. */
export function ownerLink(board, parameters, owner) {
  const name = knownName(owner);
  const link = el(
    "a",
    { class: "owner", "data-key": `owner:${owner}`, href: toBoard(board, { ...parameters, owner }), title: owner },
    named(name || owner),
  );
  return name ? [link, " ", named(owner, { class: "id" })] : [link];
}

/**
 * Return a table of ranked entries, with what decides between equal values: tie columns, and when a value was reached.
 * `moves`: owner -> ranks gained, or "new". `marked`: the owner to highlight.
 */
export function rankedTable(caption, { board, spec, column, parameters, entries, moves = new Map(), marked = "" }) {
  const { tied, timed } = tiesOf(spec);
  const others = tied.filter(({ name }) => name !== column.name);
  const rows = entries.map((entry) => {
    const move = moves.get(entry.owner);
    const here = entry.owner === marked;
    return el(
      "tr",
      { class: moveClass(move), "aria-current": here ? "true" : null },
      el("th", { scope: "row", class: "number" }, entry.exact ? whole(entry.rank) : `≈ ${whole(entry.rank)}`),
      el("td", { class: "who" }, ownerLink(board, parameters, entry.owner), here ? unseen(" (this owner)") : null, moved(move)),
      el("td", { class: "number" }, stored(entry.value, column.scale)),
      others.map(({ name, scale }) => el("td", { class: "number" }, stored(entry.stats[name], scale))),
      el("td", { class: "when wide quiet" }, ago(timed ? entry.reached_at : entry.updated_at)),
    );
  });
  const more = [...others.map(({ name }) => ({ label: name, kind: "number" })), { label: timed ? "Reached" : "Changed", wide: true }];
  return table(caption, [...COLUMNS, ...more], rows);
}

function moveClass(move) {
  if (move === undefined) return null;
  return move === "new" || move > 0 ? "rose" : move < 0 ? "fell" : "touched";
}

function moved(move) {
  if (move === undefined || move === 0) return null;
  if (move === "new") return el("span", { class: "move up" }, " new");
  const text = move > 0 ? `▲ ${move}` : `▼ ${-move}`;
  return el("span", { class: `move ${move > 0 ? "up" : "down"}` }, el("span", { "aria-hidden": "true" }, ` ${text}`), unseen(move > 0 ? ` up ${move}` : ` down ${-move}`));
}

/** The panel of a ranking. `start` fills it. */
export class RankingPanel {
  constructor() {
    this.panel = panel("ranking", "Top");
    this.state = el("span", { class: "state" });
    this.panel.aside.append(this.state);
    this.rows = el("div", {});
    this.more = el("nav", { class: "line pages", "aria-label": "Pages of the ranking" });
    this.panel.body.append(this.rows, this.more);
  }

  /** Show a column's ranking from rank `from` until `signal` aborts. `onTotal` is called with the number of owners. */
  start(view, signal, onTotal) {
    const live = view.from <= 1;
    this.panel.heading.textContent = live ? `Top by ${view.column.name}` : `From rank ${whole(view.from)} by ${view.column.name}`;
    show(this.rows, loading());
    show(this.more);
    tellFreshness(this.state, live ? "" : "page", view.spec);
    if (live) this.live(view, signal, onTotal);
    else this.page(view, signal, onTotal);
  }

  live(view, signal, onTotal) {
    const { board, column } = view;
    const query = new URLSearchParams({ column: column.name, top: TOP_ROWS });
    let before = null;
    const draw = async (data) => {
      const moves = before === null ? new Map() : movesSince(before, data.entries);
      this.draw(view, data, moves);
      onTotal(data.total);
      if (before !== null && !view.owner) this.announce(view, before, data.entries); // otherwise the owner's card announces changes
      before = data.entries;
      const owners = data.entries.map((entry) => entry.owner);
      if ((await learnOwners(board, owners, signal)) && before === data.entries && !signal.aborted) this.draw(view, data, moves);
    };
    let latest = null;
    const redraw = throttled(async () => void draw(latest), TOP_DRAW_MS, signal);
    const onEvent = (_, data) => {
      latest = data;
      redraw();
    };
    const onState = (state, problem) => {
      tellFreshness(this.state, state, view.spec);
      if (problem) show(this.rows, fault(problem));
    };
    try {
      follow(`${path`/v1/leaderboards/${board}/stream`}?${query}`, { onEvent, onState }, signal);
    } catch (error) {
      show(this.rows, fault(error));
    }
  }

  announce({ column }, before, now) {
    if (!now.length || before[0]?.owner === now[0].owner) return;
    const who = knownName(now[0].owner) || now[0].owner;
    announce(`${who} leads by ${column.name} with ${stored(now[0].value, column.scale)}`, ANNOUNCE_PAUSE_MS);
  }

  async page(view, signal, onTotal) {
    const { board, column, from } = view;
    const query = new URLSearchParams({ from_rank: from, limit: RANKING_ROWS, profiles: true });
    try {
      const { data } = await ask(`${path`/v1/leaderboards/${board}/rankings/${column.name}`}?${query}`, { signal });
      learn(data.entries);
      onTotal(data.total);
      this.draw(view, data, new Map());
    } catch (error) {
      if (!signal.aborted) show(this.rows, fault(error));
    }
  }

  draw(view, { entries, total }, moves) {
    const { board, spec, column, parameters, from, owner } = view;
    const rest = { column: column.name, owner };
    if (!entries.length) show(this.rows, empty(total ? "The ranking ends before this rank." : "Nobody is ranked here yet."));
    else show(this.rows, rankedTable(`Ranking by ${column.name}`, { board, spec, column, parameters, entries, moves, marked: owner }));
    const next = from + entries.length;
    const links = [
      from > 1 && ["Top", {}],
      from > 1 && ["Previous", { from: Math.max(1, from - RANKING_ROWS) }],
      entries.length > 0 && next <= total && ["Next", { from: next }],
    ].filter(Boolean);
    show(
      this.more,
      links.map(([text, at]) => el("a", { class: "button", "data-key": `page:${text}`, href: toBoard(board, { ...rest, ...at }) }, text)),
      total > TOP_ROWS ? this.jump(board, rest, total) : null,
      el("span", { class: "quiet" }, `${whole(total)} ranked`),
    );
  }

  jump(board, rest, total) {
    const kept = this.more.querySelector("form");
    if (kept && this.jumpsTo === JSON.stringify([board, rest])) return kept; // keep what the user has typed
    this.jumpsTo = JSON.stringify([board, rest]);
    const input = el("input", { id: "jump", name: "from", type: "number", min: 1, max: total, required: true, inputmode: "numeric", "data-key": "jump" });
    const go = (event) => {
      event.preventDefault();
      location.hash = toBoard(board, { ...rest, from: input.value });
    };
    return el("form", { class: "line", onsubmit: go }, el("label", { for: "jump" }, "From rank"), input, el("button", {}, "Go"));
  }
}

/** Return how many ranks each owner gained since the rows `before`, or "new". Unchanged owners are left out. */
function movesSince(before, now) {
  const ranks = new Map(before.map((entry) => [entry.owner, entry]));
  const moves = new Map();
  for (const entry of now) {
    const was = ranks.get(entry.owner);
    if (!was) moves.set(entry.owner, "new");
    else if (was.rank !== entry.rank || was.value !== entry.value) moves.set(entry.owner, was.rank - entry.rank);
  }
  return moves;
}

