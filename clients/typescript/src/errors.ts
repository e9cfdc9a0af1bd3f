import type { Problem } from "./types.js";

/** The request failed. */
export class RankcurveError extends Error {
  override name = "RankcurveError";
}

/** No answer came from the service, even after all retries. What was posted may or may not have been applied. */
export class UnreachableError extends RankcurveError {
  override name = "UnreachableError";
}

/** The service rejected the request. `code` is stable, and the message is for people. */
export class ApiError extends RankcurveError {
  override name = "ApiError";
  readonly status: number;
  readonly code: string;
  readonly problem: Problem | undefined;

  constructor(status: number, problem: Problem | undefined) {
    super(problem ? `${problem.title}: ${problem.detail}` : `the answer has the status ${status}`);
    this.status = status;
    this.code = problem?.code ?? "unknown";
    this.problem = problem;
  }
}
