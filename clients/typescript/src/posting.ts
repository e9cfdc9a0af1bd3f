/** Sends posts, and returns one result for each. */

import { ApiError, RankcurveError } from "./errors.js";
import type { Transport } from "./transport.js";
import type { Post, PostResult, PostResults } from "./types.js";

const POSTS_PER_REQUEST = 1000;
// With these statuses the service rejects a whole request. Halving the request finds the posts at fault.
const WHOLE_REQUEST_STATUSES = [400, 413, 422];
const PASSING_STATUSES = [408, 429];
const PROBLEM_TYPES = "urn:rankcurve:problem:";

/** Send posts in requests of limited size, and return the results in order. Posts without `n` or an id get an id. */
export async function sendPosts(
  transport: Transport,
  path: string,
  posts: Post | Post[],
  query: object = {},
): Promise<PostResult[]> {
  const named = [posts].flat().map((post) =>
    post.n === undefined ? { ...post, post_id: post.post_id ?? makePostId() } : post,
  );
  const results: PostResult[] = [];
  for (let from = 0; from < named.length; from += POSTS_PER_REQUEST) {
    results.push(...(await sendOnce(transport, path, named.slice(from, from + POSTS_PER_REQUEST), query)));
  }
  return results;
}

/** Send posts in one request. If the service rejects some, halve the request, so that only the posts at fault fail. */
export async function sendEach(transport: Transport, path: string, posts: Post[]): Promise<PostResult[]> {
  try {
    return await sendOnce(transport, path, posts);
  } catch (error) {
    if (!(error instanceof ApiError) || !isOfPosts(error, posts.length)) throw error;
    if (posts.length === 1) return [{ owner: posts[0]!.owner, status: "rejected", error: error.problem! }];
    const middle = posts.length >> 1;
    const first = await sendEach(transport, path, posts.slice(0, middle));
    return first.concat(await sendEach(transport, path, posts.slice(middle)));
  }
}

/** Return whether the service itself rejected a request and would do so again. A proxy's answer may be temporary. */
export function isFinal({ status, problem }: ApiError): boolean {
  return Boolean(problem?.type.startsWith(PROBLEM_TYPES)) && status < 500 && !PASSING_STATUSES.includes(status);
}

async function sendOnce(transport: Transport, path: string, posts: Post[], query = {}): Promise<PostResult[]> {
  const answer = await transport.send(path, { method: "POST", query, body: { posts }, numbered: true });
  const { results } = (await answer.json()) as PostResults;
  if (results?.length !== posts.length) throw new RankcurveError("the answer does not have the results of the posts");
  return results;
}

/** Return whether the posts were rejected, and not the caller. A long request may also be rejected by a proxy. */
function isOfPosts(error: ApiError, posts: number): boolean {
  if (error.status === 413 && posts > 1) return true;
  if (!isFinal(error)) return false;
  if (error.status === 403) return error.problem?.errors?.some(({ pointer }) => pointer.startsWith("/posts/")) ?? false;
  return WHOLE_REQUEST_STATUSES.includes(error.status);
}

/** Return 128 random bits. `crypto.randomUUID` is missing in Node 18 and on pages without TLS. */
export function makePostId(): string {
  const numbers = new Uint32Array(4);
  if (globalThis.crypto) globalThis.crypto.getRandomValues(numbers);
  else numbers.forEach((_, index) => (numbers[index] = Math.random() * 2 ** 32));
  return Array.from(numbers, (number) => number.toString(16).padStart(8, "0")).join("");
}
