/** Names for parts of `api.ts`, which holds the types from the service's OpenAPI document. */

import type { CohortEvent, FacetedPostBody, FanPostBody, LeaguePostBody, Operations, OwnerEvent, PostBody, PostResult, ResetEvent, TopEvent } from "./api.js";

export type { CurveAnswer as Curve, CurveSegment, FacetValue, GrantAnswer as Grant, LeaguePast, Page, PastPosition } from "./api.js";
export type { PostResult, PostResults, ProblemDocument as Problem, RankedEntry } from "./api.js";

export type Operation = keyof Operations;

/** The body of an operation's successful answer. */
export type Answer<O extends Operation> = Operations[O]["answer"];

/** The body of an operation's request. */
export type Body<O extends Operation> = Operations[O]["body"];

/** An operation's query. */
export type Query<O extends Operation> = Operations[O]["query"];

/** The query of an operation on a ranking. Without `column`, the board's only ranked column is meant. */
export type Ranking<O extends Operation> = Query<O> & { column?: string };

/** Extras for the results of posts: the owner's `positions` in these columns, to which `moved` adds `rank_before`. */
export type Positioned = Omit<Query<"post">, "mode">;
export type Post = PostBody;
export type FamilyPost = FacetedPostBody;
export type LeaguePost = LeaguePostBody;
export type FanPost = FanPostBody;
export type Stats = NonNullable<PostBody["stats"]>;

/** An event of a stream, with the type of its data. */
export type StreamEvent =
  | { event: "top"; id: string; data: TopEvent }
  | { event: "position"; id: string; data: OwnerEvent }
  | { event: "cohort"; id: string; data: CohortEvent }
  | { event: "reset"; id: string; data: ResetEvent };

/** A rank, and the bounds between which the true rank lies. */
export interface Bracket {
  rank: number;
  low: number;
  high: number;
  exact: boolean;
}

/** The tier of a rank, or null if no tier fits. If it is not certain, the bracket's ranks fall into several tiers. */
export interface OfflineTier {
  name: string | null;
  certain: boolean;
}

/** Returns a player token. */
export type AskToken = () => string | Promise<string>;

export interface Options {
  /**
   * The API key, or a function that returns a player token. The function is called when there is no token, and once
   * more for a request whose token has expired or was voided. Never put an API key into a web page.
   */
  key?: string | AskToken;
  /** How long one attempt may take, in milliseconds (10,000). Streams have no such limit. */
  timeoutMs?: number;
  /** How often a request is retried after the first attempt (4). */
  retries?: number;
  /** The function that sends requests (the global `fetch`). */
  fetch?: typeof fetch;
}

export interface BufferOptions {
  /** The most posts in a request (1,000). */
  postsPerRequest?: number;
  /** How long the oldest post waits for others, in milliseconds (20). */
  delayMs?: number;
  /** How many posts may be unsettled (10,000). With more, `submit` waits. */
  postsMax?: number;
  /** How long posts are retried while the service is unreachable, in milliseconds (an hour). */
  patienceMs?: number;
  /** Called with the receipt and the result of each settled post. */
  onResult?: (receipt: Receipt, result: PostResult) => void;
}

/** The receipt of a submitted post: its names, and a promise of its result. */
export interface Receipt {
  owner: string;
  postId: string;
  result: Promise<PostResult>;
}
