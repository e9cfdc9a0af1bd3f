export { Client } from "./client.js";
export type { Answer, Bracket, OfflineTier, Options, Post, Query } from "./types.js";
export { ApiError, RankcurveError, UnreachableError } from "./errors.js";
export { OfflineCurve } from "./offline_curve.js";
