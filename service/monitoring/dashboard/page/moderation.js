// The actions of operators. Each action is a form that also shows its result. The service checks the key.

import { Problem, ask, path } from "./api.js";
import { el, show } from "./dom.js";
import { percent, stored, whole } from "./format.js";
import { ACT_TIMEOUT_MS } from "./limits.js";

/** Return a folded section with actions. `id` must be unique on the page. */
export function moderation(id, title, acts) {
  return el(
    "details",
    { class: "panel moderation" },
    el("summary", { "data-key": `moderation:${id}` }, title),
    el("p", { class: "quiet" }, "These acts need a key with the role ops, if the service has keys."),
    el("ul", { class: "acts" }, acts.map((each) => el("li", {}, each))),
  );
}

/**
 * Return the form of an action: its fields, a button and the outcome. `run(form)` does the action and returns the text
 * to show. With `typed`, users must type this text first. With `confirm`, the first press only shows `confirm(form)`.
 */
export function act(id, label, { fields = [], typed = "", confirm = null, explained = "", grave = false, run }) {
  const outcome = el("output", { class: "outcome", "data-key": `outcome:${id}` });
  const button = el("button", { "data-key": `act:${id}`, class: grave ? "grave" : null, disabled: typed !== "" }, label);
  const confirmed = typed
    ? [el("label", { for: `typed:${id}` }, "Type ", el("b", {}, el("bdi", {}, typed)), " to confirm"), el("input", { id: `typed:${id}`, autocomplete: "off", autocapitalize: "off", spellcheck: "false" })]
    : [];
  if (typed) confirmed[1].addEventListener("input", (event) => (button.disabled = event.target.value !== typed));
  const form = el("form", { class: "line" }, fields, confirmed, button, explained ? el("span", { class: "quiet" }, explained) : null, outcome);
  let told = false; // whether the text of `confirm` is shown, so that the next press runs
  const setTold = (value, text) => {
    told = value;
    button.textContent = value ? "Confirm" : label;
    outcome.className = "outcome";
    show(outcome, text);
  };
  form.addEventListener("input", () => told && setTold(false, ""));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (confirm && !told) {
      setTold(true, confirm(new FormData(form)));
      return;
    }
    setTold(false, "");
    button.disabled = true;
    show(outcome, "Working …");
    try {
      show(outcome, await run(new FormData(form)));
      outcome.className = "outcome";
    } catch (error) {
      outcome.className = "outcome fault";
      show(outcome, error instanceof Problem ? refusal(error) : error.message);
    }
    button.disabled = typed !== "" && confirmed[1].value !== typed;
  });
  return form;
}

/** Return what to tell a user about an error of an action. */
export function refusal(problem) {
  return problem.status === 401 || problem.status === 403 ? "This needs a key with the role ops: use the button “Key” above." : problem.message;
}

/** Return the actions on a board. `changed` is called after the board has changed, `deleted` after it was deleted. */
export function boardActions(board, column, { changed, deleted }) {
  const ranking = path`/v1/leaderboards/${board}/rankings/${column}`;
  return [
    act("refresh", `Refresh the curve of ${column}`, {
      explained: "Fits the curve anew.",
      run: async () => {
        const { data } = await ask(`${ranking}/refresh`, { method: "POST", timeoutMs: ACT_TIMEOUT_MS });
        changed();
        return `Fitted from ${whole(data.total)} entries in ${data.seconds.toFixed(2)} s.`;
      },
    }),
    act("audit", `Audit the curve of ${column}`, {
      explained: "Counts random owners and compares the counts with the curve.",
      run: async () => audited((await ask(`${ranking}/audit`, { method: "POST", timeoutMs: ACT_TIMEOUT_MS })).data),
    }),
    act("reset", "Empty the board", {
      typed: board,
      grave: true,
      explained: "Removes every entry and keeps the columns. Posts from before this moment are refused later.",
      run: async () => {
        await ask(path`/v1/leaderboards/${board}/reset`, { method: "POST", timeoutMs: ACT_TIMEOUT_MS });
        changed();
        return "The board is empty.";
      },
    }),
    act("delete", "Delete the board", {
      typed: board,
      grave: true,
      explained: "Removes the board with all its entries.",
      run: async () => {
        await ask(path`/v1/leaderboards/${board}`, { method: "DELETE", timeoutMs: ACT_TIMEOUT_MS });
        deleted();
        return "The board is deleted.";
      },
    }),
  ];
}

function audited({ outcome, owners, brackets_broken: broken, worst_error: worst, certificates_broken: beyond }) {
  if (outcome === "empty") return "Nobody is ranked, so there is nothing to compare.";
  if (outcome === "changed") return "The board changed too much since the curve was fitted. Refresh, then audit again.";
  const found = `${whole(owners)} owners compared: ${whole(broken)} outside their bracket, ${whole(beyond)} further off than certified.`;
  return `${found} The worst was off by ${percent(worst ?? 0)}.`;
}

/** Return the actions on an owner that affect every board. */
export function ownerActions(owner, changed) {
  const hidden = path`/v1/owners/${owner}/hidden`;
  return [
    act("hide", "Hide the owner everywhere", {
      explained: "Rankings, totals and streams leave the owner out. Posts still merge.",
      run: async () => {
        await ask(hidden, { method: "PUT", timeoutMs: ACT_TIMEOUT_MS });
        changed();
        return "The owner is hidden.";
      },
    }),
    act("show", "Show the owner again", {
      run: async () => {
        await ask(hidden, { method: "DELETE", timeoutMs: ACT_TIMEOUT_MS });
        changed();
        return "The owner is shown.";
      },
    }),
    act("erase", "Erase the owner everywhere", {
      typed: owner,
      grave: true,
      explained: "Removes every entry, the profile and the name in the journal.",
      run: async () => {
        await ask(path`/v1/owners/${owner}`, { method: "DELETE", timeoutMs: ACT_TIMEOUT_MS });
        changed();
        return "The owner is erased.";
      },
    }),
  ];
}

/** Return the action that removes an owner's entry from one board. */
export function erasure(board, owner, changed) {
  return act("erase-entry", "Erase the entry on this board", {
    typed: owner,
    grave: true,
    run: async () => {
      await ask(path`/v1/leaderboards/${board}/entries/${owner}`, { method: "DELETE", timeoutMs: ACT_TIMEOUT_MS });
      changed();
      return "The entry is erased.";
    },
  });
}

/** Return the action that takes back a post of an owner on a board, or on all boards of its family. */
export function voiding(board, owner, changed) {
  const id = el("input", { id: "void-id", name: "post", required: true, autocomplete: "off", spellcheck: "false", "data-key": "void-id" });
  return act("void", "Take it back", {
    fields: [el("label", { for: "void-id" }, "Post with the id"), id],
    explained: "The entry becomes what it would be without the post.",
    confirm: (given) => `Take back “${given.get("post")}”? That can't be undone. Nothing is changed yet.`,
    run: async (given) => {
      const remove = (place) => ask(`${place}?owner=${encodeURIComponent(owner)}`, { method: "DELETE", timeoutMs: ACT_TIMEOUT_MS });
      const post = given.get("post");
      const { data } = await remove(path`/v1/leaderboards/${board}/posts/${post}`).catch((error) => {
        if (error.code !== "family_board") throw error;
        return remove(path`/v1/families/${board.split(":")[0]}/posts/${post}`);
      });
      changed();
      const kept = data.boards.filter(({ error }) => error);
      const done = `Taken back on ${whole(data.boards.length - kept.length)} of ${whole(data.boards.length)} boards.`;
      return kept.length ? `${done} ${kept[0].board}: ${kept[0].error.detail}.` : done;
    },
  });
}

/** Return the `form` that corrects a value of an owner on a board, and `tell`, which gives it the latest stats. */
export function correction(board, owner, columns, changed) {
  let stats = {};
  const numbers = columns.filter(({ type }) => type !== "text");
  const choose = el("select", { id: "correct-column", name: "column", "data-key": "correct-column" }, numbers.map(({ name }) => el("option", { value: name }, name)));
  const value = el("input", { id: "correct-value", name: "value", inputmode: "decimal", required: true, autocomplete: "off", "data-key": "correct-value" });
  const now = el("span", { class: "quiet" });
  const write = () => {
    const column = numbers.find(({ name }) => name === choose.value);
    now.textContent = column ? `now ${stored(stats[column.name], column.scale)}` : "";
  };
  choose.addEventListener("change", write);
  const form = act("correct", "Set the value", {
    fields: [el("label", { for: "correct-column" }, "Correct"), choose, now, el("label", { for: "correct-value" }, "to"), value],
    confirm: (given) => `${given.get("column")}: ${stats[given.get("column")] ?? "empty"} → ${given.get("value").trim()}. Nothing is changed yet.`,
    run: async (given) => {
      const [column, text] = [given.get("column"), given.get("value").trim()];
      const before = stats[column];
      const body = { owner, set: { [column]: text } };
      const { data } = await ask(path`/v1/leaderboards/${board}/posts`, { method: "POST", body });
      const [result] = data.results;
      if (result.status === "rejected") throw new Problem(422, result.error ?? {});
      changed();
      return `${column} was ${before ?? "empty"} and is ${result.stats[column]} now.`;
    },
  });
  const tell = (latest) => {
    const moved = latest[choose.value] !== stats[choose.value];
    stats = latest;
    write();
    if (moved) form.dispatchEvent(new Event("input")); // the value has changed, so users must confirm again
  };
  return { form, tell };
}
