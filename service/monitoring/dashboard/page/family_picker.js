// A family in one row: unfolded, it leads to the board of a period and of facet values.

import { ask, path } from "./api.js";
import { el, show } from "./dom.js";
import { whole } from "./format.js";
import { FACET_VALUES_SHOWN } from "./limits.js";
import { toBoard } from "./routes.js";

const PERIODS = {
  all: [["all", "All time"]],
  year: [["this-year", "This year"], ["last-year", "Last year"]],
  month: [["this-month", "This month"], ["last-month", "Last month"]],
  week: [["this-week", "This week"], ["last-week", "Last week"]],
  day: [["today", "Today"], ["yesterday", "Yesterday"]],
};

/** The row of a family; `row` is its element. */
export class FamilyPicker {
  constructor(family, signal) {
    this.family = family;
    this.signal = signal;
    const key = `family:${family.id}`;
    this.count = el("span", { class: "quiet" });
    this.period = el("select", { id: `${key}:period` }, family.periods.flatMap((kind) => PERIODS[kind] ?? []).map(([value, text]) => el("option", { value }, text)));
    this.split = el("select", { id: `${key}:facets`, onchange: () => this.drawValues() }, family.facets.map((names, index) => el("option", { value: index }, names.length ? `by ${names.join(" and ")}` : "everybody")));
    this.values = el("span", { class: "line" });
    const form = el(
      "form",
      { class: "line", onsubmit: (event) => this.go(event) },
      el("label", { for: this.period.id }, "Period"),
      this.period,
      el("label", { for: this.split.id }, "Owners"),
      this.split,
      this.values,
      el("button", { class: "primary" }, "Show"),
    );
    this.row = el("details", { class: "family" }, el("summary", { "data-key": key }, el("b", {}, el("bdi", {}, family.id)), " ", this.count), form);
    this.row.addEventListener("toggle", () => this.row.open && this.drawValues());
    this.tell(family);
  }

  tell({ boards, periods }) {
    this.count.textContent = `${whole(boards)} ${boards === 1 ? "board" : "boards"}, by ${periods.join(", ")}`;
  }

  names() {
    return this.family.facets[Number(this.split.value)] ?? [];
  }

  /** One field for each facet, with the values that have boards. */
  drawValues() {
    const names = this.names();
    this.split.disabled = this.family.facets.length < 2;
    if (this.drawn === names) return;
    this.drawn = names;
    show(
      this.values,
      names.flatMap((name) => {
        const id = `family:${this.family.id}:${name}`;
        const list = el("datalist", { id: `${id}:values` });
        this.fill(name, names, list);
        return [el("label", { for: id }, name), el("input", { id, name, list: list.id, required: true, autocomplete: "off", autocapitalize: "off", spellcheck: "false" }), list];
      }),
    );
  }

  async fill(name, names, list) {
    if (names.length !== 1) return; // the values of a second facet depend on the first
    const query = new URLSearchParams({ facet: name, limit: FACET_VALUES_SHOWN, period: this.family.periods[0] });
    try {
      const { data } = await ask(`${path`/v1/families/${this.family.id}/facets`}?${query}`, { signal: this.signal });
      show(list, data.values.map(({ value }) => el("option", { value })));
    } catch {
      // without proposals, a value can still be typed
    }
  }

  go(event) {
    event.preventDefault();
    const given = new FormData(event.target);
    const facets = this.names().map((name) => `${name}=${given.get(name).trim()}`);
    const parts = [this.family.id, this.period.value, ...(facets.length ? [facets.join(",")] : [])];
    location.hash = toBoard(parts.join(":"));
  }
}
