/** Sends requests, and retries them where a retry may help and does no harm. */

import { ApiError, RankcurveError, UnreachableError } from "./errors.js";
import type { AskToken, Options, Problem } from "./types.js";

const TIMEOUT_MS = 10_000;
const RETRIES = 4;
const PAUSE_MS = 100; // before the first retry; it doubles with each further one
export const PAUSE_MS_MAX = 30_000;
const NO_FOLDER = "%25%7F"; // the service drops it from the end of a name
const KEY = /^[!-~]*$/;
const PROXY_STATUSES = [502, 504]; // a proxy got no answer from the service
const RENEWED = ["token_expired", "token_voided"];

export interface Sent {
  method?: "GET" | "POST" | "PUT" | "DELETE";
  query?: object;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  once?: boolean; // never send it again
  numbered?: boolean; // its posts may have numbers that belong to the player token
}

export class Transport {
  readonly #url: string;
  readonly #key: Options["key"];
  readonly #timeoutMs: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;
  #token: Promise<string> | undefined;

  constructor(url: string, options: Options) {
    this.#url = url.replace(/\/+$/, "");
    // Check here, because an error from `fetch` would show a key that no header can carry, or an address's password.
    if (/^[^/]*\/\/[^/]*@/.test(url)) throw new RankcurveError("the address has a name or a password");
    if (typeof options.key === "string") checkKey(options.key);
    this.#key = options.key;
    this.#timeoutMs = options.timeoutMs ?? TIMEOUT_MS;
    this.#retries = options.retries ?? RETRIES;
    this.#fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
  }

  /**
   * Send a request, more than once if necessary unless it says `once`, and return its answer: a success, or 304.
   *
   * After 429 or 503 it is retried only if the service says when. Throws ApiError and UnreachableError.
   */
  async send(path: string, sent: Sent = {}): Promise<Response> {
    for (let tried = 0; ; tried += 1) {
      const left = sent.once ? 0 : this.#retries - tried;
      let pauseMs = drawPauseMs(tried);
      try {
        // Under another token, a post that may already have been applied would be another post.
        const answer = await this.open(path, sent, this.#timeoutMs, tried === 0 || !sent.numbered);
        if (answer.ok || answer.status === 304) return answer;
        const after = Number(answer.headers.get("Retry-After") ?? Number.NaN);
        const again = PROXY_STATUSES.includes(answer.status) || (isBusy(answer.status) && after >= 0);
        if (!again || left <= 0) throw new ApiError(answer.status, await readProblem(answer));
        await answer.body?.cancel();
        if (after >= 0) pauseMs = Math.min(PAUSE_MS_MAX, after * 1000) * (1 + Math.random() / 4);
      } catch (error) {
        if (error instanceof RankcurveError || sent.signal?.aborted) throw error;
        if (left <= 0) throw new UnreachableError(`no answer of ${this.#url}: ${String(error)}`, { cause: error });
      }
      await pause(pauseMs, sent.signal);
    }
  }

  /**
   * Send a request once. If its token has expired or was voided, and `mayRenew` is true, send it once more with a new
   * token. Without `timeoutMs`, there is no limit to how long the answer may take.
   */
  async open(path: string, sent: Sent, timeoutMs?: number, mayRenew = true): Promise<Response> {
    const key = this.#key;
    if (typeof key !== "function") return this.#fetchOnce(path, sent, timeoutMs, key);
    const token = this.#token ?? this.#askToken(key);
    const answer = await this.#fetchOnce(path, sent, timeoutMs, await token);
    if (answer.status !== 401 || !mayRenew) return answer;
    if (!RENEWED.includes((await readProblem(answer.clone()))?.code ?? "")) return answer;
    if (this.#token === token) this.#token = undefined; // otherwise another request has asked for a new one
    return this.#fetchOnce(path, sent, timeoutMs, await (this.#token ?? this.#askToken(key)));
  }

  #askToken(key: AskToken): Promise<string> {
    const asked: Promise<string> = (async () => checkKey(await key()))().catch((cause: unknown) => {
      if (this.#token === asked) this.#token = undefined;
      throw new RankcurveError(`no token came: ${String(cause)}`, { cause });
    });
    return (this.#token = asked);
  }

  #fetchOnce(path: string, sent: Sent, timeoutMs?: number, key?: string): Promise<Response> {
    const headers: Record<string, string> = { ...sent.headers };
    if (key !== undefined) headers["Authorization"] = `Bearer ${key}`;
    const init: RequestInit = { method: sent.method ?? "GET", headers };
    if (sent.body !== undefined) {
      headers["Content-Type"] = "application/json";
      init.body = JSON.stringify(sent.body);
    }
    const signals = [sent.signal, timeoutMs === undefined ? undefined : AbortSignal.timeout(timeoutMs)];
    const signal = anyOf(signals.filter((each) => each !== undefined));
    if (signal !== undefined) init.signal = signal;
    return this.#fetch(this.#url + path + queryText(sent.query), init);
  }
}

function checkKey(key: string): string {
  if (KEY.test(key)) return key;
  throw new RankcurveError("the API key has a line end, a space, or another character that no key has");
}

/** Return a path with each name escaped. `fetch` takes the names `.` and `..` for folders even if they are escaped. */
export function pathOf(parts: TemplateStringsArray, ...names: string[]): string {
  return parts.map((part, index) => part + escapeName(names[index] ?? "")).join("");
}

function escapeName(name: string): string {
  return encodeURIComponent(name) + (name === "." || name === ".." ? NO_FOLDER : "");
}

export async function readProblem(answer: Response): Promise<Problem | undefined> {
  if (!answer.headers.get("Content-Type")?.startsWith("application/problem+json")) return undefined;
  return (await answer.json()) as Problem;
}

/** Wait. If the signal is aborted first, throw its reason. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    signal?.addEventListener("abort", end, { once: true });
  });
}

/** Return a random pause before a retry, so that clients that failed together do not all come back together. */
export function drawPauseMs(tried: number): number {
  return Math.random() * Math.min(PAUSE_MS_MAX, PAUSE_MS * 2 ** tried);
}

function isBusy(status: number): boolean {
  return status === 429 || status === 503;
}

function queryText(query: object = {}): string {
  const parts = Object.entries(query).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${encodeURIComponent(Array.isArray(value) ? value.join(",") : String(value))}`],
  );
  return parts.length > 0 ? `?${parts.join("&")}` : "";
}

function anyOf(signals: AbortSignal[]): AbortSignal | undefined {
  if (signals.length < 2) return signals[0];
  const both = new AbortController(); // AbortSignal.any is younger than Node 18
  for (const each of signals) {
    if (each.aborted) both.abort(each.reason);
    each.addEventListener("abort", () => both.abort(each.reason), { once: true, signal: both.signal });
  }
  return both.signal;
}
