// Where the reader is: everything that is shown stands in the address, so that it can be linked and Back works.

/** The route of a hash: its view, the board's id if there is one, and parameters. */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split(/\?(.*)/s);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const parameters = Object.fromEntries(new URLSearchParams(query));
  if (parts.length === 0 || (parts[0] === "boards" && parts.length === 1)) return { view: "boards", parameters };
  if (parts[0] === "boards" && parts.length === 2) return { view: "board", board: parts[1], parameters };
  if (parts[0] === "owners" && parts.length === 2) return { view: "owner", owner: parts[1], parameters };
  if (parts[0] === "node" && parts.length === 1) return { view: "node", parameters };
  return { view: "nowhere", parameters };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a percent sign that escapes nothing
  }
}

function withQuery(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given).toString();
  return query ? `${path}?${query}` : path;
}

/** The address of the list of boards. */
export function toBoards(parameters = {}) {
  return withQuery("#/boards", parameters);
}

/** The address of an owner on all boards. */
export function toOwner(owner) {
  return `#/owners/${encodeURIComponent(owner)}`;
}

/** The address of a board: `column`, `owner`, `from` (a rank), `value`. */
export function toBoard(id, parameters = {}) {
  return withQuery(`#/boards/${encodeURIComponent(id)}`, parameters);
}
