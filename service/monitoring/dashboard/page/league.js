// The view of a league: its divisions as a pyramid, and one cohort with its zones, until the period ends.

import { Away, ask, path, poll } from "./api.js";
import { tierLook, tierTag } from "./cells.js";
import { AS_TYPED, el, facts, named, panel, show, svg } from "./dom.js";
import { age, whole } from "./format.js";
import { BOARD_POLL_MS, COUNTDOWN_MS } from "./limits.js";
import { nameOf } from "./names.js";
import { wayBack } from "./overview.js";
import { toBoard, toLeague, toOwner } from "./routes.js";
import { empty, fault, loading, numeric, table } from "./tables.js";

const DIVISIONS = [{ label: "Division" }, numeric("Owners"), numeric("Cohorts"), { label: "Share", wide: true }];
const ROWS = [{ label: "Owner" }, numeric("Rank"), numeric("Value"), { label: "When the period ends" }];
const ZONES = { promotion: ["open", "▲ rises"], safe: ["", "stays"], relegation: ["archived", "▼ falls"] };

/** Shows the divisions of a league, and the cohort that the address names, or that of the owner in it. */
export class LeagueView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.league = route.league;
    this.route = route;
    this.title = el("h1", { tabindex: "-1" }, named(route.league));
    this.left = el("span", {});
    this.facts = el("div", {});
    this.divisions = panel("divisions", "Divisions");
    this.cohort = panel("cohort", "Cohort");
    this.input = el("input", {
      id: "member",
      type: "search",
      required: true,
      value: route.parameters.owner ?? "",
      ...AS_TYPED,
      dir: "auto",
    });
    const find = (event) => {
      event.preventDefault();
      location.hash = toLeague(this.league, { owner: this.input.value.trim() });
    };
    const label = el("label", { for: "member" }, "Find an owner");
    const button = el("button", {}, "Find");
    const form = el("form", { class: "line", role: "search", onsubmit: find }, label, this.input, button);
    const head = el("header", { class: "head split" }, wayBack(), this.title, form, this.facts);
    show(root, head, el("div", { class: "grid" }, this.divisions.section, this.cohort.section));
    show(this.divisions.body, loading());
    const ticking = setInterval(() => this.tick(), COUNTDOWN_MS);
    signal.addEventListener("abort", () => clearInterval(ticking));
    poll(() => this.load(), BOARD_POLL_MS, signal);
  }

  get name() {
    return this.league;
  }

  /** Show another cohort. */
  update(route) {
    this.route = route;
    this.load();
  }

  tick() {
    if (this.endsAt === undefined) return;
    const left = (this.endsAt - Date.now()) / 1000;
    this.left.textContent = left > 0 ? age(left) : "over: results are coming in";
  }

  async load() {
    const { signal, league, route } = this;
    try {
      const { data } = await ask(path`/v1/leagues/${league}/divisions`, { signal });
      this.endsAt = Date.parse(data.ends_at);
      this.tick();
      const board = `${league}:${data.period}`;
      show(this.facts, facts([["Period", el("a", { href: toBoard(board) }, data.period)], ["Ends in", this.left]]));
      show(this.divisions.body, pyramid(data.divisions));
      await this.loadCohort(route.parameters);
    } catch (error) {
      if (signal.aborted || error instanceof Away) return;
      show(this.divisions.body, fault(error));
      this.onFault?.(error);
    }
  }

  async loadCohort({ owner, cohort }) {
    const { signal, league } = this;
    if (!owner && !cohort) {
      show(this.cohort.body, empty("Find an owner to see its cohort."));
      return;
    }
    try {
      const target = owner ? path`/v1/leagues/${league}/owners/${owner}` : path`/v1/leagues/${league}/cohorts/${cohort}`;
      const { data } = await ask(target, { signal });
      show(this.cohort.heading, data.cohort ?? "Cohort");
      if (data.cohort) show(this.cohort.body, table(`Cohort ${data.cohort}`, ROWS, data.entries.map((entry) => row(entry, owner))));
      else if (data.waiting) show(this.cohort.body, empty("This owner waits for its result of the last period."));
      else show(this.cohort.body, empty(`This owner is in the division ${data.division}, and has not posted in this period.`));
    } catch (error) {
      if (signal.aborted || error instanceof Away) return;
      show(this.cohort.body, fault(error));
    }
  }
}

/** Return a table of divisions, the best one first, with bars whose lengths are the shares of owners. */
function pyramid(divisions) {
  const most = Math.max(1, ...divisions.map(({ owners }) => owners));
  const rows = divisions.toReversed().map(({ name, owners, cohorts }) => {
    const width = (100 * owners) / most;
    const bar = svg(
      "svg",
      { viewBox: "0 0 100 8", width: 160, height: 13, "aria-hidden": "true" },
      svg("rect", { class: `bar-of tier ${tierLook(name, divisions)}`, x: 50 - width / 2, y: 0, width, height: 8, rx: 2 }),
    );
    return [tierTag(name, divisions), whole(owners), whole(cohorts), bar];
  });
  return table("Owners with seats in this period", DIVISIONS, rows);
}

function row({ owner, rank, value, zone, profile }, sought) {
  const [look, text] = ZONES[zone] ?? ["", zone];
  const name = nameOf(profile);
  const link = el("a", { href: toOwner(owner), "data-key": `member:${owner}`, title: owner }, named(name || owner));
  return [
    owner === sought ? el("b", {}, link) : link,
    rank === null ? "–" : whole(rank),
    value === null ? "–" : String(value),
    el("span", { class: `tag ${look}` }, text),
  ];
}
