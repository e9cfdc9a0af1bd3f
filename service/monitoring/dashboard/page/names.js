// The names of owners, from the `name` of their profiles. One request asks for all names that are not known yet.

import { ask, path } from "./api.js";
import { NAMES_MAX, NAME_CHARS_MAX } from "./limits.js";

const known = new Map(); // owner -> name, or "" if the profile has no name

/** Return the name in a profile, or "". */
export function nameOf(profile) {
  const name = profile?.name;
  return typeof name === "string" ? name.trim().slice(0, NAME_CHARS_MAX) : "";
}

/** Return the name of an owner, or "" if it is not known. */
export function knownName(owner) {
  return known.get(owner) ?? "";
}

/** Return up to `most` known owners, {owner, name}, whose id or a word of whose name begins with a text. */
export function namesLike(text, most) {
  const lower = text.toLowerCase();
  const found = [];
  for (const [owner, name] of known) {
    const lowerName = name.toLowerCase();
    const begins =
      owner.toLowerCase().startsWith(lower) || lowerName.startsWith(lower) || lowerName.includes(` ${lower}`);
    if (begins && found.push({ owner, name }) === most) break;
  }
  return found;
}

/** Remember the names of entries that have a profile. */
export function learn(entries) {
  if (known.size > NAMES_MAX) known.clear();
  for (const entry of entries) if (entry.profile !== undefined) known.set(entry.owner, nameOf(entry.profile));
}

/** Return the name of an owner from its profile, or "". */
export async function learnName(owner, signal) {
  const { data } = await ask(path`/v1/owners/${owner}/profile`, { signal }).catch((error) => {
    if (error.status === 404) return { data: {} };
    throw error;
  });
  learn([{ owner, profile: data.profile ?? null }]);
  return knownName(owner);
}

/** Ask for names that are not known yet. Return whether the service sent any name; false if the request fails. */
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
