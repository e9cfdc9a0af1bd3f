// The acts of operators: forms that do them and show the result, and lists of those that were done. The service checks the key.

import { Problem, ask, path } from "./api.js";
import { AS_TYPED, el, named, separated, show } from "./dom.js";
import { ago, percent, stored, whole } from "./format.js";
import { ACT_TIMEOUT_MS, REASON_CHARS_MAX } from "./limits.js";
import { toBoard, toOwner } from "./routes.js";
import { scrolled, table } from "./tables.js";

/** Return a folded section with actions. `id` must be unique on the page. */
export function moderation(id, title, acts, open = false) {
  return el(
    "details",
    { class: "panel moderation", open },
    el("summary", { "data-key": `moderation:${id}` }, title),
    el("p", { class: "quiet" }, "These acts need a key with the role ops, if the service has keys."),
    el("ul", { class: "acts" }, acts.map((each) => el("li", {}, each))),
  );
}

/**
 * Return the form of an action: its fields, a button and the outcome. `run(form, reason)` does the action and returns
 * the text to show. With `typed`, users must type this text first. With `confirm`, the first press only shows
 * `confirm(form)`, and asks for a reason, which the list of acts keeps.
 */
export function act(id, label, { fields = [], typed = "", confirm = null, explained = "", grave = false, run }) {
  const reason = el("input", {
    id: `reason:${id}`,
    name: "reason",
    maxlength: REASON_CHARS_MAX,
    autocomplete: "off",
    "data-key": `reason:${id}`,
  });
  const why = el("span", { class: "line", hidden: typed === "" }, el("label", { for: `reason:${id}` }, "Why"), reason);
  const outcome = el("output", { class: "outcome", "data-key": `outcome:${id}` });
  const button = el("button", { "data-key": `act:${id}`, class: grave ? "grave" : null, disabled: typed !== "" }, label);
  const confirmed = typed
    ? [
        el("label", { for: `typed:${id}` }, "Type ", el("b", {}, el("bdi", {}, typed)), " to confirm"),
        el("input", { id: `typed:${id}`, ...AS_TYPED }),
      ]
    : [];
  if (typed) confirmed[1].addEventListener("input", (event) => (button.disabled = event.target.value !== typed));
  const form = el(
    "form",
    { class: "line" },
    fields,
    confirmed,
    confirm || typed ? why : null,
    button,
    explained ? el("span", { class: "quiet" }, explained) : null,
    outcome,
  );
  let told = false; // whether the text of `confirm` is shown, so that the next press runs
  const setTold = (value, text) => {
    told = value;
    button.textContent = value ? `Confirm: ${label.toLowerCase()}` : label;
    if (!typed) why.hidden = !value;
    outcome.className = "outcome";
    show(outcome, text);
  };
  form.addEventListener("input", (event) => told && event.target !== reason && setTold(false, ""));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (confirm && !told) {
      setTold(true, confirm(new FormData(form)));
      reason.focus();
      return;
    }
    const given = new FormData(form);
    setTold(false, "");
    button.disabled = true;
    show(outcome, "Working …");
    try {
      show(outcome, await run(given, given.get("reason")?.trim() ?? ""));
      outcome.className = "outcome";
    } catch (error) {
      outcome.className = "outcome fault";
      show(outcome, error instanceof Problem ? refusal(error) : error.message);
    }
    button.disabled = typed !== "" && confirmed[1].value !== typed;
  });
  return form;
}

/** Send the request of an act, with its reason as a member of `body` or, without a body, as a parameter. */
export function send(method, target, reason, body) {
  const query = reason && body === undefined ? `${target.includes("?") ? "&" : "?"}${new URLSearchParams({ reason })}` : "";
  return ask(target + query, { method, body: body && reason ? { ...body, reason } : body, timeoutMs: ACT_TIMEOUT_MS });
}

/** Return what to tell a user about an error of an action. */
export function refusal(problem) {
  const isRefused = problem.status === 401 || problem.status === 403;
  return isRefused ? "This needs a key with the role ops: use the button “Key” above." : problem.message;
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
      run: async (_, reason) => {
        await send("POST", path`/v1/leaderboards/${board}/reset`, reason);
        changed();
        return "The board is empty.";
      },
    }),
    act("delete", "Delete the board", {
      typed: board,
      grave: true,
      explained: "Removes the board with all its entries.",
      run: async (_, reason) => {
        await send("DELETE", path`/v1/leaderboards/${board}`, reason);
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

/** Return the actions that hide an owner everywhere or not, as far as they apply. `state`: "hidden", "shadow" or "shown".
 * `of` makes the ids of the forms differ from those of other owners on the page. */
export function hidingActions(owner, state, changed, of = "") {
  const hidden = path`/v1/owners/${owner}/hidden`;
  const hide = (id, label, shadow, what, done) =>
    act(id, label, {
      grave: true,
      explained: what,
      confirm: () => `On every board. Until somebody shows the owner again. ${what} Nothing is changed yet.`,
      run: async (_, reason) => {
        await send("PUT", hidden, reason, { shadow });
        changed();
        return done;
      },
    });
  return [
    state !== "hidden" &&
      hide(
        "hide",
        "Hide the owner everywhere",
        false,
        "Rankings, totals and streams leave the owner out. Posts still merge.",
        "The owner is hidden.",
      ),
    state === "shown" &&
      hide(
        "shadow",
        "Shadow the owner",
        true,
        "Everybody else sees rankings without the owner, who does not notice.",
        "The owner is shadowed.",
      ),
    state !== "shown" &&
      act(`show${of && ":"}${of}`, "Show the owner again", {
        confirm: () => "The owner is back in every ranking, with all posts of the meantime. Nothing is changed yet.",
        run: async (_, reason) => {
          await send("DELETE", hidden, reason);
          changed();
          return "The owner is shown.";
        },
      }),
  ].filter(Boolean);
}

/** Return the action that removes an owner from every board. */
export function erasingAction(owner, changed) {
  return act("erase", "Erase the owner everywhere", {
    typed: owner,
    grave: true,
    explained: "Removes every entry, the profile and the name in the journal. That can’t be undone.",
    run: async (_, reason) => {
      await send("DELETE", path`/v1/owners/${owner}`, reason);
      changed();
      return "The owner is erased.";
    },
  });
}

/** Return the action that removes an owner's entry from one board. */
export function erasure(board, owner, changed) {
  return act("erase-entry", "Erase the entry on this board", {
    typed: owner,
    grave: true,
    explained: "That can’t be undone.",
    run: async (_, reason) => {
      await send("DELETE", path`/v1/leaderboards/${board}/entries/${owner}`, reason);
      changed();
      return "The entry is erased.";
    },
  });
}

/** Return the action that takes back a post of an owner on these boards, or on all boards of their families. */
export function voiding(owner, post, boards, effect, changed) {
  return act(`void:${post}`, "Take back", {
    grave: true,
    confirm: () =>
      `Takes ${effect} back on ${boards.length === 1 ? boards[0] : `${whole(boards.length)} boards`}. ` +
      "The entry becomes what the other posts make. That can’t be undone. Nothing is changed yet.",
    run: async (_, reason) => {
      const placeOf = (board) =>
        board.includes(":") ? path`/v1/families/${board.split(":")[0]}` : path`/v1/leaderboards/${board}`;
      const places = new Set(boards.map(placeOf));
      const results = [];
      for (const place of places) {
        const target = `${place}${path`/posts/${post}`}?${new URLSearchParams({ owner })}`;
        results.push(...(await send("DELETE", target, reason)).data.boards);
      }
      changed();
      const kept = results.filter(({ error }) => error);
      const done = `Taken back on ${whole(results.length - kept.length)} of ${whole(results.length)} boards.`;
      return kept.length ? `${done} ${kept[0].board}: ${kept[0].error.detail}.` : done;
    },
  });
}

/** Return the `form` that corrects a value of an owner on a board, and `tell`, which gives it the latest stats. */
export function correction(board, owner, columns, changed) {
  let stats = {};
  const numbers = columns.filter(({ type }) => type !== "text");
  const choose = el(
    "select",
    { id: "correct-column", name: "column", "data-key": "correct-column" },
    numbers.map(({ name }) => el("option", { value: name }, name)),
  );
  const value = el("input", {
    id: "correct-value",
    name: "value",
    inputmode: "decimal",
    required: true,
    autocomplete: "off",
    "data-key": "correct-value",
  });
  const now = el("span", { class: "quiet" });
  const write = () => {
    const column = numbers.find(({ name }) => name === choose.value);
    now.textContent = column ? `now ${stored(stats[column.name], column.scale)}` : "";
  };
  choose.addEventListener("change", write);
  const form = act("correct", "Set the value", {
    fields: [el("label", { for: "correct-column" }, "Correct"), choose, now, el("label", { for: "correct-value" }, "to"), value],
    confirm: (given) => {
      const [column, text] = [given.get("column"), given.get("value").trim()];
      return `${column}: ${stats[column] ?? "empty"} → ${text}. Nothing is changed yet.`;
    },
    run: async (given, reason) => {
      const [column, text] = [given.get("column"), given.get("value").trim()];
      const before = stats[column];
      const { data } = await send("POST", path`/v1/leaderboards/${board}/posts`, reason, { owner, set: { [column]: text } });
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

/** Return the act by which an owner is hidden now, or null. `acts`: those about the owner, the newest first. */
export function hiddenBy(acts) {
  const last = acts.find(({ act }) => ["owner.hidden", "owner.shadowed", "owner.shown"].includes(act));
  return last && last.act !== "owner.shown" ? last : null;
}

/** Return a table of acts: when, what, whom it concerns, by which key, and why. */
export function actTable(acts, { ofOwner = false } = {}) {
  const rows = acts.map(({ at, act, key, owner, board, reason, detail }) => {
    const whom = [
      !ofOwner && owner && el("a", { href: toOwner(owner), "data-key": `act:${at}:owner` }, named(owner)),
      board && el("a", { href: toBoard(board), "data-key": `act:${at}:board` }, named(board)),
      detail?.post_id && named(detail.post_id),
    ];
    return [
      ago(at),
      el("b", {}, act.replace(/[._]/g, " ")),
      separated(whom.filter(Boolean)),
      key ?? "no key",
      reason ? named(reason) : "–",
    ];
  });
  const columns = [{ label: "When" }, { label: "Act" }, { label: "What it concerns" }, { label: "Key", wide: true }, { label: "Why" }];
  return scrolled("Acts of operators", table("Acts of operators, the newest first", columns, rows));
}
