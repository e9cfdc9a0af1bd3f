// The row of a family. When it is unfolded, a user can choose a period and facet values to go to their board.

import { ask, path } from "./api.js";
import { el, show } from "./dom.js";
import { whole } from "./format.js";
import { FACET_VALUES_SHOWN } from "./limits.js";
import { toBoard, toLeague } from "./routes.js";

const PERIODS = {
  all: [["all", "All time"]],
  year: [["this-year", "This year"], ["last-year", "Last year"]],
  month: [["this-month", "This month"], ["last-month", "Last month"]],
  week: [["this-week", "This week"], ["last-week", "Last week"]],
  day: [["today", "Today"], ["yesterday", "Yesterday"]],
};

/** The row of a family in the list of boards. Its element is `row`. It starts unfolded if `open` is true. */
export class FamilyPicker {
  constructor(family, signal, open) {
    this.family = family;
    this.signal = signal;
    const key = `family:${family.id}`;
    this.names = [...new Set(family.facets.flat())];
    this.count = el("span", { class: "quiet" });
    this.fault = el("p", { class: "fault", role: "alert" });
    const fields = this.names.flatMap((name) => {
      const input = el("input", { id: `${key}:${name}`, name, list: `${key}:${name}:values`, autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
      return [el("label", { for: input.id }, name), input, el("datalist", { id: `${key}:${name}:values` })];
    });
    const periods = family.periods.flatMap((kind) => PERIODS[kind] ?? []).map(([value, text]) => el("button", { name: "period", value, "data-key": `${key}:${value}` }, text));
    const league = family.league ? el("a", { href: toLeague(family.id), "data-key": `${key}:league` }, "Divisions and cohorts") : null;
    const form = el("form", { class: "line", onsubmit: (event) => this.go(event) }, fields, periods, league, this.fault);
    this.row = el("details", { class: "family", open }, el("summary", { "data-key": key }, el("b", {}, el("bdi", {}, family.id)), " ", this.count), form);
    this.row.addEventListener("toggle", () => this.row.open && this.proposeValues());
    this.tell(family);
  }

  tell({ boards, periods }) {
    const kinds = periods.map((kind) => kind.name ?? kind).join(", ");
    this.count.textContent = `${whole(boards)} ${boards === 1 ? "board" : "boards"}, by ${kinds}`;
  }

  /** Propose values for each facet by which alone the family has boards. Ask for them only once. */
  proposeValues() {
    if (this.proposed) return;
    this.proposed = true;
    for (const [name] of this.family.facets.filter((names) => names.length === 1)) this.propose(name);
  }

  async propose(name) {
    const query = new URLSearchParams({ facet: name, limit: FACET_VALUES_SHOWN, period: this.family.periods[0] });
    try {
      const { data } = await ask(`${path`/v1/families/${this.family.id}/facets`}?${query}`, { signal: this.signal });
      show(document.getElementById(`family:${this.family.id}:${name}:values`), data.values.map(({ value }) => el("option", { value })));
    } catch {
      // users can still type a value without proposals
    }
  }

  go(event) {
    event.preventDefault();
    const given = new FormData(event.target);
    const filled = this.names.filter((name) => given.get(name).trim()).sort();
    if (!this.family.facets.some((names) => [...names].sort().join() === filled.join())) {
      const kinds = this.family.facets.map((names) => (names.length ? `by ${names.join(" and ")}` : "for everybody"));
      show(this.fault, `This family has boards ${kinds.join(", ")}.`);
      return;
    }
    const facets = filled.map((name) => `${name}=${given.get(name).trim()}`).join(",");
    location.hash = toBoard([this.family.id, event.submitter.value, ...(facets ? [facets] : [])].join(":"));
  }
}
