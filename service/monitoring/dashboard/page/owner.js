// One owner on one board: stats, positions with their brackets, neighbours; live by the owner's own stream.

import { Problem, ask, path, poll, throttled } from "./api.js";
import { announce, el, named, panel, show } from "./dom.js";
import { ago, method, percentile, rankNodes, stored, whole } from "./format.js";
import { ANNOUNCE_PAUSE_MS, AROUND_ROWS, OVERTAKERS_SHOWN, OWNER_POLL_MS, OWNER_RELOAD_MS } from "./limits.js";
import { knownName, learn, nameOf } from "./names.js";
import { rankedTable } from "./ranking.js";
import { toBoard } from "./routes.js";
import { follow } from "./streams.js";
import { empty, fault, loading, table } from "./tables.js";

/** The card; `start(view, signal, onPosition)` fills it. */
export class OwnerPanel {
  constructor() {
    this.panel = panel("owner", "Owner");
    this.state = el("span", { class: "state" });
    this.close = el("a", { "data-key": "close-owner" }, "Close");
    this.panel.aside.append(this.state, this.close);
    this.news = el("p", { class: "news", hidden: true });
    this.parts = el("div", {});
    this.panel.body.append(this.news, this.parts);
  }

  /** Show `{board, spec, column, owner, parameters}` until the signal; `onPosition` hears the one in the column. */
  start(view, signal, onPosition) {
    const { board, column, owner, parameters } = view;
    this.title(view, "");
    this.close.href = toBoard(board, { ...parameters, owner: undefined });
    this.state.textContent = "";
    this.news.hidden = true;
    show(this.parts, loading());
    const reload = throttled(() => this.load(view, signal, onPosition), OWNER_RELOAD_MS, signal);
    poll(reload, OWNER_POLL_MS, signal);
    try {
      const query = new URLSearchParams({ column: column.name, owner });
      const onEvent = (_, data) => {
        this.tell(view, data);
        reload();
      };
      const onState = (state) => {
        this.state.textContent = { live: "Live", away: "Reconnecting …" }[state] ?? "";
        this.state.className = `state ${state}`;
      };
      follow(`${path`/v1/leaderboards/${board}/stream`}?${query}`, { onEvent, onState }, signal);
    } catch {
      // what can't be asked for is told by `load`
    }
  }

  title({ owner }, name) {
    const known = name || knownName(owner);
    show(this.panel.heading, named(known || owner), known && known !== owner ? named(owner, { class: "id" }) : null);
  }

  /** What an event says that the card does not: who went past. */
  tell({ column, owner }, { rank, previous_rank: before, overtaken_by: past }) {
    if (rank === null || before === null || rank === before) return;
    const places = Math.abs(rank - before);
    const way = rank < before ? "Up" : "Down";
    const by = past.slice(0, OVERTAKERS_SHOWN).flatMap((each, index) => [index ? ", " : "", named(knownName(each) || each)]);
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
      const asked = [`${entry}?profiles=true`, `${entry}/positions?next=true`, `${entry}/around?${around(column)}`];
      const [found, positions, neighbours] = await Promise.allSettled(asked.map((each) => ask(each, { signal })));
      if (signal.aborted) return;
      if (found.status === "rejected") throw found.reason;
      learn([found.value.data]);
      this.title(view, nameOf(found.value.data.profile));
      const ranked = positions.status === "fulfilled" ? positions.value.data.positions : [];
      show(
        this.parts,
        this.standing(view, found.value.data, ranked, positions.reason),
        this.stats(view, found.value.data),
        found.value.data.hidden ? null : this.around(view, neighbours),
      );
      const here = ranked.find((position) => position.column === column.name);
      onPosition(here && here.rank !== null ? here : null);
    } catch (error) {
      if (signal.aborted) return;
      onPosition(null);
      show(this.parts, absent(error) ? empty("This owner has no entry on this board. Names are compared letter by letter.") : fault(error));
    }
  }

  standing({ spec }, entry, positions, reason) {
    if (entry.hidden) return empty("This owner is hidden: rankings, totals and streams leave the owner out. Posts still merge.");
    if (!positions.length) return reason ? fault(reason) : empty("Not ranked in any column.");
    const scales = Object.fromEntries(spec.columns.map(({ name, scale }) => [name, scale]));
    const columns = [
      { label: "Column" },
      { label: "Rank", kind: "text" },
      { label: "Better than", kind: "number" },
      { label: "To the next place", kind: "number", wide: true },
      { label: "Found", wide: true },
    ];
    const rows = positions.map((position) => {
      if (position.rank === null) return [position.column, el("span", { class: "quiet" }, "no value"), "", "", ""];
      const scale = scales[position.column] ?? 0;
      return [
        position.column,
        [...rankNodes(position), el("small", { class: "quiet" }, ` of ${whole(position.total)}`)],
        percentile(position.percentile, position.rank),
        next(position.next, scale),
        el("span", { class: "quiet", title: `as of ${position.as_of}` }, method(position.method)),
      ];
    });
    return table("Positions", columns, rows, { captionShown: true });
  }

  stats({ spec }, { stats, updated_at: updatedAt }) {
    const known = Object.fromEntries(spec.columns.map((column) => [column.name, column]));
    const rows = Object.entries(stats).map(([name, value]) =>
      el("div", {}, el("dt", {}, name), el("dd", {}, known[name]?.type === "text" ? named(value ?? "–") : stored(value, known[name]?.scale ?? 0))),
    );
    return el("div", { class: "stack" }, el("h3", {}, "Stats"), el("dl", { class: "facts" }, rows), el("p", { class: "quiet" }, "Changed ", ago(updatedAt)));
  }

  around({ board, column, parameters, owner }, neighbours) {
    const title = el("h3", {}, `Around by ${column.name}`);
    if (neighbours.status === "rejected") {
      const { reason } = neighbours;
      const text = reason instanceof Problem && reason.code === "not_ranked" ? empty(`No value in ${column.name}.`) : fault(reason);
      return el("div", {}, title, text);
    }
    const { entries } = neighbours.value.data;
    learn(entries);
    return el("div", {}, title, rankedTable(`Neighbours by ${column.name}`, { board, column, parameters, entries, marked: owner }));
  }
}

function around({ name }) {
  return new URLSearchParams({ column: name, better: AROUND_ROWS, worse: AROUND_ROWS, profiles: true });
}

function absent(error) {
  return error instanceof Problem && error.code === "unknown_owner";
}

function next(place, scale) {
  if (place === null || place === undefined) return el("span", { class: "quiet" }, "leads");
  if (place.points === null) return "–";
  return `${stored(place.points, scale)} → ${place.exact ? "" : "≈ "}${whole(place.rank)}`;
}
