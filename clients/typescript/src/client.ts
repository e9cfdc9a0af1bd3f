import { RankcurveError } from "./errors.js";
import { OfflineCurve } from "./offline_curve.js";
import { PostBuffer } from "./post_buffer.js";
import { sendPosts } from "./posting.js";
import { followStream } from "./stream.js";
import { pathOf, Transport } from "./transport.js";
import type {
  Answer,
  Body,
  BufferOptions,
  FacetValue,
  FamilyPost,
  FanPost,
  Grant,
  LeaguePast,
  LeaguePost,
  Options,
  Page,
  PastPosition,
  Positioned,
  Post,
  PostResult,
  Query,
  RankedEntry,
  Ranking,
  Stats,
  StreamEvent,
} from "./types.js";

/**
 * A client for one service. Every method throws ApiError if the service rejects the request, and UnreachableError if no
 * answer comes. The column can be omitted if the board has only one ranked column.
 */
export class Client {
  readonly #transport: Transport;

  constructor(url: string, options: Options = {}) {
    this.#transport = new Transport(url, options);
  }

  /** Return the top rows of a board, best first. */
  async top(board: string, limit = 10, column?: string): Promise<RankedEntry[]> {
    const query: Query<"top"> = column === undefined ? { limit } : { limit, column };
    return (await this.#read<Page>(pathOf`/v1/leaderboards/${board}/rankings`, query)).entries;
  }

  /** Return an owner's rank, where 1 is the best. `positions` also reports how exact the rank is. */
  async rank(board: string, owner: string, column?: string): Promise<number> {
    const { positions } = await this.positions(board, owner, column === undefined ? {} : { columns: [column] });
    const [position, other] = positions;
    if (typeof position?.rank === "number" && other === undefined) return position.rank;
    const names = positions.map((each) => each.column).join(", ");
    throw new RankcurveError(`'${board}' has several ranked columns: name one of ${names}`);
  }

  /** Return an owner's positions in the given columns, or by default in every ranked column. */
  positions(board: string, owner: string, query: Query<"positions"> = {}): Promise<Answer<"positions">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/entries/${owner}/positions`, query);
  }

  /** Return the rows around an owner, best to worst, including the owner's own row. */
  around(board: string, owner: string, query: Query<"around"> = {}): Promise<Page> {
    return this.#read(pathOf`/v1/leaderboards/${board}/entries/${owner}/around`, query);
  }

  /** Return an owner's stats. */
  entry(board: string, owner: string, query: Query<"entry"> = {}): Promise<Answer<"entry">> {
    return this.#read(pathOf`/v1/leaderboards/${board}/entries/${owner}`, query);
  }

  /** Return one page of a ranking. Its `next` and `prev` are the cursors of the neighbouring pages. */
  page(board: string, query: Ranking<"page"> = {}): Promise<Page> {
    return this.#readRanking(board, "", query);
  }

  /** Yield the pages of a ranking from the best row to the worst. */
  async *pages(board: string, query: Ranking<"page"> = {}): AsyncGenerator<Page> {
    for (let asked = query; ; ) {
      const page = await this.page(board, asked);
      yield page;
      if (page.next === null) return;
      const { from_rank: _, ...rest } = query;
      asked = { ...rest, cursor: page.next };
    }
  }

  /** Return the positions that these values have, or would have if someone reached them. */
  valuePositions(board: string, query: Ranking<"value_positions">): Promise<Answer<"value_positions">> {
    return this.#readRanking(board, "/positions", query);
  }

  /** Return the rows around a value, best to worst. */
  valueAround(board: string, query: Ranking<"value_around">): Promise<Page> {
    return this.#readRanking(board, "/around", query);
  }

  /** Return the values at the given ranks or percentiles. */
  values(board: string, query: Ranking<"values">): Promise<Answer<"values">> {
    return this.#readRanking(board, "/values", query);
  }

  /** Divide the range of values into that many equal parts, and return the number of entries in each. */
  buckets(board: string, query: Ranking<"buckets"> = {}): Promise<Answer<"buckets">> {
    return this.#readRanking(board, "/buckets", query);
  }

  /** Return the entries of several owners, such as a player's friends. With a column, each has its position. */
  lookup(board: string, owners: string[], column?: string): Promise<Answer<"lookup">> {
    const body = column === undefined ? { owners } : { owners, column };
    return this.#ask(pathOf`/v1/leaderboards/${board}/entries/lookup`, body);
  }

  /** Return one owner's positions on several boards. */
  positionsOnBoards(owner: string, boards: string[], column?: string): Promise<Answer<"positions_on_boards">> {
    const body = column === undefined ? { boards } : { boards, column };
    return this.#ask(pathOf`/v1/owners/${owner}/positions`, body);
  }

  /** Create a board, or confirm that the existing board has this specification (role `ops`). */
  createBoard(board: string, spec: Body<"create_board">): Promise<Answer<"create_board">> {
    return this.#ask(pathOf`/v1/leaderboards/${board}`, spec, "PUT");
  }

  /** Return a board's specification, its number of entries and the state of its curves. */
  board(board: string): Promise<Answer<"board">> {
    return this.#read(pathOf`/v1/leaderboards/${board}`, {});
  }

  /** Create a family, or confirm that the existing family has this specification (role `ops`). */
  createFamily(family: string, spec: Body<"create_family">): Promise<Answer<"create_family">> {
    return this.#ask(pathOf`/v1/families/${family}`, spec, "PUT");
  }

  /** Return a family's specification and its number of boards. */
  family(family: string): Promise<Answer<"family">> {
    return this.#read(pathOf`/v1/families/${family}`, {});
  }

  /** Yield the families, sorted by id. */
  families(): AsyncGenerator<Answer<"family">> {
    return this.#walk("/v1/families", {}, "families");
  }

  /** Return a family's board for a kind of period, a time in that period, and facet values such as `clan: "fox"`. */
  familyBoard(family: string, query: Query<"family_board">): Promise<Answer<"family_board">> {
    return this.#read(pathOf`/v1/families/${family}/boards`, query);
  }

  /** Yield the values of a facet, each with its board. */
  facetValues(family: string, query: Query<"facet_values">): AsyncGenerator<FacetValue> {
    return this.#walk(pathOf`/v1/families/${family}/facets`, query, "values");
  }

  /** Yield an owner's final positions in the closed periods of one kind, newest first. */
  history(family: string, owner: string, query: Query<"history">): AsyncGenerator<PastPosition> {
    return this.#walk(pathOf`/v1/families/${family}/owners/${owner}/history`, query, "history");
  }

  /** Return an owner's division and, with its zones, the owner's cohort in the current period of a league. */
  leagueOwner(league: string, owner: string): Promise<Answer<"league_owner">> {
    return this.#read(pathOf`/v1/leagues/${league}/owners/${owner}`, {});
  }

  /** Yield an owner's results in a league's closed periods, newest first. */
  leagueHistory(league: string, owner: string): AsyncGenerator<LeaguePast> {
    return this.#walk(pathOf`/v1/leagues/${league}/owners/${owner}/history`, {}, "history");
  }

  /** Return a cohort, such as `silver-12`, of the current period of a league or of another one. */
  cohort(league: string, cohort: string, query: Query<"cohort"> = {}): Promise<Answer<"cohort">> {
    return this.#read(pathOf`/v1/leagues/${league}/cohorts/${cohort}`, query);
  }

  /** Return the number of owners with seats in each division of a league, the best division last. */
  divisions(league: string): Promise<Answer<"divisions">> {
    return this.#read(pathOf`/v1/leagues/${league}/divisions`, {});
  }

  /** Yield an owner's grants, those of the newest board first. With `state: "open"`, yield only unclaimed grants. */
  ownerGrants(owner: string, query: Query<"owner_grants"> = {}): AsyncGenerator<Grant> {
    return this.#walk(pathOf`/v1/owners/${owner}/grants`, query, "grants");
  }

  /**
   * Claim a grant by its id (role `writer`). A repeated call returns the same grant, with `first` set to false. So pay
   * before you claim, and use the grant's id as the idempotency key of the payout.
   */
  claimGrant(grant: string): Promise<Answer<"claim_grant">> {
    return this.#ask(pathOf`/v1/grants/${grant}/claim`, undefined);
  }

  /** Post one owner's stats, and return the result once they are durable. `query` can ask for positions. */
  async postOne(
    board: string,
    owner: string,
    stats: Stats,
    more: Partial<Post> = {},
    query: Positioned = {},
  ): Promise<PostResult> {
    return (await this.post(board, { ...more, owner, stats }, query))[0]!;
  }

  /**
   * Post one or more contributions, and return a result for each once all are durable.
   *
   * A post without `post_id` is given one, so that a retry never counts twice; a post made with a player token has its
   * number `n` instead. Pass ids of your own if you may call this again after an UnreachableError. At most 100 posts
   * may ask for positions, for example with `{ positions: ["xp"] }`.
   */
  post(board: string, posts: Post | Post[], query: Positioned = {}): Promise<PostResult[]> {
    return sendPosts(this.#transport, pathOf`/v1/leaderboards/${board}/posts`, posts, query);
  }

  /** Post to the boards of a family, as `post` does for a single board. A post may have `facets`. */
  postToFamily(family: string, posts: FamilyPost | FamilyPost[], query: Positioned = {}): Promise<PostResult[]> {
    return sendPosts(this.#transport, pathOf`/v1/families/${family}/posts`, posts, query);
  }

  /** Post to a league, as `postToFamily` does. The post's `division` is where an owner who is new to it begins. */
  postToLeague(league: string, posts: LeaguePost | LeaguePost[], query: Positioned = {}): Promise<PostResult[]> {
    return sendPosts(this.#transport, pathOf`/v1/leagues/${league}/posts`, posts, query);
  }

  /** Post to several boards at once, as `post` does for a single board. Each post names its `boards`. */
  postToBoards(posts: FanPost | FanPost[]): Promise<PostResult[]> {
    return sendPosts(this.#transport, "/v1/posts", posts);
  }

  /** Create a buffer for posts to a board or a family or, with neither, for posts that name their boards. */
  buffer(target: { board?: string; family?: string } = {}, options: BufferOptions = {}): PostBuffer {
    const { board, family } = target;
    if (board !== undefined && family !== undefined) throw new RankcurveError("a buffer is for a board or for a family");
    let path = "/v1/posts";
    if (board !== undefined) path = pathOf`/v1/leaderboards/${board}/posts`;
    if (family !== undefined) path = pathOf`/v1/families/${family}/posts`;
    return new PostBuffer(this.#transport, path, options);
  }

  /** Void an owner's post, so that the entry becomes what it would be without it (role `ops`). */
  voidPost(board: string, postId: string, owner: string, reason?: string): Promise<Answer<"void_post">> {
    return this.#void(pathOf`/v1/leaderboards/${board}/posts/${postId}`, owner, reason);
  }

  /** Void an owner's post on every board of a family that it reached (role `ops`). */
  voidFamilyPost(
    family: string,
    postId: string,
    owner: string,
    reason?: string,
  ): Promise<Answer<"void_family_post">> {
    return this.#void(pathOf`/v1/families/${family}/posts/${postId}`, owner, reason);
  }

  /** Enter an owner on a board with entry rules, and return how many posts the owner has left. */
  join(board: string, owner: string): Promise<Answer<"join">> {
    return this.#ask(pathOf`/v1/leaderboards/${board}/entries`, { owner });
  }

  /** Issue a player token, which lets an owner post to boards and families (role `writer`). */
  issueToken(asked: Body<"issue_token">): Promise<Answer<"issue_token">> {
    return this.#ask("/v1/tokens", asked);
  }

  /** Void every player token that was issued for an owner until now (role `ops`). */
  async voidTokens(owner: string, reason?: string): Promise<void> {
    await this.#transport.send(pathOf`/v1/owners/${owner}/tokens`, { method: "DELETE", query: { reason }, once: true });
  }

  /** Erase an owner's entry on one board (role `ops`), but keep the entries on other boards. */
  async eraseEntry(board: string, owner: string, reason?: string): Promise<void> {
    const path = pathOf`/v1/leaderboards/${board}/entries/${owner}`;
    await this.#transport.send(path, { method: "DELETE", query: { reason }, once: true });
  }

  /** Yield the top of a ranking, or an owner's position, each time it changes, until the signal is aborted. */
  stream(board: string, query: Query<"stream"> = {}, signal?: AbortSignal): AsyncGenerator<StreamEvent> {
    return followStream(this.#transport, pathOf`/v1/leaderboards/${board}/stream`, query, signal);
  }

  /** Yield a league's cohort each time it changes, until the signal is aborted. */
  streamCohort(league: string, cohort: string, signal?: AbortSignal): AsyncGenerator<StreamEvent> {
    return followStream(this.#transport, pathOf`/v1/leagues/${league}/cohorts/${cohort}/stream`, {}, signal);
  }

  /** Fetch a column's curve, which ranks values without further requests. */
  curve(board: string, column = "-"): Promise<OfflineCurve> {
    return OfflineCurve.fetch(this.#transport, pathOf`/v1/leaderboards/${board}/rankings/${column}/curve`);
  }

  #readRanking<T>(board: string, view: string, query: Ranking<"page">): Promise<T> {
    const { column, ...rest } = query;
    return this.#read(pathOf`/v1/leaderboards/${board}/rankings/${column ?? "-"}` + view, rest);
  }

  async *#walk<T>(path: string, query: object, member: string): AsyncGenerator<T> {
    for (let cursor: unknown; ; ) {
      const page: Record<string, unknown> = await this.#read(path, { ...query, cursor });
      yield* page[member] as T[];
      if (page["next"] === null || page["next"] === cursor) return;
      cursor = page["next"];
    }
  }

  async #void<T>(path: string, owner: string, reason?: string): Promise<T> {
    return (await (await this.#transport.send(path, { method: "DELETE", query: { owner, reason } })).json()) as T;
  }

  async #read<T>(path: string, query: object): Promise<T> {
    return (await (await this.#transport.send(path, { query })).json()) as T;
  }

  async #ask<T>(path: string, body: unknown, method: "POST" | "PUT" = "POST"): Promise<T> {
    return (await (await this.#transport.send(path, { method, body })).json()) as T;
  }
}
