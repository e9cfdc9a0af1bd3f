// The held posts of a board, for operators: each with a link to the owner's history, and with both verdicts.

import { ask, path } from "./api.js";
import { el, named, show } from "./dom.js";
import { moment } from "./format.js";
import { ACT_TIMEOUT_MS } from "./limits.js";
import { act, refusal } from "./moderation.js";
import { toBoard } from "./routes.js";

const SHOWN = 50; // the oldest ones; the list is read again after each verdict

/** Return a folded section with the held posts of a board. It asks for them when it is opened. */
export function heldPosts(board, column, changed) {
  const list = el("ul", { class: "acts" });
  const told = el("p", { class: "quiet", role: "status" });
  const load = async () => {
    try {
      const { data } = await ask(`${path`/v1/leaderboards/${board}/held`}?limit=${SHOWN}`);
      show(list, data.posts.map((post) => el("li", {}, heldPost(board, column, post, judged))));
      show(told, data.posts.length === 0 ? "No post waits for a verdict." : data.next ? `The oldest ${SHOWN} are shown.` : "");
    } catch (error) {
      show(list);
      show(told, refusal(error));
    }
  };
  const judged = () => {
    changed();
    load();
  };
  const section = el("details", { class: "panel moderation" }, el("summary", { "data-key": "held" }, "Held posts"), told, list);
  section.addEventListener("toggle", () => section.open && load());
  return section;
}

function heldPost(board, column, post, judged) {
  const judge = (verdict, label, grave) =>
    act(`${verdict}:${post.owner}:${post.post_id}`, label, {
      grave,
      confirm: () => "Sure? Nothing is changed yet.",
      run: async () => {
        const place = `${path`/v1/leaderboards/${board}/held/${post.post_id}`}?owner=${encodeURIComponent(post.owner)}`;
        await ask(place, { method: "PUT", body: { verdict }, timeoutMs: ACT_TIMEOUT_MS });
        judged();
        return "Done.";
      },
    });
  const values = Object.entries({ ...post.stats, ...post.set }).map(([name, value]) => `${name} ${value}`);
  return [
    el("p", {}, el("a", { href: toBoard(board, { column, owner: post.owner }) }, named(post.owner)), `: ${values.join(", ")} `, el("span", { class: "quiet" }, moment(post.at))),
    el("p", { class: "quiet" }, post.reason),
    el("div", { class: "line" }, judge("accept", "Accept", false), judge("refuse", "Refuse", true)),
  ];
}
