import { OfflineCurve } from "./offline_curve.js";
import { followStream } from "./stream.js";
import { pathOf, Transport } from "./transport.js";
import type { Answer, Options, Page, Post, PostResult, PostResults, Query, StreamEvent } from "./types.js";

const POSTS_PER_REQUEST = 1000;

/**
 * A client of one service. Every method throws ApiError if the service refuses the request, and UnreachableError if no
 * answer comes.
 */
export class Client {
  readonly #transport: Transport;

  constructor(url: string, options: Options = {}) {
    this.#transport = new Transport(url, options);
  }

  /** Return an owner's positions, by default in every ranked column. */
  positions(board: string, owner: string, query: Query<"positions"> = {}): Promise<Answer<"positions">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/entries/${owner}/positions`, query);
  }

  /** Return the rows around an owner, best to worst, with the owner's own. */
  around(board: string, owner: string, query: Query<"around">): Promise<Answer<"around">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/entries/${owner}/around`, query);
  }

  entry(board: string, owner: string, query: Query<"entry"> = {}): Promise<Answer<"entry">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/entries/${owner}`, query);
  }

  /** Return one page of a ranking. `next` and `prev` of the answer are cursors of other pages. */
  page(board: string, column: string, query: Query<"page"> = {}): Promise<Page> {
    return this.#read(pathOf`/v1/leaderboards/${board}/rankings/${column}`, query);
  }

  /** Yield the pages of a ranking from the best row to the worst. */
  async *pages(board: string, column: string, limit?: number): AsyncGenerator<Page> {
    let query: Query<"page"> = limit === undefined ? {} : { limit };
    for (;;) {
      const page = await this.page(board, column, query);
      yield page;
      if (page.next === null) return;
      query = limit === undefined ? { cursor: page.next } : { cursor: page.next, limit };
    }
  }

  /** Return the positions that values have or would have. */
  valuePositions(
    board: string,
    column: string,
    query: Query<"value_positions">,
  ): Promise<Answer<"value_positions">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/rankings/${column}/positions`, query);
  }

  valueAround(
    board: string,
    column: string,
    query: Query<"value_around">,
  ): Promise<Answer<"value_around">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/rankings/${column}/around`, query);
  }

  /** Return the values at ranks or percentiles. */
  values(board: string, column: string, query: Query<"values">): Promise<Answer<"values">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/rankings/${column}/values`, query);
  }

  buckets(board: string, column: string, query: Query<"buckets"> = {}): Promise<Answer<"buckets">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/rankings/${column}/buckets`, query);
  }

  /** Return the entries of many owners, such as friends. With a column, each has its position. */
  lookup(board: string, owners: string[], column?: string): Promise<Answer<"lookup">> {
    const body = column === undefined ? { owners } : { owners, column };
    return this.#ask(pathOf`/v1/leaderboards/${board}/entries/lookup`, body);
  }

  /** Return one owner's positions on many boards. */
  positionsOnBoards(owner: string, boards: string[], column: string): Promise<Answer<"positions_on_boards">> {
    return this.#ask(pathOf`/v1/owners/${owner}/positions`, { boards, column });
  }

  /**
   * Post one or many, and return a result for each, once all are durable.
   *
   * A post without `post_id` gets one, so that a retry never counts twice. Pass posts with ids of your own if you may
   * call this again after an UnreachableError.
   */
  async post(board: string, posts: Post | Post[]): Promise<PostResult[]> {
    const named = [posts].flat().map((post) => ({ ...post, post_id: post.post_id ?? makePostId() }));
    const results: PostResult[] = [];
    for (let from = 0; from < named.length; from += POSTS_PER_REQUEST) {
      const body = { posts: named.slice(from, from + POSTS_PER_REQUEST) };
      const answer = await this.#ask<PostResults>(pathOf`/v1/leaderboards/${board}/posts`, body);
      results.push(...answer.results);
    }
    return results;
  }

  /** Take back an owner's post (role `ops`): the entry becomes what it would be without the post. */
  voidPost(board: string, postId: string, owner: string): Promise<Answer<"void_post">> {
    return this.#void(pathOf`/v1/leaderboards/${board}/posts/${postId}`, owner);
  }

  /** Take back an owner's post on every board of a family that it reached (role `ops`). */
  voidFamilyPost(family: string, postId: string, owner: string): Promise<Answer<"void_family_post">> {
    return this.#void(pathOf`/v1/families/${family}/posts/${postId}`, owner);
  }

  /** Yield what changes at the top of a ranking, or an owner's position, until the signal is aborted. */
  stream(board: string, query: Query<"stream">, signal?: AbortSignal): AsyncGenerator<StreamEvent> {
    return followStream(this.#transport, pathOf`/v1/leaderboards/${board}/stream`, query, signal);
  }

  /** Fetch the curve of a column, which gives ranks without further requests. */
  curve(board: string, column: string): Promise<OfflineCurve> {
    return OfflineCurve.fetch(this.#transport, pathOf`/v1/leaderboards/${board}/rankings/${column}/curve`);
  }

  async #void<T>(path: string, owner: string): Promise<T> {
    return (await (await this.#transport.send(path, { method: "DELETE", query: { owner } })).json()) as T;
  }

  async #read<T>(path: string, query: object): Promise<T> {
    return (await (await this.#transport.send(path, { query })).json()) as T;
  }

  async #ask<T>(path: string, body: unknown): Promise<T> {
    return (await (await this.#transport.send(path, { method: "POST", body })).json()) as T;
  }
}

/** Return 128 random bits. `crypto.randomUUID` is missing in Node 18 and on pages without TLS. */
function makePostId(): string {
  const numbers = new Uint32Array(4);
  if (globalThis.crypto) globalThis.crypto.getRandomValues(numbers);
  else numbers.forEach((_, index) => (numbers[index] = Math.random() * 2 ** 32));
  return Array.from(numbers, (number) => number.toString(16).padStart(8, "0")).join("");
}
