/**
 * Collects posts in a buffer, which sends them in batches, retries failed requests, and counts each post once.
 *
 *     submit ──> waiting ──N posts, or T after the oldest──> sent ──answered──> settled: its receipt has the result
 *
 * A post gets its id and its time when it is submitted and keeps both across retries, so a post whose answer was lost
 * still counts once. Only one request is under way at a time, so posts are applied in the order in which they were
 * submitted. Only a rejection by the service itself is final; after any other answer, or none, the request is sent
 * again.
 *
 * The posts are kept in memory, so whatever is not settled when the program ends is lost. Close the buffer before that.
 */

import { ApiError, RankcurveError } from "./errors.js";
import { isFinal, makePostId, sendEach } from "./posting.js";
import { drawPauseMs, pause, type Transport } from "./transport.js";
import type { BufferOptions, FamilyPost, FanPost, Post, PostResult, Receipt, Stats } from "./types.js";

const PAUSE_MS_MAX = 5000;
const ATTEMPT_MS_MAX = 60_000; // the most that an attempt counts for, because the machine may have slept meanwhile

interface Waiting {
  post: Post;
  receipt: Receipt;
  settle: (result: PostResult) => void;
  fail: (error: unknown) => void;
}

export class PostBuffer {
  /** The number of rejected posts, by the code of the problem. */
  readonly rejected: Record<string, number> = {};
  readonly #transport: Transport;
  readonly #path: string;
  readonly #options: Required<Omit<BufferOptions, "onResult">> & Pick<BufferOptions, "onResult">;
  readonly #prefix = makePostId();
  #number = 0;
  #waiting: Waiting[] = [];
  #submitted = 0; // posts so far
  #settled = 0; // of these, in the same order
  #hurried = 0; // callers that wait for all posts
  #closed = false;
  #failure: unknown;
  #wake: () => void = () => undefined; // ends the wait for more posts
  #progress: Array<() => void> = []; // those who wait for the next answer
  #sending: Promise<void> | undefined;

  constructor(transport: Transport, path: string, options: BufferOptions) {
    this.#transport = transport;
    this.#path = path;
    this.#options = { postsPerRequest: 1000, delayMs: 20, postsMax: 10_000, patienceMs: 3_600_000, ...options };
  }

  /** The number of posts whose outcome is not known yet. */
  get unsettled(): number {
    return this.#submitted - this.#settled;
  }

  /**
   * Add a post to the buffer, and return its receipt, after waiting while too many posts are unsettled. `more` may have
   * a `post_id`, an `at`, the `facets` of a post to a family, and the `boards` if the buffer has no target.
   */
  async submit(owner: string, stats: Stats, more: Partial<Post & FamilyPost & FanPost> = {}): Promise<Receipt> {
    this.#checkOpen();
    const at = more.at ?? new Date().toISOString();
    const postId = more.post_id ?? `${this.#prefix}-${(this.#number += 1)}`;
    while (this.unsettled >= this.#options.postsMax) {
      await this.#awaitProgress();
      this.#checkOpen();
    }
    let settle!: Waiting["settle"], fail!: Waiting["fail"];
    const result = new Promise<PostResult>((resolve, reject) => ([settle, fail] = [resolve, reject]));
    result.catch(() => undefined); // `close` throws the error as well, so callers may ignore the receipt
    const receipt = { owner, postId, result };
    this.#waiting.push({ post: { ...more, owner, stats, at, post_id: postId }, receipt, settle, fail });
    this.#submitted += 1;
    if (this.#waiting.length >= this.#options.postsPerRequest) this.#wake();
    this.#sending ??= this.#sendAll();
    return receipt;
  }

  /** Send the waiting posts, and wait until all submitted so far are settled. Throws if the buffer has given up. */
  async flush(): Promise<void> {
    const submitted = this.#submitted;
    this.#hurried += 1;
    this.#wake();
    try {
      while (this.#settled < submitted && this.#failure === undefined) await this.#awaitProgress();
    } finally {
      this.#hurried -= 1;
    }
    if (this.#failure !== undefined) throw this.#giveUpError();
  }

  /** Accept no more posts, and wait until all are settled. Throws RankcurveError if posts are left. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.flush();
  }

  async #sendAll(): Promise<void> {
    try {
      while (this.#waiting.length > 0) {
        if (this.#waiting.length < this.#options.postsPerRequest && this.#hurried === 0) {
          const waking = new AbortController();
          this.#wake = () => waking.abort();
          await pause(this.#options.delayMs, waking.signal).catch(() => undefined);
        }
        const batch = this.#waiting.splice(0, this.#options.postsPerRequest);
        try {
          this.#settle(batch, await this.#sendPatiently(batch.map(({ post }) => post)));
        } catch (error) {
          this.#failure = error;
          for (const { fail } of [...batch, ...this.#waiting.splice(0)]) fail(error);
        }
      }
    } finally {
      this.#sending = undefined;
      this.#tellProgress();
    }
  }

  async #sendPatiently(posts: Post[]): Promise<PostResult[]> {
    let [waitedMs, fromMs] = [0, performance.now()];
    for (let tried = 0; ; tried += 1) {
      try {
        return await sendEach(this.#transport, this.#path, posts);
      } catch (error) {
        const nowMs = performance.now();
        waitedMs += Math.min(ATTEMPT_MS_MAX, nowMs - fromMs);
        fromMs = nowMs;
        if ((error instanceof ApiError && isFinal(error)) || waitedMs >= this.#options.patienceMs) throw error;
      }
      await pause(Math.min(PAUSE_MS_MAX, drawPauseMs(tried)));
    }
  }

  #settle(batch: Waiting[], results: PostResult[]): void {
    this.#settled += batch.length;
    batch.forEach(({ receipt, settle }, index) => {
      const result = results[index]!;
      if (result.status === "rejected") {
        const code = result.error?.code ?? "unknown";
        this.rejected[code] = (this.rejected[code] ?? 0) + 1;
      }
      settle(result);
      try {
        this.#options.onResult?.(receipt, result);
      } catch (error) {
        console.error(`onResult failed for post ${receipt.postId}`, error);
      }
    });
    this.#tellProgress();
  }

  #awaitProgress(): Promise<void> {
    return new Promise((resolve) => this.#progress.push(resolve));
  }

  #tellProgress(): void {
    for (const resolve of this.#progress.splice(0)) resolve();
  }

  #checkOpen(): void {
    if (this.#failure !== undefined) throw this.#giveUpError();
    if (this.#closed) throw new RankcurveError("the buffer is closed");
  }

  #giveUpError(): RankcurveError {
    const cause = this.#failure;
    return new RankcurveError(`${this.unsettled} posts are not settled: ${String(cause)}`, { cause });
  }
}
