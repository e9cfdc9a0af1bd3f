// The held posts of a board, for operators: each with a link to the owner's history, and with both verdicts.

import { act, refusal, send } from "./acts.js";
import { ask, path } from "./api.js";
import { valueCell } from "./cells.js";
import { el, named, separated, show } from "./dom.js";
import { moment } from "./format.js";
import { HELD_SHOWN } from "./limits.js";
import { toBoard, toOwner } from "./routes.js";

/** Return a folded section with the held posts of a board. It asks for them when it is opened. */
export function heldPosts(board, columns, changed) {
  const list = el("ul", { class: "acts" });
  const told = el("p", { class: "quiet", role: "status" });
  const load = async () => {
    try {
      const { data } = await ask(`${path`/v1/leaderboards/${board}/held`}?limit=${HELD_SHOWN}`);
      show(list, data.posts.map((post) => el("li", {}, heldPost(board, columns, post, judged))));
      show(told, data.posts.length === 0 ? "No post waits for a verdict." : data.next ? `The oldest ${HELD_SHOWN} are shown.` : "");
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

/** Return a held post with its verdicts. `judged` is called after one. */
export function heldPost(board, columns, post, judged) {
  const judge = (verdict, label, grave) =>
    act(`${verdict}:${post.owner}:${post.post_id}`, label, {
      grave,
      confirm: () =>
        verdict === "accept"
          ? "The post counts, as if it had come in time. Nothing is changed yet."
          : "The post never counts. That can’t be undone. Nothing is changed yet.",
      run: async (_, reason) => {
        const place = `${path`/v1/leaderboards/${board}/held/${post.post_id}`}?owner=${encodeURIComponent(post.owner)}`;
        await send("PUT", place, reason, { verdict });
        judged();
        return "Done.";
      },
    });
  const columnOf = (name) => columns.find((each) => each.name === name) ?? { type: "text" };
  const values = Object.entries({ ...post.stats, ...post.set }).map(([name, value]) => [
    `${name} `,
    el("b", {}, valueCell(columnOf(name), value)),
  ]);
  return [
    el(
      "p",
      {},
      el("a", { href: toOwner(post.owner), "data-key": `held:${post.post_id}` }, named(post.owner)),
      " on ",
      el("a", { href: toBoard(board) }, named(board)),
      ": ",
      ...separated(values),
      " ",
      el("span", { class: "quiet" }, moment(post.at)),
    ),
    el("p", { class: "quiet" }, post.reason),
    el("div", { class: "line" }, judge("accept", "Accept", false), judge("refuse", "Refuse", true)),
  ];
}
