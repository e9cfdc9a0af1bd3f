// What owners are called: the `name` of their profiles, asked for in one request for all that are new.

import { ask, path } from "./api.js";
import { NAMES_MAX, NAME_CHARS_MAX } from "./limits.js";

const known = new Map(); // owner -> name, "" where the profile has none

/** The name that a profile gives, or "". */
export function nameOf(profile) {
  const name = profile?.name;
  return typeof name === "string" ? name.trim().slice(0, NAME_CHARS_MAX) : "";
}

/** The name of an owner as far as it is known, or "". */
export function knownName(owner) {
  return known.get(owner) ?? "";
}

/** Take over the names of entries that came with their profiles. */
export function learn(entries) {
  if (known.size > NAMES_MAX) known.clear();
  for (const entry of entries) if (entry.profile !== undefined) known.set(entry.owner, nameOf(entry.profile));
}

/** Ask for the names of owners that are new; answers whether any came. Names are no reason to fail. */
export async function learnOwners(board, owners, signal) {
  const unknown = owners.filter((owner) => !known.has(owner));
  if (unknown.length === 0) return false;
  try {
    const target = `${path`/v1/leaderboards/${board}/entries/lookup`}?profiles=true`;
    const { data } = await ask(target, { method: "POST", body: { owners: unknown }, signal });
    learn(data.entries);
    return data.entries.some((entry) => knownName(entry.owner));
  } catch {
    return false;
  }
}
