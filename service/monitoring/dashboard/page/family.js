// The view of a family: its periods as a calendar with winners, and a way to the board of a period and of facet values.

import { Away, ask, path, poll } from "./api.js";
import { until } from "./board_state.js";
import { AS_TYPED, el, facts, named, panel, show } from "./dom.js";
import { age, moment, stored, whole } from "./format.js";
import { CALENDAR_PERIODS, FACET_VALUES_SHOWN, LEADERS_POLL_MS, LEADERS_SHOWN } from "./limits.js";
import { leadersOf, placeLink, wayBack } from "./overview.js";
import { toBoard, toFamily } from "./routes.js";
import { empty, fault, loading } from "./tables.js";

const PERIODS = {
  all: [["all", "All time"]],
  year: [["this-year", "This year"], ["last-year", "Last year"]],
  month: [["this-month", "This month"], ["last-month", "Last month"]],
  week: [["this-week", "This week"], ["last-week", "Last week"]],
  day: [["today", "Today"], ["yesterday", "Yesterday"]],
};
const KINDS = { all: "All time", year: "Years", month: "Months", week: "Weeks", day: "Days" };

/** Shows one kind of a family's periods. */
export class FamilyView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.family = route.family;
    this.route = route;
    this.title = el("h1", { tabindex: "-1" }, named(route.family));
    this.about = el("div", {}, loading());
    this.tabs = el("nav", { class: "tabs", "aria-label": "Kinds of periods" });
    this.calendar = el("section", { class: "cards", "aria-label": "Periods, the newest first" });
    this.chooser = panel("choose", "A period’s board");
    this.chooser.section.hidden = true;
    const head = el("header", { class: "head" }, wayBack(), this.title, this.about);
    show(root, head, this.tabs, this.calendar, this.chooser.section);
    poll(() => this.load(), LEADERS_POLL_MS, signal);
  }

  get name() {
    return this.family;
  }

  /** Show another kind of periods. */
  update(route) {
    this.route = route;
    this.load();
  }

  async load() {
    this.asking?.abort();
    this.asking = new AbortController();
    const signal = AbortSignal.any([this.signal, this.asking.signal]);
    try {
      const { data: spec } = await ask(path`/v1/families/${this.family}`, { signal });
      const kinds = spec.periods.map((kind) => kind.name ?? kind);
      const kind = kinds.find((each) => each === this.route.parameters.period) ?? kinds.find((each) => each !== "all") ?? "all";
      if (kind !== this.kind) show(this.calendar, loading());
      this.kind = kind;
      const column = spec.columns.find(({ sorted }) => sorted);
      show(
        this.about,
        facts([
          ["Boards", whole(spec.boards)],
          ["Time zone", spec.time_zone],
          ["Late posts", `until ${age(spec.grace_seconds)} after a period’s end`],
          spec.keep[kind] && ["Kept", `${whole(spec.keep[kind])} periods, then archived`],
        ]),
      );
      const tab = (each) =>
        el(
          "a",
          {
            href: toFamily(this.family, { period: each }),
            "aria-current": each === kind ? "page" : null,
            "data-key": `kind:${each}`,
          },
          KINDS[each] ?? each,
        );
      show(this.tabs, kinds.map(tab));
      this.choose(spec);
      const periods = await this.walk(kind, Date.parse(spec.created_at), signal);
      const leaders = await Promise.all(periods.map(({ board }) => column && leadersOf(board, column.name, LEADERS_SHOWN, signal)));
      const cards = periods.map((each, index) => periodCard(each, leaders[index], column, spec.rewards?.[kind]));
      show(this.calendar, cards.length ? cards : empty("No period is under way."));
    } catch (error) {
      if (signal.aborted || error instanceof Away) return;
      show(this.about, fault(error));
      show(this.tabs);
      show(this.calendar);
      this.onFault?.(error);
    }
  }

  /** Return the newest periods of a kind, back to the one in which the family was created. */
  async walk(kind, created, signal) {
    const found = [];
    let at = "";
    while (found.length < CALENDAR_PERIODS) {
      const query = new URLSearchParams({ period: kind, ...(at ? { at } : {}) });
      const answer = await ask(`${path`/v1/families/${this.family}/boards`}?${query}`, { signal }).catch((error) => {
        if (error instanceof Away || signal.aborted) throw error;
        return null; // no period at that time
      });
      if (answer === null) break;
      found.push(answer.data);
      const { previous, period } = answer.data;
      if (previous === null || Date.parse(period.starts_at) <= created) break;
      at = new Date(Date.parse(period.starts_at) - 1).toISOString();
    }
    return found;
  }

  /** Draw the form that leads to a board once, so that typed text stays. */
  choose({ periods, facets }) {
    this.facets = facets;
    this.names = [...new Set(facets.flat())];
    if (this.chooser.body.childElementCount) return;
    const key = `family:${this.family}`;
    const fields = this.names.flatMap((name) => {
      const input = el("input", { id: `${key}:${name}`, name, list: `${key}:${name}:values`, ...AS_TYPED });
      return [el("label", { for: input.id }, name), input, el("datalist", { id: `${key}:${name}:values` })];
    });
    const choices = periods.flatMap(
      (kind) => PERIODS[kind] ?? [[`this-${kind.name}`, `This ${kind.name}`], [`last-${kind.name}`, `Last ${kind.name}`]],
    );
    const buttons = choices.map(([value, text]) =>
      el("button", { name: "period", value, "data-key": `${key}:${value}` }, text),
    );
    this.fault = el("p", { class: "fault", role: "alert" });
    const form = el("form", { class: "line", onsubmit: (event) => this.go(event) }, fields, buttons, this.fault);
    show(this.chooser.body, form);
    this.chooser.section.hidden = false;
    for (const [name] of facets.filter((names) => names.length === 1)) this.propose(name, periods[0].name ?? periods[0]);
  }

  /** Propose values for a facet by which alone the family has boards. */
  async propose(facet, period) {
    const query = new URLSearchParams({ facet, limit: FACET_VALUES_SHOWN, period });
    try {
      const { data } = await ask(`${path`/v1/families/${this.family}/facets`}?${query}`, { signal: this.signal });
      show(document.getElementById(`family:${this.family}:${facet}:values`), data.values.map(({ value }) => el("option", { value })));
    } catch {
      // users can still type a value without proposals
    }
  }

  go(event) {
    event.preventDefault();
    const given = new FormData(event.target);
    const filled = this.names.filter((name) => given.get(name).trim()).sort();
    if (!this.facets.some((names) => [...names].sort().join() === filled.join())) {
      const kinds = this.facets.map((names) => (names.length ? `by ${names.join(" and ")}` : "for everybody"));
      show(this.fault, `This family has boards ${kinds.join(", ")}.`);
      return;
    }
    const facets = filled.map((name) => `${name}=${given.get(name).trim()}`).join(",");
    location.hash = toBoard([this.family, event.submitter.value, ...(facets ? [facets] : [])].join(":"));
  }
}

function periodCard({ board, period, archived }, leaders, column, rewards) {
  const over = period.ends_at && Date.parse(period.ends_at) <= Date.now();
  const [look, word] = archived
    ? ["archived", "archived"]
    : period.closed
      ? ["closed", "final"]
      : over
        ? ["soon", "late posts"]
        : ["open", "running"];
  const rows = (leaders?.entries ?? []).map(({ owner, rank, value }) =>
    el(
      "li",
      {},
      el("span", { class: "quiet" }, whole(rank)),
      placeLink(board, { column: column.name, owner }, `winner:${board}:${owner}`),
      el("b", {}, stored(value, column.scale)),
    ),
  );
  return el(
    "article",
    { class: "card", "aria-labelledby": `card:${board}` },
    el(
      "h2",
      { id: `card:${board}` },
      el("a", { href: toBoard(board), "data-key": `period:${board}` }, period.name),
      " ",
      el("span", { class: `tag ${look}` }, word),
    ),
    el(
      "p",
      { class: "quiet" },
      period.ends_at ? (over ? ["ended ", moment(period.ends_at)] : until(period.ends_at, "ends in")) : "never ends",
    ),
    rows.length ? el("ol", { class: "leaders" }, rows) : el("p", { class: "quiet leaders" }, "Nobody is ranked."),
    el(
      "p",
      { class: "quiet" },
      leaders ? `${whole(leaders.total)} ranked` : "",
      rewards ? `, ${rewards.length} ${rewards.length === 1 ? "prize" : "prizes"}` : "",
    ),
  );
}
