// The panel of a ranking: the top, which a stream keeps up to date, or a page that begins at any rank.

import { ask, path, throttled } from "./api.js";
import { avatar, tierTag, valueCell } from "./cells.js";
import { chooseColumn, chosenColumns } from "./chosen_columns.js";
import { announce, el, named, panel, show, unseen } from "./dom.js";
import { ago, stored, whole } from "./format.js";
import { ANNOUNCE_PAUSE_MS, RANKING_ROWS, TOP_DRAW_MS, TOP_ROWS } from "./limits.js";
import { knownName, learn, learnOwners } from "./names.js";
import { toBoard } from "./routes.js";
import { follow } from "./streams.js";
import { empty, fault, loading, numeric, scrolled, table, tellFreshness } from "./tables.js";


/** Return the tie columns of a board, and whether the earlier of two equal values is better. */
export function tiesOf({ ties, columns }) {
  const names = typeof ties === "string" ? [ties] : ties;
  return { tied: names.map((name) => columns.find((each) => each.name === name)).filter(Boolean), timed: names.includes("earliest") };
}

/** Return a link to an owner's card. It shows the name in the profile, if there is one, and the owner's id. */
function ownerLink(board, parameters, owner) {
  const name = knownName(owner);
  const link = el(
    "a",
    { class: "owner", "data-key": `owner:${owner}`, href: toBoard(board, { ...parameters, owner }), title: owner },
    named(name || owner),
  );
  return name ? [link, " ", named(owner, { class: "id" })] : [link];
}

const TIER = "(tier)"; // no column of a board has such a name
const TIME = "(time)";

/**
 * Return the columns that a ranking can show beside rank, owner and value: {name, label, kind, shown: whether it is
 * shown unless a user chooses, cell: entry -> content}. What decides between equal values is shown, and what belongs to
 * the value, such as its replay.
 */
function optionalColumns(spec, column) {
  const { tied, timed } = tiesOf(spec);
  const byRank = [...new Set([...tied, ...spec.columns])].filter(({ name }) => name !== column.name);
  return [
    ...(column.tiers ? [{ name: TIER, label: "Tier", shown: true, cell: (entry) => tierTag(entry.tier, column.tiers) }] : []),
    ...byRank.map((each) => ({
      name: each.name,
      label: each.name,
      kind: each.type === "text" ? "text" : "number",
      wide: !tied.includes(each),
      shown: tied.includes(each) || (each.merge === "with" && each.of === column.name),
      cell: ({ stats }) => valueCell(each, stats[each.name]),
    })),
    {
      name: TIME,
      label: timed ? "Reached" : "Changed",
      kind: "when quiet",
      wide: true,
      shown: true,
      cell: (entry) => ago(timed ? entry.reached_at : entry.updated_at),
    },
  ];
}

/**
 * Return a table of ranked entries with these optional columns, by default those that decide between equal values.
 * `moves`: owner -> ranks gained, or "new". `marked`: the owner to highlight.
 */
export function rankedTable(caption, { board, spec, column, parameters, entries, moves = new Map(), marked = "", optional }) {
  const more = optional ?? optionalColumns(spec, column).filter(({ shown, wide, name }) => shown && (!wide || name === TIME));
  const rows = entries.map((entry) => {
    const move = moves.get(entry.owner);
    const here = entry.owner === marked;
    return el(
      "tr",
      { class: moveClass(move), "aria-current": here ? "true" : null },
      el("th", { scope: "row", class: "number" }, entry.exact ? whole(entry.rank) : `≈ ${whole(entry.rank)}`),
      el(
        "td",
        { class: "who" },
        avatar(entry.owner, knownName(entry.owner)),
        ownerLink(board, parameters, entry.owner),
        here ? unseen(" (this owner)") : null,
        moved(move),
      ),
      el("td", { class: "number" }, stored(entry.value, column.scale)),
      more.map(({ cell, kind = "text", wide }) => el("td", { class: `${kind}${wide ? " wide" : ""}` }, cell(entry))),
    );
  });
  return table(caption, [numeric("Rank"), { label: "Owner" }, numeric("Value"), ...more], rows);
}

function moveClass(move) {
  if (move === undefined) return null;
  return move === "new" || move > 0 ? "rose" : move < 0 ? "fell" : "touched";
}

function moved(move) {
  if (move === undefined || move === 0) return null;
  if (move === "new") return el("span", { class: "move up" }, " new");
  const text = move > 0 ? `▲ ${move}` : `▼ ${-move}`;
  return el(
    "span",
    { class: `move ${move > 0 ? "up" : "down"}` },
    el("span", { "aria-hidden": "true" }, ` ${text}`),
    unseen(move > 0 ? ` up ${move}` : ` down ${-move}`),
  );
}

/** The panel of a ranking. `start` fills it. */
export class RankingPanel {
  constructor() {
    this.panel = panel("ranking", "Top");
    this.state = el("span", { class: "state" });
    this.columns = el("details", { class: "chooser" });
    this.panel.aside.append(this.columns, this.state);
    this.rows = el("div", {});
    this.more = el("nav", { class: "line pages", "aria-label": "Pages of the ranking" });
    this.panel.body.append(this.rows, this.more);
  }

  /** Show a column's ranking from rank `from` until `signal` aborts. */
  start(view, signal) {
    const live = view.from <= 1;
    this.panel.heading.textContent = live ? `Top by ${view.column.name}` : `From rank ${whole(view.from)} by ${view.column.name}`;
    this.optional = optionalColumns(view.spec, view.column);
    this.drawn = null; // the latest rows and moves, which are drawn again when a user chooses columns
    this.drawChooser(view);
    show(this.rows, loading());
    show(this.more);
    tellFreshness(this.state, live ? "" : "page", view.spec);
    if (live) this.live(view, signal);
    else this.page(view, signal);
  }

  live(view, signal) {
    const { board, column } = view;
    const query = new URLSearchParams({ column: column.name, top: TOP_ROWS });
    let before = null;
    const draw = async (data) => {
      const moves = before === null ? new Map() : movesSince(before, data.entries);
      this.draw(view, data, moves);
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

  drawChooser(view) {
    const boxes = this.optional.map(({ name, label, shown }) => {
      const box = el("input", { type: "checkbox", checked: chosenColumns(view.board)[name] ?? shown });
      box.addEventListener("change", () => {
        chooseColumn(view.board, name, box.checked);
        if (this.drawn) this.draw(view, ...this.drawn);
      });
      return el("label", {}, box, ` ${label}`);
    });
    show(
      this.columns,
      el("summary", { "data-key": "columns" }, "Columns"),
      el("fieldset", {}, el("legend", { class: "unseen" }, "Columns of the ranking"), boxes),
    );
  }

  announce({ column }, before, now) {
    if (!now.length || before[0]?.owner === now[0].owner) return;
    const who = knownName(now[0].owner) || now[0].owner;
    announce(`${who} leads by ${column.name} with ${stored(now[0].value, column.scale)}`, ANNOUNCE_PAUSE_MS);
  }

  async page(view, signal) {
    const { board, column, from } = view;
    const query = new URLSearchParams({ from_rank: from, limit: RANKING_ROWS, profiles: true });
    try {
      const { data } = await ask(`${path`/v1/leaderboards/${board}/rankings/${column.name}`}?${query}`, { signal });
      learn(data.entries);
      this.draw(view, data, new Map());
    } catch (error) {
      if (!signal.aborted) show(this.rows, fault(error));
    }
  }

  draw(view, data, moves) {
    const { entries, total } = data;
    this.drawn = [data, new Map()];
    const chosen = chosenColumns(view.board);
    const optional = this.optional
      .filter(({ name, shown }) => chosen[name] ?? shown)
      .map((each) => (chosen[each.name] ? { ...each, wide: false } : each));
    const { board, spec, column, parameters, from, owner } = view;
    const rest = { column: column.name, owner };
    if (!entries.length) show(this.rows, empty(total ? "The ranking ends before this rank." : "Nobody is ranked here yet."));
    else {
      const title = `Ranking by ${column.name}`;
      const ranking = { board, spec, column, parameters, entries, moves, marked: owner, optional };
      show(this.rows, scrolled(title, rankedTable(title, ranking)));
    }
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
    const input = el("input", {
      id: "jump",
      name: "from",
      type: "number",
      min: 1,
      max: total,
      required: true,
      inputmode: "numeric",
      "data-key": "jump",
    });
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

