// The view for those who look after players: posts that wait for a verdict, gains that stand out, who is hidden, and what
// operators have done.

import { actTable, hidingActions, refusal } from "./acts.js";
import { Away, Problem, ask, path, poll } from "./api.js";
import { el, named, panel, show } from "./dom.js";
import { age, ago, stored, three, whole } from "./format.js";
import { readGains } from "./gains.js";
import { heldPost } from "./held.js";
import { ACTS_SHOWN, GAINS_POLL_MS, HELD_BOARDS_MAX, HELD_SHOWN, HIDDEN_SHOWN, LEADERS_POLL_MS } from "./limits.js";
import { toBoard, toOwner } from "./routes.js";
import { empty, fault, loading, numeric, scrolled, table } from "./tables.js";

const GAINS = [
  { label: "Owner" },
  { label: "Board" },
  numeric("Gain"),
  numeric("Others’ median", { wide: true }),
  { label: "Alone it would be" },
];
const HIDDEN = [
  { label: "Owner" },
  { label: "Since" },
  { label: "How", wide: true },
  { label: "Key", wide: true },
  { label: "Why" },
  { label: "Act" },
];

/** Shows what needs an eye or a verdict. */
export class ModerationView {
  constructor(root, route, signal) {
    this.signal = signal;
    this.title = el("h1", { tabindex: "-1" }, "Moderation");
    this.held = panel("held", "Posts that wait for a verdict");
    this.gains = panel("gains", "Gains that stand out");
    this.hidden = panel("hidden", "Hidden owners");
    this.acts = panel("acts", "Last acts");
    const panels = [this.held, this.gains, this.hidden, this.acts];
    for (const { body } of panels) show(body, loading());
    show(root, el("header", { class: "head" }, this.title), panels.map(({ section }) => section));
    poll(() => this.into(this.held, () => this.loadHeld()), LEADERS_POLL_MS, signal);
    poll(() => this.into(this.gains, () => this.loadGains()), GAINS_POLL_MS, signal);
    poll(() => this.into(this.hidden, () => this.loadHidden()), LEADERS_POLL_MS, signal);
    poll(() => this.into(this.acts, () => this.loadActs()), LEADERS_POLL_MS, signal);
  }

  get name() {
    return "Moderation";
  }

  /** Fill a panel with what `load` returns, unless that is the same as before, or a user types there and has not `acted`.
   * Keep it while the service is away. */
  async into(part, load, acted = false) {
    try {
      const [state, ...content] = await load();
      const now = JSON.stringify(state);
      const typing = !acted && document.activeElement.matches("input") && part.body.contains(document.activeElement);
      if (this.signal.aborted || typing || (part.state === now && !part.body.querySelector(".fault"))) return;
      part.state = now;
      show(part.body, ...content);
    } catch (error) {
      if (this.signal.aborted || (error instanceof Away && part.state)) return;
      part.state = undefined;
      show(part.body, error instanceof Problem && error.status === 403 ? empty(refusal(error)) : fault(error));
      this.onFault?.(error);
    }
  }

  /** Read the held posts of those boards that changed last: the service lists them by board only. */
  async loadHeld() {
    const { signal } = this;
    const { data } = await ask(`/v1/leaderboards?order=activity&limit=${HELD_BOARDS_MAX}`, { signal }).catch((error) => {
      if (error.code !== "too_many_boards") throw error;
      return ask(`/v1/leaderboards?families=false&limit=${HELD_BOARDS_MAX}`, { signal });
    });
    const answers = await Promise.all(
      data.leaderboards.map(({ id }) => ask(`${path`/v1/leaderboards/${id}/held`}?limit=${HELD_SHOWN}`, { signal })),
    );
    const posts = answers.flatMap(({ data: { board, posts } }, index) =>
      posts.map((post) => ({ board, post, columns: data.leaderboards[index].columns })),
    );
    const again = () => this.into(this.held, () => this.loadHeld(), true);
    const note = data.next ? empty(`Those of the ${HELD_BOARDS_MAX} boards that changed last.`) : null;
    const rows = posts.map(({ board, post, columns }) => el("li", {}, heldPost(board, columns, post, again)));
    return [posts, rows.length ? el("ul", { class: "acts" }, rows) : empty("No post waits for a verdict."), note];
  }

  async loadGains() {
    const found = await readGains(Date.now(), this.signal);
    if (found === null) return [found, empty("The journal of a store with several partitions can’t be searched by time.")];
    const rows = found.gains.map(({ owner, board, column, scale, value, rank, total, median }) => [
      el("a", { href: toOwner(owner), "data-key": `gain:${board}:${column}:${owner}` }, named(owner)),
      el("a", { href: toBoard(board, { column, owner }), "data-key": `gained:${board}:${column}:${owner}` }, named(board)),
      `${column} ${stored(value, scale)}`,
      stored(median, scale),
      [`rank ${whole(rank)} of ${whole(total)}`, median > 0 && value > median ? `, ${three(value / median)} × the median` : ""],
    ]);
    const told = empty(
      `${found.complete ? "All" : "The first"} ${whole(found.posts)} posts of the last ${age(found.windowMs / 1000)}. `,
      "A gain is what an owner posted, added up where a column adds up. ",
      "The rank is that of the gain among all values of the column.",
    );
    return [found, rows.length ? scrolled("Gains", table("The greatest gains", GAINS, rows)) : empty("Nobody has gained anything."), told];
  }

  async loadHidden() {
    const { data } = await ask(`/v1/owners?hidden=true&limit=${HIDDEN_SHOWN}`, { signal: this.signal });
    const again = () => this.into(this.hidden, () => this.loadHidden(), true);
    const rows = data.owners.map(({ owner, since, key, reason, shadow }) => {
      const acts = hidingActions(owner, "hidden", again, owner);
      return [
        el("a", { href: toOwner(owner), "data-key": `hidden:${owner}` }, named(owner)),
        ago(since),
        shadow ? "as a shadow" : "openly",
        key ?? "no key",
        reason ? named(reason) : "–",
        acts,
      ];
    });
    const more = data.next ? empty(`The first ${HIDDEN_SHOWN} by name.`) : null;
    return [data, rows.length ? scrolled("Hidden owners", table("Hidden owners", HIDDEN, rows)) : empty("Nobody is hidden."), more];
  }

  async loadActs() {
    const { data } = await ask(`/v1/acts?limit=${ACTS_SHOWN}`, { signal: this.signal });
    return [data, data.acts.length ? actTable(data.acts) : empty("No operator has done anything yet.")];
  }
}
