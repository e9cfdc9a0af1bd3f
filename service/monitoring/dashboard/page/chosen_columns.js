// Which columns of a ranking a user wants to see, kept in the browser for each board, or for all boards of a family.

import { CHOSEN_BOARDS_MAX } from "./limits.js";

const STORED_AS = "rankcurve-columns";

function read() {
  try {
    return JSON.parse(localStorage.getItem(STORED_AS)) ?? {};
  } catch {
    return {}; // the browser has no storage, or something else wrote there
  }
}

/** Return by name which optional columns a user has switched on or off. */
export function chosenColumns(board) {
  return read()[board.split(":")[0]] ?? {};
}

/** Remember that a user has switched a column on or off. The boards that were chosen longest ago are forgotten. */
export function chooseColumn(board, name, shown) {
  const { [board.split(":")[0]]: before = {}, ...others } = read();
  const kept = Object.entries(others).slice(-CHOSEN_BOARDS_MAX);
  try {
    localStorage.setItem(STORED_AS, JSON.stringify({ ...Object.fromEntries(kept), [board.split(":")[0]]: { ...before, [name]: shown } }));
  } catch {
    // without storage, the choice lasts until the next drawing
  }
}
