// The panel about a board: how much time is left, what it takes to post, its prizes, and who has or would get them.

import { ask, path, poll } from "./api.js";
import { until } from "./board_state.js";
import { el, facts, named, panel, separated, show } from "./dom.js";
import { moment, stored, whole } from "./format.js";
import { LEADERS_POLL_MS, PRIZES_SHOWN, WINNERS_SHOWN } from "./limits.js";
import { learnOwners } from "./names.js";
import { placeLink } from "./overview.js";
import { tiesOf } from "./ranking.js";
import { toFamily } from "./routes.js";
import { table } from "./tables.js";

const COLUMNS = [{ label: "Prize" }, { label: "For" }, { label: "Who" }];

/** The panel. `tell` gives it the board's document, whenever that has changed. */
export class AboutPanel {
  constructor(board, signal) {
    this.board = board;
    this.signal = signal;
    this.panel = panel("about", "About");
    this.facts = el("div", {});
    this.prizes = el("div", {});
    this.panel.body.append(this.facts, this.prizes);
    this.end = null; // when the period of a family's board ends, as a time element
    poll(() => this.load(), LEADERS_POLL_MS, signal);
  }

  tell(spec) {
    const first = !this.spec;
    this.spec = spec;
    if (first) this.load();
    const family = spec.id.includes(":") ? spec.id.split(":")[0] : null;
    const { entry = {} } = spec;
    const limits = spec.columns.flatMap((column) => limitsOf(column));
    show(this.facts, facts([
      this.end && ["Time left", this.end],
      spec.opens_at && ["Opens", moment(spec.opens_at)],
      spec.closes_at && [spec.closed ? "Closed" : "Closes", moment(spec.closes_at)],
      entry.join && ["To post", "join first"],
      entry.posts_max && ["Posts of an owner", `at most ${whole(entry.posts_max)}`],
      spec.owners !== undefined && [
        "Take part",
        entry.owners_max ? `${whole(spec.owners)} of ${whole(entry.owners_max)} places` : whole(spec.owners),
      ],
      limits.length > 0 && ["Limits of a post", limits.join(", "), "What a post beyond these limits meets"],
      ["Equal values", equals(spec)],
      ["Always exact", `ranks up to ${whole(spec.predictor.exact_top)}`, "Further ranks are counted or estimated, and each says which"],
      ["Created", moment(spec.created_at)],
      family && ["Family", el("a", { href: toFamily(family), "data-key": "family" }, named(family))],
    ]));
  }

  async load() {
    const { spec, board, signal } = this;
    if (!spec) return;
    const [family, period, given = ""] = board.split(":");
    try {
      if (period && period !== "all" && !spec.closed) await this.findEnd(family, given);
      if (spec.rewards) await this.loadPrizes(spec);
    } catch {
      if (!signal.aborted) show(this.prizes); // show the board without them
    }
  }

  /** Find when the period of the shown board ends, if it is one of the family's current periods. */
  async findEnd(family, given) {
    const { signal, board } = this;
    const { data: whole } = await ask(path`/v1/families/${family}`, { signal });
    const facets = given ? given.split(",").map((each) => each.split(/=(.*)/s).slice(0, 2)) : [];
    for (const kind of whole.periods.map((each) => each.name ?? each)) {
      const query = new URLSearchParams([["period", kind], ...facets]);
      const { data } = await ask(`${path`/v1/families/${family}/boards`}?${query}`, { signal }).catch(() => ({ data: {} }));
      if (data.board !== board || !data.period.ends_at) continue;
      this.end = until(data.period.ends_at, "ends in");
      return this.tell(this.spec);
    }
  }

  async loadPrizes({ rewards, columns, closed }) {
    const { board, signal } = this;
    const target = closed ? path`/v1/leaderboards/${board}/grants` : path`/v1/leaderboards/${board}/rewards/preview`;
    const { data } = await ask(`${target}?limit=${PRIZES_SHOWN}`, { signal });
    const of = Map.groupBy(data.grants, ({ reward }) => reward);
    const named = [...of.values()].flatMap((grants) => grants.slice(0, WINNERS_SHOWN).map(({ owner }) => owner));
    await learnOwners(board, named, signal);
    const rows = rewards.map((reward) => [
      reward.name,
      [condition(reward, columns), prizeOf(reward)],
      this.winners(of.get(reward.name) ?? [], data.next),
    ]);
    const title = !closed ? "Who would get a prize now" : data.made === false ? "Prizes, being handed out" : "Who got a prize";
    show(this.prizes, table(title, COLUMNS, rows, { captionShown: true }));
  }

  winners(grants, next) {
    if (!grants.length) return "nobody";
    const more = grants.length - WINNERS_SHOWN;
    const winners = grants.slice(0, WINNERS_SHOWN);
    const links = separated(winners.map(({ owner }) => placeLink(this.board, { owner }, `prize:${owner}`)));
    return [...links, more > 0 ? ` and ${whole(more)}${next ? " or more" : ""} others` : ""];
  }
}

function condition({ column, to_rank: rank, to_percent: share, to_value: value }, columns) {
  if (rank !== undefined) return rank === 1 ? `the first by ${column}` : `the first ${whole(rank)} by ${column}`;
  if (share !== undefined) return `the best ${share}% by ${column}`;
  const { best, scale } = columns.find(({ name }) => name === column);
  return `${column} ${stored(value, scale)} or ${best === "high" ? "more" : "less"}`;
}

function prizeOf({ data }) {
  const parts = Object.entries(data ?? {}).map(([name, value]) => (typeof value === "object" ? name : `${name} ${value}`));
  return parts.length ? el("small", { class: "quiet" }, `: ${parts.join(", ")}`) : null;
}

function limitsOf({ name, scale, post_min: least, post_max: most, gain_per_hour_max: gain, on_breach: breach }) {
  const parts = [
    least !== undefined && `${name} from ${stored(least, scale)}`,
    most !== undefined && `${name} up to ${stored(most, scale)}`,
    gain !== undefined && `${name} up to ${stored(gain, scale)} an hour`,
  ].filter(Boolean);
  return parts.length ? [...parts, breach === "hold" ? "others are held" : "others are rejected"] : [];
}

/** Return how equal values are ranked, as text. */
function equals(spec) {
  const { tied, timed } = tiesOf(spec);
  const told = [tied.length && `are ordered by ${tied.map(({ name }) => name).join(", ")}`, timed && "the one reached first is better"];
  return told.filter(Boolean).join(", then ") || "share a rank";
}
