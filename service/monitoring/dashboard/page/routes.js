// Routes: the hash of the address names everything that is shown, so that links and the Back button work.

/** Parse a hash into a route: its view, parameters and, depending on the view, the board, the league or the owner. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const parameters = Object.fromEntries(new URLSearchParams(query));
  if (parts.length === 0 || (parts[0] === "boards" && parts.length === 1)) return { view: "boards", parameters };
  if (parts[0] === "boards" && parts.length === 2) return { view: "board", board: parts[1], parameters };
  if (parts[0] === "owners" && parts.length === 2) return { view: "owner", owner: parts[1], parameters };
  if (parts[0] === "leagues" && parts.length === 2) return { view: "league", league: parts[1], parameters };
  if (parts[0] === "families" && parts.length === 2) return { view: "family", family: parts[1], parameters };
  if (["moderation", "node"].includes(parts[0]) && parts.length === 1) return { view: parts[0], parameters };
  return { view: "nowhere", parameters };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // the text has a percent sign that escapes nothing
  }
}

function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given).toString();
  return query ? `${path}?${query}` : path;
}

/** Return the hash for the list of boards. */
export function toBoards(parameters = {}) {
  return withQuery("#/boards", parameters);
}

/** Return the hash for a league. `parameters` may have `owner` or `cohort`. */
export function toLeague(league, parameters = {}) {
  return withQuery(`#/leagues/${encodeURIComponent(league)}`, parameters);
}

/** Return the hash for a family. `parameters` may have `period`. */
export function toFamily(family, parameters = {}) {
  return withQuery(`#/families/${encodeURIComponent(family)}`, parameters);
}

/** Return the hash for an owner on all boards. */
export function toOwner(owner) {
  return `#/owners/${encodeURIComponent(owner)}`;
}

/** Return the hash for a board. `parameters` may have `column`, `owner`, `from` (a rank) and `value`. */
export function toBoard(id, parameters = {}) {
  return withQuery(`#/boards/${encodeURIComponent(id)}`, parameters);
}
