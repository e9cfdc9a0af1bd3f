export { Client } from "./client.js";
export type * from "./types.js";
export { ApiError, RankcurveError, UnreachableError } from "./errors.js";
export { OfflineCurve } from "./offline_curve.js";
export { PostBuffer } from "./post_buffer.js";
