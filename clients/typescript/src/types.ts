/** Names for parts of `api.ts`, which openapi-typescript makes from the service's OpenAPI document. */

import type { components, operations } from "./api.js";

export type Operation = keyof operations;

/** The body of a successful answer of an operation. */
export type Answer<O extends Operation> = operations[O]["responses"] extends {
  200: { content: { "application/json": infer T } };
}
  ? T
  : never;

/** The query of an operation. */
export type Query<O extends Operation> = NonNullable<operations[O]["parameters"]["query"]>;

export type Post = components["schemas"]["PostBody"];
export type PostResult = components["schemas"]["PostResult"];
export type PostResults = components["schemas"]["PostResults"];
export type Problem = components["schemas"]["ProblemDocument"];
export type Curve = components["schemas"]["CurveAnswer"];
export type CurveSegment = components["schemas"]["CurveSegment"];
export type Page = components["schemas"]["Page"];

/** What a stream sends, with the type of each event. */
export type StreamEvent =
  | { event: "top"; id: string; data: components["schemas"]["TopEvent"] }
  | { event: "position"; id: string; data: components["schemas"]["OwnerEvent"] }
  | { event: "reset"; id: string; data: components["schemas"]["ResetEvent"] };

/** A rank, and the bounds between which the true rank lies. */
export interface Bracket {
  rank: number;
  low: number;
  high: number;
  exact: boolean;
}

/** The tier of a rank; null if no tier fits. If it is not certain, the ranks of the bracket have several tiers. */
export interface OfflineTier {
  name: string | null;
  certain: boolean;
}

export interface Options {
  /** The API key. Leave it out in a web page: the service may let readers in without one. */
  key?: string;
  /** How long one try may take, in milliseconds (10,000). A stream is not bounded by it. */
  timeoutMs?: number;
  /** How often a request is tried again after the first time (4). */
  retries?: number;
  /** The function that sends requests (the global `fetch`). */
  fetch?: typeof fetch;
}
