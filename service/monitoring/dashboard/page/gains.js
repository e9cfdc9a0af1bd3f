// Finds whose posts stand out lately. It reads these posts from the journal, adds up what each owner gained in
// each column, and asks which rank such a gain alone would have among all values of the column.

import { ask, call, parsed, path } from "./api.js";
import { GAIN_COLUMNS_MAX, GAIN_PAGES_MAX, GAIN_WINDOWS_MS, GAINS_OF_COLUMN, GAINS_SHOWN, JOURNAL_PAGE } from "./limits.js";

/**
 * Return {gains, posts, complete, windowMs}: of the longest window whose posts can all be read. A gain is {owner, board,
 * column, value, rank, total, median}: the median of what others gained. Return null if the store has several
 * partitions, whose journal has no numbers to search by.
 */
export async function readGains(now, signal) {
  let [posts, complete, windowMs] = [[], false, 0];
  for (windowMs of GAIN_WINDOWS_MS) {
    ({ posts, complete } = await readPosts(now - windowMs, signal));
    if (posts === null) return null;
    if (complete) break;
  }
  const gained = new Map(); // board -> column -> owner -> sum of posted numbers, or the highest
  const specs = new Map();
  const onBoards = Map.groupBy(posts.filter(({ board }) => board !== null), ({ board }) => board);
  const byBoard = [...onBoards].sort(([, one], [, other]) => other.length - one.length);
  await Promise.all(byBoard.slice(0, GAIN_COLUMNS_MAX).map(async ([board]) => {
    const answer = await ask(path`/v1/leaderboards/${board}`, { signal }).catch(() => null);
    if (answer) specs.set(board, answer.data);
  }));
  for (const { board, owner, stats = {} } of posts) {
    for (const { name, merge } of (specs.get(board)?.columns ?? []).filter(({ sorted, best }) => sorted && best === "high")) {
      if (typeof stats[name] !== "number") continue;
      const key = `${board} ${name}`;
      if (!gained.has(key)) gained.set(key, { board, column: name, of: new Map() });
      const { of } = gained.get(key);
      of.set(owner, merge === "sum" ? (of.get(owner) ?? 0) + stats[name] : Math.max(of.get(owner) ?? -Infinity, stats[name]));
    }
  }
  const columns = [...gained.values()].sort((one, other) => other.of.size - one.of.size).slice(0, GAIN_COLUMNS_MAX);
  const found = await Promise.all(columns.map((each) => judge(each, specs.get(each.board), signal)));
  const ratio = ({ value, median, scale }) => value / Math.max(median, 10 ** -scale); // how far a gain is from the others’
  const gains = found.flat().sort((one, other) => ratio(other) - ratio(one)).slice(0, GAINS_SHOWN);
  return { gains, posts: posts.length, complete, windowMs };
}

/** Return the greatest gains of a column with the rank that each alone would have. */
async function judge({ board, column, of }, { columns }, signal) {
  const { scale } = columns.find(({ name }) => name === column);
  const sorted = [...of].sort(([, one], [, other]) => other - one);
  const median = sorted[Math.floor(sorted.length / 2)][1];
  const top = sorted.slice(0, GAINS_OF_COLUMN).map(([owner, value]) => [owner, value.toFixed(scale)]);
  const target = path`/v1/leaderboards/${board}/rankings/${column}/positions`;
  const query = new URLSearchParams({ values: top.map(([, value]) => value).join(), rank: "estimate" });
  const answer = await ask(`${target}?${query}`, { signal }).catch(() => null);
  return (answer?.data.positions ?? []).map(({ rank, total }, index) => ({
    owner: top[index][0],
    board,
    column,
    scale,
    value: Number(top[index][1]),
    rank,
    total,
    median,
  }));
}

/** Return the posts since a time, oldest first, and whether these are all. */
async function readPosts(since, signal) {
  let [low, high] = [0, Number.MAX_SAFE_INTEGER];
  let after = 0; // the last number that is known to be too early
  while (high - low > 1) {
    const middle = low + Math.floor((high - low) / 2);
    const [line] = await readJournal(middle, 1, signal);
    if (typeof line?.seq === "string") return { posts: null };
    if (line === "pruned" || (line && Date.parse(line.accepted_at) < since)) low = after = middle;
    else high = line ? Math.min(middle, line.seq - 1) : middle;
    if (line && line !== "pruned" && line.seq - 1 <= low) break;
  }
  const posts = [];
  for (let page = 0; page < GAIN_PAGES_MAX; page += 1) {
    const lines = await readJournal(after, JOURNAL_PAGE, signal);
    posts.push(...lines.filter(({ kind, status, owner }) => kind === "post" && status === "applied" && owner));
    if (lines.length < JOURNAL_PAGE) return { posts, complete: true };
    after = lines.at(-1).seq;
  }
  return { posts, complete: false };
}

/** Return lines of the journal, or ["pruned"] if those after this number are no longer kept. */
async function readJournal(after, limit, signal) {
  try {
    const response = await call(`/v1/journal?after=${after}&limit=${limit}`, { signal });
    return (await response.text()).split("\n").filter(Boolean).map(parsed);
  } catch (error) {
    if (error.code === "journal_pruned") return ["pruned"];
    throw error;
  }
}
