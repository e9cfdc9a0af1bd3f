// The service, asked over its public contract. Failures are of two kinds: a Problem says what is wrong, Away that
// nobody answered.

import { keyHeader } from "./keys.js";
import { REQUEST_TIMEOUT_MS } from "./limits.js";

const LONG_NUMBER = /[\d.]{16}/;
const FIXED_POINT = /^-?\d+(\.\d{1,30})?$/;
const listeners = new Set();
let reachable = true;

/** What the service refused, in its own words. */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `HTTP ${status}`);
    this.status = status;
    this.code = document.code ?? "";
    this.title = document.title ?? "";
  }
}

/** Nobody answered. */
export class Away extends Error {
  constructor() {
    super("The service does not answer.");
  }
}

/** Be told when the service is reached again, or no more. */
export function onReach(listener) {
  listeners.add(listener);
}

function reached(now) {
  if (now === reachable) return;
  reachable = now;
  for (const listener of listeners) listener(now);
}

/** A path with its parts escaped: path`/v1/leaderboards/${id}`. Throws a Problem for parts that no browser sends. */
export function path(texts, ...parts) {
  return texts.reduce((made, text, index) => made + segment(parts[index - 1]) + text);
}

function segment(part) {
  if (part === "." || part === "..") {
    throw new Problem(400, { detail: `A browser can't ask for “${part}”, because it takes that for a folder.` });
  }
  return encodeURIComponent(part);
}

/** The response to a request; throws Away, or the service's Problem. An abort is thrown as it is. */
export async function call(target, { method = "GET", body, headers = {}, signal } = {}) {
  const sent = { ...headers, ...keyHeader() };
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(target, {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit", // with them a browser answers 401 by a dialogue of its own
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal,
    });
  } catch (error) {
    throw unanswered(error, signal);
  }
  reached(true);
  if (response.ok) return response;
  throw new Problem(response.status, await response.json().catch(() => ({})));
}

/** What a failed request or a broken answer means: Away, unless the page itself aborted it. */
export function unanswered(error, signal) {
  if (signal?.aborted && signal.reason?.name !== "TimeoutError") return error;
  reached(false);
  return new Away();
}

/** The JSON that a request answers, and its entity tag. */
export async function ask(target, { signal, timeoutMs = REQUEST_TIMEOUT_MS, ...rest } = {}) {
  const timeout = AbortSignal.timeout(timeoutMs);
  const either = signal ? AbortSignal.any([signal, timeout]) : timeout;
  const response = await call(target, { ...rest, signal: either });
  try {
    return { data: parsed(await response.text()), etag: response.headers.get("ETag") };
  } catch (error) {
    throw unanswered(error, either);
  }
}

/** JSON, in which numbers that a double can't hold stay text, digit by digit; null where there is no text. */
export function parsed(text) {
  if (text === "") return null;
  return LONG_NUMBER.test(text) ? JSON.parse(text, exact) : JSON.parse(text);
}

function exact(_, value, context) {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || !FIXED_POINT.test(source)) return value;
  const decimals = source.length - 1 - source.indexOf(".");
  return value.toFixed(source.includes(".") ? decimals : 0) === source ? value : source;
}

/** Call `work` now and every `everyMs` until the signal; while the page is out of sight it rests. */
export async function poll(work, everyMs, signal) {
  while (!signal.aborted) {
    await visible(signal);
    if (signal.aborted) return;
    await work();
    await pause(everyMs, signal);
  }
}

/** `work`, at once but no more often than every `everyMs`; what is asked for meanwhile is done once, afterwards. */
export function throttled(work, everyMs, signal) {
  let running = false;
  let again = false;
  return async function run() {
    again = true;
    if (running) return;
    running = true;
    while (again && !signal.aborted) {
      again = false;
      await work();
      await pause(everyMs, signal);
    }
    running = false;
  };
}

/** Wait so long, or until the signal. */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (signal.aborted) done();
    else signal.addEventListener("abort", done, { once: true });
  });
}

/** Wait until the page can be seen, or until the signal. */
export function visible(signal) {
  if (!document.hidden || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
  });
}
