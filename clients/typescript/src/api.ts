/**
 * The types of requests and answers. `docs/write_reference.py` writes this file from the service's OpenAPI document,
 * and a test compares the two.
 */

/**
 * The answer to posts that were stored durably in the queue. Workers apply them within seconds. `accepted` is the
 * number of posts in the request. `duplicates` of them were already applied before their leaderboards closed;
 * they are not queued again.
 */
export type Accepted = {
  accepted: number;
  duplicates?: number;
};

/** A page of acts, the newest first. `next` is null on the last page. */
export type ActList = {
  acts: Array<ActAnswer>;
  next: string | null;
};

/**
 * An act of an operator, and its reason. `key` is the id of the operator's API key; null if the service had no
 * keys. `owner` and `board` say whom and which leaderboard the act concerns, and `detail` names anything else,
 * such as a family or a post. If the owner was erased later, the act has no owner and no detail.
 */
export type ActAnswer = {
  id: string;
  /** ISO 8601 in UTC, with microseconds */
  at: string;
  act: "board.changed" | "board.closed" | "board.created" | "board.deleted" | "board.rebuilt" | "board.reset" | "entries.erased" | "entry.erased" | "entry.set" | "family.changed" | "family.created" | "family.deleted" | "family.reset" | "job.paused" | "job.resumed" | "job.run" | "key.created" | "key.revoked" | "owner.erased" | "owner.hidden" | "owner.merged" | "owner.shadowed" | "owner.shown" | "pool.created" | "pool.deleted" | "post.accepted" | "post.refused" | "post.voided" | "resources.added" | "resources.removed" | "tokens.voided" | "webhook.changed" | "webhook.created" | "webhook.deleted" | "webhook.resumed";
  key: string | null;
  owner: string | null;
  board: string | null;
  reason: string | null;
  detail: Record<string, unknown> | null;
};

/** Resources to add to a region of a pool. A resource that the pool already has stays in its region. */
export type AddResources = {
  region: string;
  resources: Array<string>;
  reason?: string | null;
};

/** The result of adding resources: how many are new (`added`), and how many the pool already had (`known`). */
export type AddedResources = {
  added: number;
  known: number;
};

/**
 * A request to lease a resource for a key, or to extend the lease that the key already has. Send either
 * `lease_expires`, the time when the lease ends, or `lease_seconds`, how long it lasts, but not both.
 */
export type AskLease = {
  client_id: string;
  pool_id: string;
  /**
   * 1 to 200 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  key: string;
  region: string;
  /** A time with a zone, kept to the microsecond, not before 1970. */
  lease_expires?: string;
  lease_seconds?: number;
};

/**
 * The relative errors of the ranks that a curve gives to random owners. These ranks are compared with the true
 * ranks at the curve's time `as_of`, which the service gets by counting the current entries and undoing the
 * changes since. If it does not know all of these changes, or there are too many, it compares nothing: `outcome`
 * is `changed`. `outcome` is `empty` if the column has no entry. `broken` lists the first few values whose true
 * rank is outside the bracket. `certificate` is the largest possible error at any rank, and `bound` at ranks
 * greater than `exact_top`, as are `mean_error`, `p99_error` and `worst_error`.
 */
export type AuditAnswer = {
  method: "scan" | "skip";
  total: number;
  /** ISO 8601 in UTC, with microseconds */
  as_of: string;
  certificate: number | null;
  column: string;
  outcome: "changed" | "compared" | "empty";
  bound: number;
  owners: number;
  mean_error: number | null;
  p99_error: number | null;
  worst_error: number | null;
  brackets_broken: number;
  certificates_broken: number;
  broken: Array<AuditedRank>;
  seconds: number;
};

/** A value whose true rank is outside the curve's bracket from `low` to `high`, both as of the curve's `as_of`. */
export type AuditedRank = {
  /** fixed point, with the column's scale */
  value: number;
  true_rank: number;
  rank: number;
  low: number;
  high: number;
};

/**
 * A leaderboard with its full specification. `curves` has the state of each ranked column's curve; lists of
 * leaderboards have no `curves`. Only lists by activity have `active_at`: the time of the last logged change, or
 * of the creation if no change is logged. `opens_at`, `closes_at`, `grace_seconds` and `keep_seconds` are present
 * if the leaderboard has an opening or a closing time. `changes` is how often a row was written or erased: by how
 * much it grows says how busy the leaderboard is. A reset may set it back. `entry` is present if it has entry
 * rules, and `owners` then says how many owners take part: who joined or posted. `partition` is present if the
 * store has several partitions and the leaderboard has one segment. `rewards` and `each` are present if there are
 * rewards. A `closed` leaderboard accepts no posts. An `archived` leaderboard no longer has rows: requests for
 * its top, its owners, its values and its curve are answered from its archive, and all others with 410.
 */
export type BoardAnswer = {
  id: string;
  columns: Array<ColumnAnswer>;
  ties: "earliest" | "shared" | Array<string>;
  table: "own" | "shared";
  partition?: number;
  predictor: PredictorSpec;
  entry?: EntryBody;
  /** ISO 8601 in UTC, with microseconds */
  created_at: string;
  segments?: number;
  opens_at?: string | null;
  closes_at?: string | null;
  grace_seconds?: number;
  keep_seconds?: number | null;
  rewards?: Array<RewardBody>;
  each?: "all" | "first";
  closed: boolean;
  archived: boolean;
  entries: number;
  changes: number;
  owners?: number;
  /** ISO 8601 in UTC, with microseconds */
  active_at?: string;
  curves?: Record<string, CurveState | null>;
};

/**
 * A column of a leaderboard, with every default filled in. For a column of text, `min` and `max` are null. `of`
 * is present if the column follows another one or is a quotient, `per` and `from` if it is a quotient, `tiers` if
 * it has tiers, and the last four if there are such limits on posts.
 */
export type ColumnAnswer = {
  name: string;
  sorted: boolean;
  merge: "last" | "max" | "min" | "quotient" | "sum" | "with";
  best: "high" | "low";
  scale: number;
  min: number | null;
  max: number | null;
  type: "number" | "text";
  of?: string;
  per?: string;
  from?: number;
  tiers?: Array<TierBody>;
  /** fixed point, with the column's scale */
  post_min?: number;
  /** fixed point, with the column's scale */
  post_max?: number;
  /** fixed point, with the column's scale */
  gain_per_hour_max?: number;
  on_breach?: "hold" | "reject";
};

/** A tier: a named band of a ranking. It has exactly one of `to_rank`, `to_percent` and `value`. */
export type TierBody = {
  /** No other tier of the column has the same name. */
  name: string;
  /** The worst rank that fits. */
  to_rank?: number;
  /** The worst rank that fits, in percent of all ranked entries, rounded up: 5 % of 41 entries are three. */
  to_percent?: number;
  /** The worst value that fits. */
  value?: number | string;
};

/** The settings of a board's curves and of its exact ranks, as its creator chose them. */
export type PredictorSpec = {
  samples: number;
  exact_top: number;
  refresh_seconds: number;
  method: "auto" | "scan" | "skip";
};

/**
 * The rules by which a leaderboard accepts posts. Give at least one. They can change at any time. A limit below
 * what has already been reached refuses only what is new.
 */
export type EntryBody = {
  /** True: only owners who have joined may post. The others' posts are rejected, `not_joined`. */
  join?: boolean;
  /** The most posts of an owner that are accepted, whatever they change. More are rejected, `no_posts_left`. */
  posts_max?: number;
  /** Maximum number of owners. Who comes later is refused, `board_full`. */
  owners_max?: number;
};

/** A reward. It has exactly one of `to_rank`, `to_percent` and `to_value`. */
export type RewardBody = {
  /** No other reward of the leaderboard has the same name. */
  name: string;
  /** The ranked column that decides who gets it. */
  column: string;
  /** The worst rank that gets it. Who shares this rank gets it, too. */
  to_rank?: number;
  /** The worst rank that gets it, in percent of all visible entries with a value in the column, rounded up. */
  to_percent?: number;
  /** The worst value that gets it. */
  to_value?: number | string;
  /** A JSON object of at most 1,000 bytes, such as the item to hand out. Every grant carries it. Default: `{}`. */
  data?: Record<string, unknown>;
};

/** The state of a ranked column's curve: how and when it was fitted, its knots, and the changes since the fit. */
export type CurveState = {
  method: "scan" | "skip";
  total: number;
  /** ISO 8601 in UTC, with microseconds */
  as_of: string;
  certificate: number | null;
  knots: number;
  age_seconds: number;
  live: boolean;
  moves: number;
  bound: number;
};

/**
 * A page of the grants of a leaderboard, by reward and rank. `next` is null on the last page. `made` is true once
 * the leaderboard has closed and all its grants are made.
 */
export type BoardGrants = {
  board: string;
  made: boolean;
  grants: Array<GrantAnswer>;
  next: string | null;
};

/**
 * A reward that an owner has got. `rank` is the owner's rank when the leaderboard closed. `id` is unique and
 * never changes. `claimed_at` is null until the grant is claimed.
 */
export type GrantAnswer = {
  owner: string;
  reward: string;
  rank: number;
  data: Record<string, unknown>;
  id: string;
  board: string;
  claimed_at: string | null;
};

/**
 * A page of leaderboards, ordered by id or activity. `next` is the next page's cursor; null on the last page.
 * `partitions_away` lists the partitions that do not answer. Their leaderboards are missing.
 */
export type BoardList = {
  leaderboards: Array<BoardAnswer>;
  next: string | null;
  partitions_away?: Array<number>;
};

/** One owner's positions on many leaderboards, in the order of the request. */
export type BoardPositions = {
  owner: string;
  positions: Array<Position | NoPosition>;
};

/** The distribution of a column's values: buckets in ascending order, which together contain all values. */
export type Buckets = {
  buckets: Array<Bucket>;
};

/**
 * The number of entries with a value from `from` up to, but not including, `to`. The last bucket includes its
 * `to`. `low`, `high` and `exact` are present if `entries` was estimated from the curve. The true number at the
 * curve's time `as_of` was from `low` to `high`. `exact` is true if both are equal and nothing has changed since
 * `as_of`.
 */
export type Bucket = {
  /** fixed point, with the column's scale */
  from: number;
  /** fixed point, with the column's scale */
  to: number;
  entries: number;
  low?: number;
  high?: number;
  exact?: boolean;
};

/** A claimed grant. `first` is true only in the answer to the request that claimed it. */
export type ClaimedGrant = {
  owner: string;
  reward: string;
  rank: number;
  data: Record<string, unknown>;
  id: string;
  board: string;
  claimed_at: string | null;
  first: boolean;
};

/**
 * A cohort of a period, with all of its owners, best first. `seats` is their number. `settled` is true once the
 * period is over and everybody in the cohort has moved.
 */
export type CohortAnswer = {
  league: string;
  period: string;
  board: string;
  /** ISO 8601 in UTC, with microseconds */
  ends_at: string;
  division: string;
  cohort: string;
  seats: number;
  entries: Array<LeagueEntry>;
  settled: boolean;
};

/** An owner in a cohort. `rank`, which is exact, and `value` are null if the owner has no value in the column. */
export type LeagueEntry = {
  rank: number | null;
  owner: string;
  value: number | null;
  zone: "promotion" | "relegation" | "safe";
  /** ISO 8601 in UTC, with microseconds */
  updated_at: string;
  stats: Record<string, number | string | null>;
  profile?: Record<string, unknown> | null;
};

/** The data of an event `cohort`: a cohort of the current period as it is now, without profiles. */
export type CohortEvent = {
  league: string;
  period: string;
  board: string;
  /** ISO 8601 in UTC, with microseconds */
  ends_at: string;
  division: string;
  cohort: string;
  seats: number;
  entries: Array<LeagueEntry>;
};

/** An API key that was just created. `key` is the text to send in requests. It is never shown again. */
export type CreatedKey = {
  id: string;
  name: string;
  role: "ops" | "reader" | "writer";
  /** ISO 8601 in UTC, with microseconds */
  created_at: string;
  revoked_at: string | null;
  key: string;
};

/**
 * A curve with everything that a client needs to rank offline. docs/curve.md has the formula. Between two
 * neighbouring knots, the rank follows a straight line, or a cubic Bézier curve if there are `shapes`: two inner
 * control values for each pair of neighbouring knots, in units of 1/65536 of the difference between their ranks.
 * For each pair, `errors` says how many ranks an estimate between the knots can be off; null if not measured. The
 * formula turns each value into a whole number, the key of the value. Lattice points are the key of the first
 * knot plus multiples of `step`. Each line or cubic begins at the first lattice point after a knot and ends at
 * the next knot. If `snaps` is true, the key of every stored value is a lattice point. A leaderboard with several
 * segments has `segments`, and then `knots` is empty. To get a rank, sum the segments' counts of better entries;
 * bounds add up the same way. `certificate` is about this sum. `tiers` is present if the column has tiers.
 */
export type CurveAnswer = {
  column: string;
  best: "high" | "low";
  scale: number;
  ties: "earliest" | "shared" | Array<string>;
  tie_columns?: Array<TieColumnAnswer>;
  tiers?: Array<TierBody>;
  segments?: Array<CurveSegment>;
  method: "scan" | "skip";
  total: number;
  /** ISO 8601 in UTC, with microseconds */
  as_of: string;
  certificate: number | null;
  step: number;
  snaps: boolean;
  knots: Array<KnotAnswer>;
  errors: Array<number> | null;
  shapes: Array<Array<number>> | null;
  outside: OutsideAnswer | null;
};

/** A column that orders entries with equal values in the curve's column. */
export type TieColumnAnswer = {
  column: string;
  best: "high" | "low";
  scale: number;
  /** fixed point, with the column's scale */
  min: number;
  /** fixed point, with the column's scale */
  max: number;
};

/** The curve of one segment, which is a part of a leaderboard, at the time `as_of`. See `CurveAnswer`. */
export type CurveSegment = {
  method: "scan" | "skip";
  total: number;
  /** ISO 8601 in UTC, with microseconds */
  as_of: string;
  certificate: number | null;
  step: number;
  snaps: boolean;
  knots: Array<KnotAnswer>;
  errors: Array<number> | null;
  shapes: Array<Array<number>> | null;
  outside: OutsideAnswer | null;
};

/**
 * A value of the column, its exact rank, and the number of entries with this value (`ties`). If the earlier of
 * two equal values ranks better, a knot also has `reached_at`: when an owner reached the value. If other columns
 * order equal values, it has their values: `tie_values`, in the order of the curve's `tie_columns`.
 */
export type KnotAnswer = {
  /** fixed point, with the column's scale */
  value: number;
  /** ISO 8601 in UTC, with microseconds */
  reached_at?: string;
  tie_values?: Array<number | null>;
  rank: number;
  ties: number;
};

/**
 * The limits of values beyond the best and the worst knot of a curve, which entries got after the fit. No value
 * is better than `best`, which is null if none is better than the best knot. `worst` is the same for values worse
 * than the worst knot. `errors` has two numbers: how many ranks estimates can be off beyond these two knots; null
 * if not measured.
 */
export type OutsideAnswer = {
  best: EndAnswer | null;
  worst: EndAnswer | null;
  errors: Array<number> | null;
};

/** The limit of the values beyond the best or the worst knot of a curve. `OutsideAnswer` explains these limits. */
export type EndAnswer = {
  /** fixed point, with the column's scale */
  value: number;
  /** ISO 8601 in UTC, with microseconds */
  reached_at?: string;
  tie_values?: Array<number | null>;
};

/** The divisions of a league in its current period, the best one last. */
export type DivisionList = {
  league: string;
  period: string;
  /** ISO 8601 in UTC, with microseconds */
  ends_at: string;
  divisions: Array<DivisionAnswer>;
};

/** A division in the current period: how many owners have seats in it, and in how many cohorts. */
export type DivisionAnswer = {
  name: string;
  owners: number;
  cohorts: number;
};

/**
 * One owner's stats on a leaderboard. `hidden` is true if the owner is hidden, and absent otherwise. It is
 * `"shadow"` if the owner is shadowed, but only for callers with the role `ops`. An owner who has joined and has
 * no value yet has null in every column.
 */
export type EntryAnswer = {
  owner: string;
  /** ISO 8601 in UTC, with microseconds */
  updated_at: string;
  stats: Record<string, number | string | null>;
  hidden?: boolean | "shadow";
  profile?: Record<string, unknown> | null;
};

/**
 * The entries to erase: those of `owners`, or those of a ranking from a row on, or those worse than a value. It
 * has exactly one of `owners`, `from_rank` and `worse_than`.
 */
export type EraseEntries = {
  owners?: Array<string>;
  /** The ranked column of `from_rank` or `worse_than`. Default: the only ranked column. */
  column?: string;
  /** The number of the first row to erase, as for a page: it may be inside a tie. */
  from_rank?: number;
  /** Entries with this value stay. */
  worse_than?: number | string;
  reason?: string | null;
};

/** The number of erased entries. `more` is true if the same request would erase more: send it again. */
export type ErasedEntries = {
  erased: number;
  more: boolean;
};

/**
 * An event. `seq` grows by one with each event of the store. Only `grant.claimed` has `grant`, the id of the
 * grant, and `owner`, who is null after an erasure.
 */
export type EventLine = {
  seq: number;
  /** ISO 8601 in UTC, with microseconds */
  at: string;
  type: "board.archived" | "board.closed" | "board.created" | "grant.claimed" | "grants.made" | "league.closed" | "top.changed";
  board: string;
  grant?: string;
  owner?: string | null;
};

/**
 * A line of the export of everything stored about one person. `kind` says what it is about: the state of a hidden
 * or shadowed owner, boards that it joined, held posts, what it gained within an hour, the profile, acts, ids
 * that were merged into it, changes that wait for a partition, when tokens were voided, grants, posts that wait
 * in the queue, entries on boards and in archives, and lines of the journal. `data` has what is stored. The first
 * line is of the kind `export`, the last one of the kind `end`; an export without it is incomplete.
 */
export type ExportLine = {
  kind: "acts" | "archived_entries" | "changes" | "end" | "entrants" | "entries" | "export" | "gains" | "grants" | "held_posts" | "hidden_owners" | "merged_entries" | "merged_owners" | "owner_changes" | "profiles" | "queued_posts" | "seats" | "standings" | "token_voids";
  data: Record<string, unknown>;
};

/** The values of a facet in the posts of one period. `next` is the next page's cursor; null on the last page. */
export type FacetList = {
  facet: string;
  period: PeriodAnswer;
  values: Array<FacetValue>;
  next: string | null;
};

/**
 * A period of a family, such as a day. If `closed` is true, it accepts no more posts, not even late ones. For the
 * all-time period, `starts_at`, `ends_at` and `closed` are null.
 */
export type PeriodAnswer = {
  name: string;
  starts_at: string | null;
  ends_at: string | null;
  closed: boolean | null;
};

/** A value of a facet, the id of its leaderboard, and how many owners have an entry on this leaderboard. */
export type FacetValue = {
  value: string;
  board: string;
  entries: number;
};

/**
 * A post to a family. It reaches leaderboards of every period that contains the time of the post. In each of
 * these periods, it reaches the leaderboard for everybody, if the family has one, and those for the post's facet
 * values.
 */
export type FacetedPostBody = {
  /**
   * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  owner: string;
  stats?: Record<string, number | string>;
  /** Values that overwrite instead of merging, and null for a value to clear; needs the role `ops`. */
  set?: Record<string, number | string | null>;
  post_id?: string | null;
  at?: string | null;
  reason?: string | null;
  /** True: hold the post until an operator accepts or refuses it. Default: false. */
  hold?: boolean;
  /**
   * The number of a post with a player token: 0 to the `posts` of the token, less 1. Default: 0. It takes the place
   * of `post_id`, so a repeated post has the same number.
   */
  n?: number;
  /** The value of each facet. If a facet has no value here, the boards of the lists with this facet are skipped. */
  facets?: Record<string, string>;
};

/** Many posts to a family. The answer has their results in the same order. */
export type FacetedPostList = {
  posts: Array<FacetedPostBody>;
};

/**
 * A family with its full specification. `boards` is the number of its leaderboards that have received posts.
 * `partition` is present if the store has several partitions, `rewards` and `each` if there are rewards, and
 * `league` if the family is a league.
 */
export type FamilyAnswer = {
  id: string;
  columns: Array<ColumnAnswer>;
  ties: "earliest" | "shared" | Array<string>;
  table: "own" | "shared";
  partition?: number;
  predictor: PredictorSpec;
  entry?: EntryBody;
  /** ISO 8601 in UTC, with microseconds */
  created_at: string;
  periods: Array<string | PeriodBody>;
  time_zone: string;
  facets: Array<Array<string>>;
  grace_seconds: number;
  keep: Record<string, number>;
  rewards?: Record<string, Array<RewardBody>>;
  each?: "all" | "first";
  boards: number;
  league?: boolean;
};

/**
 * Periods other than those of the calendar, of one length or between bounds. Their ids end in 1, 2, 3 and so on.
 * Times are in ISO 8601 without a zone, because they are in the family's zone.
 */
export type PeriodBody = {
  /** The ids of leaderboards have it: `arena:season-3`. `this-season` and `last-season` are aliases. */
  name: string;
  /** The start of the first period: `2027-01-04T05:00:00`. */
  starts_at?: string;
  /** The length of a period in months, weeks, days or hours: `P1M`, `P6W`, `P1D`, `PT12H`. */
  every?: string;
  /** Instead: when each period starts and the one before it ends. You can append bounds later. */
  bounds?: Array<string>;
};

/**
 * A family's leaderboard for one period and some facet values. `previous` is the id of the leaderboard of the
 * previous period; null for the all-time period. If `archived` is true, requests are answered from the
 * leaderboard's archive, or with 410 if the archive does not have the answer.
 */
export type FamilyBoardAnswer = {
  board: string;
  period: PeriodAnswer;
  previous: string | null;
  archived: boolean;
};

/** A page of families in the order of their ids. `next` is the cursor of the next page; null on the last page. */
export type FamilyList = {
  families: Array<FamilyAnswer>;
  next: string | null;
};

/** The period whose leaderboards were emptied. `boards` is how many of these existed. */
export type FamilyReset = {
  family: string;
  period: PeriodAnswer;
  boards: number;
};

/** A post to all or none of the leaderboards that it names, apart from those that are closed or not open yet. */
export type FanPostBody = {
  /**
   * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  owner: string;
  stats?: Record<string, number | string>;
  /** Values that overwrite instead of merging, and null for a value to clear; needs the role `ops`. */
  set?: Record<string, number | string | null>;
  post_id?: string | null;
  at?: string | null;
  reason?: string | null;
  /** True: hold the post until an operator accepts or refuses it. Default: false. */
  hold?: boolean;
  /**
   * The number of a post with a player token: 0 to the `posts` of the token, less 1. Default: 0. It takes the place
   * of `post_id`, so a repeated post has the same number.
   */
  n?: number;
  boards: Array<string>;
};

/** Many posts that name their leaderboards. The answer has their results in the same order. */
export type FanPostList = {
  posts: Array<FanPostBody>;
};

/** The answer of a healthy service: `status` is `ok`. */
export type Health = {
  status: string;
};

/** A page of the held posts of a leaderboard, oldest first. `next` is null on the last page. */
export type HeldPosts = {
  board: string;
  posts: Array<HeldPostAnswer>;
  next: string | null;
};

/**
 * A post that waits for a verdict. `at` is its time, and `reason` says why it is held. An empty `set` is left
 * out.
 */
export type HeldPostAnswer = {
  post_id: string;
  owner: string;
  /** ISO 8601 in UTC, with microseconds */
  held_at: string;
  /** ISO 8601 in UTC, with microseconds */
  at: string;
  stats: Record<string, number | string | null>;
  set?: Record<string, number | string | null>;
  reason: string;
};

/** A page of hidden owners, by name. `next` is null on the last page. */
export type HiddenList = {
  owners: Array<HiddenOwner>;
  next: string | null;
};

/**
 * An owner who has been hidden since the time `since`. `key` is as in an act. If `shadow` is true, the owner does
 * not notice, because answers about the owner continue as if it were ranked.
 */
export type HiddenOwner = {
  owner: string;
  /** ISO 8601 in UTC, with microseconds */
  since: string;
  key: string | null;
  reason: string | null;
  shadow: boolean;
};

/** Hides an owner, openly or as a shadow. The reason is stored with the act. */
export type HideOwner = {
  /** Answers about the owner continue as if the owner were ranked, so that the owner does not notice. */
  shadow?: boolean;
  reason?: string | null;
};

/**
 * An owner's final positions in closed periods, newest first. Periods without posts are left out. `next` is the
 * cursor of the next page, which has older periods; null on the last page. If posts are rare, a page can have
 * fewer periods than the limit.
 */
export type HistoryAnswer = {
  owner: string;
  column: string;
  history: Array<PastPosition>;
  next: string | null;
};

/**
 * A closed period, the id of its leaderboard, and the owner's final position on this leaderboard. The position is
 * null if the owner had no value in the column.
 */
export type PastPosition = {
  board: string;
  period: PeriodAnswer;
  position: Position | null;
};

/**
 * A rank with its bracket: at the time `as_of`, the true rank is between `low` and `high`. `exact` is true if
 * `low` and `high` are equal. `next` and `previous` are present if the request asks for them; `next` is null if
 * nobody is better, and `previous` if there is no previous period. `tier` is present if the column has tiers: the
 * tier of `rank`, null if no tier fits. `tier_certain` is present, and false, if the ranks from `low` to `high`
 * span several tiers. Only positions on many leaderboards have `board`, the id of the leaderboard. An owner's
 * position has `reached_at` if the earlier of two equal values ranks better: when the owner reached the value.
 * Only results of posts with `moved=true` have `rank_before`: the rank that the owner's previous value would have
 * now. It is null if there was none.
 */
export type Position = {
  column: string;
  /** fixed point, with the column's scale */
  value: number;
  rank: number;
  low: number;
  high: number;
  exact: boolean;
  method: "count" | "curve" | "gap" | "knot";
  total: number;
  percentile: number;
  /** ISO 8601 in UTC, with microseconds */
  as_of: string;
  tier?: string | null;
  tier_certain?: boolean;
  /** ISO 8601 in UTC, with microseconds */
  reached_at?: string;
  rank_before?: number | null;
  next?: NextPlace | null;
  previous?: Previous | null;
  board?: string;
};

/**
 * The next better entry: its rank (from `low` to `high`), its value, and the `points` that the owner still needs.
 * `points` is the difference between the two values. If time or other columns order equal values, an equal value
 * may not be enough, so `points` is one unit of the last digit more; it is null if the owner would then need a
 * value outside the column's range. The owner's own position may have another `as_of`.
 */
export type NextPlace = {
  rank: number;
  low: number;
  high: number;
  exact: boolean;
  /** ISO 8601 in UTC, with microseconds */
  as_of: string;
  /** fixed point, with the column's scale */
  value: number;
  points: number | null;
};

/**
 * A comparison with the previous period. `board` is the id of the leaderboard of that period. `position` is the
 * owner's position in that period, or null. `value_position` is the position that a new entry with the owner's
 * current value would have had there; null if the owner has no value now. The owner's own entry of that period is
 * counted, too. If time or other columns order equal values, these precede the new entry.
 */
export type Previous = {
  board: string;
  position: Position | null;
  value_position: Position | null;
};

/** The owner who is to have a player token, and what it allows. */
export type IssueToken = {
  /**
   * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  owner: string;
  /** The leaderboards to which the token may post, and which it may join. */
  boards?: Array<string>;
  /** The families to which the token may post, and whose leaderboards it may join. */
  families?: Array<string>;
  /** The largest number of posts to each of the leaderboards and families. */
  posts?: number;
  /** The time in seconds after which the token is no longer valid. */
  expires_in?: number;
  /**
   * The best value that one post may bring, by column: the greatest, or if low values are the better ones, the
   * least. In a column that merges by `sum`, a post may not take more than this away either.
   */
  limits?: Record<string, number | string>;
};

/** A player token that was just issued. `id` is its claim `jti`. */
export type IssuedToken = {
  token: string;
  id: string;
  /** ISO 8601 in UTC, with microseconds */
  expires_at: string;
};

/** An owner who has joined a leaderboard with entry rules. */
export type JoinAnswer = {
  board: string;
  owner: string;
  joined_at: string | null;
  /** The number of the owner's posts that were accepted since the leaderboard has rules. */
  posts: number;
  posts_left: number | null;
};

/** The owner who joins. */
export type JoinBoard = {
  /**
   * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  owner: string;
};

/** The result of one Jolokia request: its value, or an error with a status code like those of HTTP. */
export type JolokiaAnswer = {
  status: number;
  timestamp: number;
  request?: unknown;
  value?: unknown;
  error?: string | null;
  error_type?: string | null;
};

/**
 * A line of the journal: a post, or a change of an owner or of a leaderboard. `stored` has the values of the
 * owner's entry after the post was applied. A line of the kind `void` says that the post `post_id` was taken
 * back; it has no `stored` if the owner has no entry without the post. When an owner's entry is merged into
 * another one's, each owner has a line of the kind `merge`: the first one's names the other in `into`, and the
 * other one's has `stored`. If a queued post was rejected when a worker took it from the queue, `error` says why.
 * If the owner was erased later, `owner` is null and the fields after `accepted_at` are missing. If the
 * leaderboard was deleted long ago, `board` is null. `seq` is the sequence number of the line, or an opaque
 * cursor if the store has several partitions.
 */
export type JournalLine = {
  seq: number | string;
  kind: "delete" | "erase" | "erased" | "hide" | "merge" | "move" | "post" | "reset" | "show" | "void";
  board: string | null;
  owner: string | null;
  /** ISO 8601 in UTC, with microseconds */
  accepted_at: string;
  status?: "applied" | "duplicate" | "held" | "rejected" | "unchanged";
  stats?: Record<string, number | string | null>;
  set?: Record<string, number | string | null>;
  post_id?: string;
  /** ISO 8601 in UTC, with microseconds */
  at?: string;
  stored?: Record<string, number | string | null>;
  into?: string;
  error?: ProblemDocument;
};

/** The body of every 4xx and 5xx answer, and the `error` of a rejected post (RFC 9457). */
export type ProblemDocument = {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  errors?: Array<FieldError>;
  /** The owner who has the entries, if the problem is that the owner of the request was merged. */
  into?: string;
};

/** One fault of a request. `pointer` says where: a JSON pointer into the body, or the name of a parameter. */
export type FieldError = {
  pointer: string;
  detail: string;
};

/** The verdict on a held post. */
export type JudgePost = {
  verdict: "accept" | "refuse";
  reason?: string | null;
};

/** A page of API keys, revoked keys included, in the order of their creation. `next` is null on the last page. */
export type KeyList = {
  keys: Array<KeyAnswer>;
  next: string | null;
};

/** An API key without its text. `revoked_at` is null while the key is valid. */
export type KeyAnswer = {
  id: string;
  name: string;
  role: "ops" | "reader" | "writer";
  /** ISO 8601 in UTC, with microseconds */
  created_at: string;
  revoked_at: string | null;
};

/** A league with its full specification. `partition` is present if the store has several partitions. */
export type LeagueAnswer = {
  id: string;
  columns: Array<ColumnAnswer>;
  column: string;
  ties: "earliest" | "shared" | Array<string>;
  period: string | PeriodBody;
  time_zone: string;
  cohort: number;
  divisions: Array<DivisionBody>;
  rewards: Array<LeagueRewardBody>;
  absent: "leave" | "relegate" | "stay";
  grace_seconds: number;
  keep: number;
  partition?: number;
  predictor: PredictorSpec;
  /** ISO 8601 in UTC, with microseconds */
  created_at: string;
};

/** A division of a league, and how many owners of each of its cohorts move when a period ends. */
export type DivisionBody = {
  name: string;
  /** The number of the best owners, who rise to the next division. Nobody rises from the last one. */
  promote?: number;
  /** The number of the last owners, who fall to the division before. Nobody falls from the first one. */
  relegate?: number;
};

/** A reward of the best of a cohort. An owner gets the first one that fits. */
export type LeagueRewardBody = {
  /** No other reward of the league has the same name. */
  name: string;
  division?: string | null;
  /** The worst final rank in a cohort that gets it. */
  to_rank: number;
  /** A JSON object of at most 1,000 bytes. Every grant carries it. Default: `{}`. */
  data?: Record<string, unknown>;
};

/** The results of an owner, the newest first. `next` is the cursor of the next page; null on the last page. */
export type LeagueHistory = {
  owner: string;
  history: Array<LeaguePast>;
  next: string | null;
};

/** The result of an owner in a closed period. `rank` is null if the owner had no value, or was hidden. */
export type LeaguePast = {
  period: string;
  board: string;
  /** ISO 8601 in UTC, with microseconds */
  ends_at: string;
  division: string;
  cohort: string;
  seats: number;
  rank: number | null;
  outcome: "promoted" | "relegated" | "stayed";
};

/** A page of leagues in the order of their ids. `next` is the cursor of the next page; null on the last page. */
export type LeagueList = {
  leagues: Array<LeagueAnswer>;
  next: string | null;
};

/**
 * An owner in the current period of a league, with all owners of its cohort, best first. Before its first post in
 * the period, an owner has a division and no seat: `cohort` is null. After that post, an owner whose previous
 * result is not known yet waits for a seat: `waiting` is true, and `division` is null; its posts count all the
 * same. `position` and `zone` are null without a value, without a seat, and if the owner is hidden.
 */
export type LeagueOwner = {
  league: string;
  owner: string;
  period: string;
  board: string;
  /** ISO 8601 in UTC, with microseconds */
  ends_at: string;
  division: string | null;
  cohort: string | null;
  seats: number;
  position: number | null;
  zone: "promotion" | "relegation" | "safe" | null;
  waiting: boolean;
  entries: Array<LeagueEntry>;
};

/** A post to a league. The first one of a period takes a seat in a cohort. */
export type LeaguePostBody = {
  /**
   * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  owner: string;
  stats?: Record<string, number | string>;
  /** Values that overwrite instead of merging, and null for a value to clear; needs the role `ops`. */
  set?: Record<string, number | string | null>;
  post_id?: string | null;
  at?: string | null;
  reason?: string | null;
  /** True: hold the post until an operator accepts or refuses it. Default: false. */
  hold?: boolean;
  /**
   * The number of a post with a player token: 0 to the `posts` of the token, less 1. Default: 0. It takes the place
   * of `post_id`, so a repeated post has the same number.
   */
  n?: number;
  /** The value of each facet. If a facet has no value here, the boards of the lists with this facet are skipped. */
  facets?: Record<string, string>;
  division?: string | null;
};

/** Many posts to a league. The answer has their results in the same order. */
export type LeaguePostList = {
  posts: Array<LeaguePostBody>;
};

/** A key's lease of a resource. `version` is a fencing number: later holders of the resource have greater ones. */
export type LeaseAnswer = {
  resource: string;
  key: string;
  /** ISO 8601 in UTC, with microseconds */
  lease_expires: string;
  /** Seconds that were left when the store read the lease. */
  expires_in: number;
  version: number;
  /** True if this request took the resource; false if the key had it already. */
  acquired: boolean;
  region: string;
};

/** A line of the lease journal: one event of one resource, for example that a key acquired the resource. */
export type LeaseEventLine = {
  seq: number;
  /** ISO 8601 in UTC, with microseconds */
  at: string;
  kind: string;
  client_id: string;
  pool_id: string;
  resource: string;
  key: string | null;
  region: string;
  version: number;
  lease_expires: string | null;
};

/** The owners whose entries you want. If you send `column`, the answer also has their positions in this column. */
export type Lookup = {
  owners: Array<string>;
  column?: string | null;
};

/** The entries of the requested owners, in the order of the request. `missing` names owners without an entry. */
export type LookupAnswer = {
  entries: Array<LookupEntry>;
  missing: Array<string>;
};

/**
 * An entry that a lookup found. If the lookup names a column, the entry also has `position`, the owner's position
 * in that column, and `place`, its rank among the requested owners. Both are null if the owner has no value in
 * the column. If the earlier of two equal values ranks better, `reached_at` is when the owner reached the value.
 */
export type LookupEntry = {
  owner: string;
  /** ISO 8601 in UTC, with microseconds */
  updated_at: string;
  stats: Record<string, number | string | null>;
  hidden?: boolean | "shadow";
  profile?: Record<string, unknown> | null;
  position?: Position | null;
  place?: number | null;
  /** ISO 8601 in UTC, with microseconds */
  reached_at?: string;
};

/** The leaderboards on which you want the owner's position in `column`, or in the only ranked column of each. */
export type ManyBoards = {
  /**
   * In the id of a family's board, `today`, `yesterday`, `this-week`, `last-week`, `this-month`, `last-month`,
   * `this-year`, `last-year` may replace the period (`arena:this-week:clan=fox`). The time of the request and the
   * family's time zone decide which period that is. Answers name the real board.
   */
  boards: Array<string>;
  column?: string | null;
};

/** The owner who gets the entries, and what they are made of. */
export type MergeOwner = {
  /**
   * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  into: string;
  /**
   * `journal`: the posts of both owners, in the order of the journal. `entries`: the stored values of both, each
   * combined by the rule of its column: sums add, the better value of `max` and `min` stays, and of `last` the
   * newer.
   */
  from?: "entries" | "journal";
  reason?: string | null;
};

/** The result of merging an owner into another one. Repeating the request gives the same result. */
export type MergedOwner = {
  owner: string;
  into: string;
  boards: Array<MergedBoard>;
};

/**
 * One leaderboard on which the merged owner had an entry, with either `status` or `error`. `stats` has the merged
 * values. If there is an `error`, the entry still has the earlier id.
 */
export type MergedBoard = {
  board: string;
  status?: "merged";
  stats?: Record<string, number | string | null>;
  error?: ProblemDocument;
};

/** A column in which the owner has no value or is hidden: `value` and `rank` are null. */
export type NoPosition = {
  column: string;
  value?: null;
  rank?: null;
  rank_before?: number | null;
  previous?: Previous | null;
  board?: string;
};

/**
 * The leaderboards on which an owner has an entry, by id. `next` is the next page's cursor; null on the last
 * page. Each request looks at a bounded number of leaderboards, so a page can be short or empty and still have a
 * `next`. `partitions_away` lists the partitions that do not answer. Their leaderboards are missing.
 */
export type OwnerBoards = {
  owner: string;
  boards: Array<OwnerBoard>;
  next: string | null;
  partitions_away?: Array<number>;
};

/** A leaderboard on which an owner has an entry, and the entry. */
export type OwnerBoard = {
  board: string;
  /** ISO 8601 in UTC, with microseconds */
  updated_at: string;
  stats: Record<string, number | string | null>;
};

/**
 * The number of leaderboards, archived ones included, with an entry of the owner. If it is 0, check the name.
 * `partitions_away` lists the partitions that do not answer. The owner's entries there are changed once they are
 * back.
 */
export type OwnerEntries = {
  entries: number;
  partitions_away?: Array<number>;
};

/**
 * The data of an event `position` of a stream: the owner's current value and rank. `value`, `rank` and
 * `percentile` are null if the owner is no longer ranked. `previous_rank` is the rank in the previous event.
 * `overtaken_by` names up to ten owners who have overtaken this owner since the previous event. `tier` is present
 * if the column has tiers: the owner's current tier, null if no tier fits. `reached_at` is present if the earlier
 * of two equal values ranks better, and the owner has a value: when the owner reached it.
 */
export type OwnerEvent = {
  owner: string;
  column: string;
  value: number | null;
  rank: number | null;
  total: number;
  percentile: number | null;
  previous_rank: number | null;
  overtaken_by: Array<string>;
  tier?: string | null;
  /** ISO 8601 in UTC, with microseconds */
  reached_at?: string;
};

/** A page of an owner's grants, newest leaderboard first. `next` is null on the last page. */
export type OwnerGrants = {
  owner: string;
  grants: Array<GrantAnswer>;
  next: string | null;
};

/** An owner's positions, in the order of the request. */
export type OwnerPositions = {
  owner: string;
  positions: Array<Position | NoPosition>;
};

/**
 * A page of an owner's posts, newest first, with a line for each post that was taken back. For the next page,
 * send `next` as the parameter `before`. `next` is null if no older posts are kept. `partitions_away` lists the
 * partitions that do not answer. Their posts are missing.
 */
export type OwnerPosts = {
  owner: string;
  posts: Array<JournalLine>;
  next: number | string | null;
  partitions_away?: Array<number>;
};

/**
 * Rows of a ranking, from the best to the worst, or in the order of owners if the request asks for `order=owner`.
 * Owners with equal ranks are ordered by the code points of their names. `next` is the cursor of the next page;
 * null on the last page. `prev` is the cursor of the page before; null on the first page and with `order=owner`.
 */
export type Page = {
  column: string;
  total: number;
  entries: Array<RankedEntry>;
  next: string | null;
  prev: string | null;
};

/**
 * A row of a ranking: an owner's entry and its rank. `exact` is false if the rank is an estimate. `tier` is
 * present if the column has tiers: the tier of `rank`, null if no tier fits. `reached_at` is present if the
 * earlier of two equal values ranks better: when the owner reached the value, whatever the order in which posts
 * came. `tier_rank` is present on pages of a tier: the rank among the rows of the tier.
 */
export type RankedEntry = {
  rank: number;
  exact: boolean;
  owner: string;
  /** fixed point, with the column's scale */
  value: number;
  /** ISO 8601 in UTC, with microseconds */
  updated_at: string;
  stats: Record<string, number | string | null>;
  tier?: string | null;
  /** ISO 8601 in UTC, with microseconds */
  reached_at?: string;
  profile?: Record<string, unknown> | null;
  tier_rank?: number;
};

/** A pool. Lists of pools leave out `regions` and `headroom_seconds`; the answer about a single pool has them. */
export type PoolAnswer = {
  client_id: string;
  pool_id: string;
  /** ISO 8601 in UTC, with microseconds */
  created_at: string;
  headroom_seconds?: number;
  regions?: Record<string, RegionAnswer>;
};

/** The numbers of resources in one region of a pool: all resources, leased resources and available resources. */
export type RegionAnswer = {
  total: number;
  /** Resources with a running lease. Those whose lease is over count as available. */
  leased: number;
  available: number;
  headroom: number | null;
};

/** A page of pools by client id and pool id. `next` is the next page's cursor; null on the last page. */
export type PoolList = {
  pools: Array<PoolAnswer>;
  next: string | null;
};

/** The positions of values, in the order of the request. */
export type Positions = {
  positions: Array<Position>;
};

/**
 * A post: one contribution of stats for one owner. `stats` and `set` together name at least one column. No column
 * may be in both.
 */
export type PostBody = {
  /**
   * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
   * surrogates.
   */
  owner: string;
  stats?: Record<string, number | string>;
  /** Values that overwrite instead of merging, and null for a value to clear; needs the role `ops`. */
  set?: Record<string, number | string | null>;
  post_id?: string | null;
  at?: string | null;
  reason?: string | null;
  /** True: hold the post until an operator accepts or refuses it. Default: false. */
  hold?: boolean;
  /**
   * The number of a post with a player token: 0 to the `posts` of the token, less 1. Default: 0. It takes the place
   * of `post_id`, so a repeated post has the same number.
   */
  n?: number;
};

/** An API key to create. `name` says whom the key is for, and `role` what callers may do with it. */
export type PostKey = {
  name: string;
  role: "ops" | "reader" | "writer";
  reason?: string | null;
};

/** Many posts. The answer has their results in the same order. */
export type PostList = {
  posts: Array<PostBody>;
};

/** The results of the posts of a request, in the order of the posts. */
export type PostResults = {
  results: Array<PostResult>;
};

/**
 * The result of a post. `stats` has the values of the owner's entry after the post. `positions` has the owner's
 * positions after the request, if the request asks for them and the post was applied. A post that is `held` has a
 * `post_id`, its own or one that the service made, and no `stats`. A post to a family, or one that names its
 * leaderboards, has `boards` instead: a result for each leaderboard. A rejected post was applied to none of them,
 * and its `error` says why; if it has `boards`, one of these has the same error.
 */
export type PostResult = {
  owner: string;
  status: "applied" | "duplicate" | "held" | "rejected" | "unchanged";
  post_id?: string;
  /** ISO 8601 in UTC, with microseconds */
  updated_at?: string;
  stats?: Record<string, number | string | null>;
  positions?: Array<Position | NoPosition>;
  boards?: Array<BoardResult>;
  error?: ProblemDocument;
};

/** The result of a post on one of its leaderboards. `positions` is present if the request asks for them. */
export type BoardResult = {
  board: string;
  status: "applied" | "duplicate" | "held" | "rejected" | "unchanged";
  /** ISO 8601 in UTC, with microseconds */
  updated_at?: string;
  stats?: Record<string, number | string | null>;
  positions?: Array<Position | NoPosition>;
  error?: ProblemDocument;
};

/**
 * The state of a post on a leaderboard. In a list, `owner` is null if the owner was erased, or if the journal was
 * pruned and no longer names the owner. `status` is `pending` while the post waits in the queue, `held` while it
 * waits for an operator's verdict, and `voided` once it was refused or taken back; otherwise it is that of a post
 * that was not queued. `updated_at` and `stats` describe the owner's entry after the post. `error` says why the
 * post was rejected.
 */
export type PostState = {
  post_id: string;
  owner: string | null;
  status: "applied" | "held" | "pending" | "rejected" | "unchanged" | "voided";
  /** ISO 8601 in UTC, with microseconds */
  updated_at?: string;
  stats?: Record<string, number | string | null>;
  error?: ProblemDocument;
};

/** A leaderboard's posts with the same post id, ordered by owner. `more` is true if some posts are left out. */
export type PostStates = {
  post_id: string;
  posts: Array<PostState>;
  more: boolean;
};

/** The profile of an owner: a JSON object, for example with a name and a picture. */
export type ProfileAnswer = {
  owner: string;
  /** The profile as it was stored; null if the owner has none. */
  profile: Record<string, unknown>;
};

/** The profile of an owner: a small JSON object with any fields, such as a name or an avatar. */
export type ProfileBody = Record<string, unknown>;

/**
 * The specification of a leaderboard. You can add `closes_at` later, but you can neither add nor remove
 * `opens_at`.
 */
export type PutBoard = {
  columns: Array<ColumnBody>;
  ties?: "earliest" | "shared" | Array<string>;
  table?: "own" | "shared";
  partition?: number | null;
  /** The number of parts over which its owners are spread, so that it can grow past one machine. */
  segments?: number;
  predictor?: PredictorBody;
  entry?: EntryBody | null;
  /** The rewards that are granted to an owner, of those that fit: the first one, or all. */
  each?: "all" | "first";
  reason?: string | null;
  opens_at?: string | null;
  closes_at?: string | null;
  /** The time after `closes_at` during which earlier posts still count. */
  grace_seconds?: number;
  keep_seconds?: number | null;
  /** The prizes for owners when the leaderboard closes. They need `closes_at`, and can change until then. */
  rewards?: Array<RewardBody>;
};

/**
 * A column of a leaderboard. `min` and `max` default to -1e15 and 1e15. If the column has too many decimal digits
 * (`scale`) for these numbers to fit into 64 bits, the defaults are the widest range that fits.
 */
export type ColumnBody = {
  name: string;
  /** True if entries are ranked by the column. Default: true for numbers, unless `merge` is `with`; false for text. */
  sorted?: boolean;
  merge: "last" | "max" | "min" | "quotient" | "sum" | "with";
  /** The values that rank first. Default: `low` if `merge` is `min`, otherwise `high`. */
  best?: "high" | "low";
  scale?: number;
  /** A fixed-point decimal with the column's scale, as a JSON number or a string. */
  min?: number | string;
  /** A fixed-point decimal with the column's scale, as a JSON number or a string. */
  max?: number | string;
  type?: "number" | "text";
  /**
   * With `merge` `with`: the column that it follows. Its value comes from the post that last improved that column
   * (if that is merged by `max` or `min`) or changed it, and is null if this post did not name it. With `merge`
   * `quotient`: the column that is divided.
   */
  of?: string;
  /**
   * With `merge` `quotient`: the column that divides `of`. The quotient is computed with each post, from the entry
   * after it, and rounded half to even. It can be neither posted nor set. Both are other columns of numbers.
   */
  per?: string;
  /** With `merge` `quotient`: the least value of `per` with which there is a quotient. Default: 1. */
  from?: number;
  /** The tiers of a ranked column, best first: an entry has the first one that fits. They can change at any time. */
  tiers?: Array<TierBody>;
  /**
   * The least value that one post may bring to a column of numbers. This and the next three can change at any time.
   * They do not bind `set`.
   */
  post_min?: number | string;
  /** The greatest value that one post may bring. */
  post_max?: number | string;
  /**
   * With `merge` `sum`: the most that the posts of an owner add within an hour, by the times at which they are
   * applied.
   */
  gain_per_hour_max?: number | string;
  /**
   * `reject`, the default: a post beyond one of these limits is rejected, `post_limit`. `hold`: it waits for the
   * verdict of an operator.
   */
  on_breach?: "hold" | "reject";
};

/** The settings of a leaderboard's curves, and of the ranks counted by default. Every field has a default. */
export type PredictorBody = {
  samples?: number;
  exact_top?: number;
  refresh_seconds?: number;
  method?: "auto" | "scan" | "skip";
};

/** The specification of a family: its periods and facets, and the settings that all its leaderboards share. */
export type PutFamily = {
  columns: Array<ColumnBody>;
  ties?: "earliest" | "shared" | Array<string>;
  table?: "own" | "shared";
  partition?: number | null;
  /** The number of parts over which its owners are spread, so that it can grow past one machine. */
  segments?: number;
  predictor?: PredictorBody;
  entry?: EntryBody | null;
  /** The rewards that are granted to an owner, of those that fit: the first one, or all. */
  each?: "all" | "first";
  reason?: string | null;
  periods: Array<"all" | "day" | "month" | "week" | "year" | PeriodBody>;
  /** An IANA name: `Europe/Berlin`. */
  time_zone?: string;
  /** Lists of facets by which boards are split. The empty list makes the board for everybody. */
  facets?: Array<Array<string>>;
  /**
   * The time after the end of a period during which late posts still reach it. Default: 3600 for a new family; one
   * that exists keeps its own. It can only be shortened, and then periods close whose new end has passed.
   */
  grace_seconds?: number;
  /** The number of closed periods of each kind that keep their rows. All periods of a missing kind keep their rows. */
  keep?: Record<string, number>;
  /** The prizes for owners when a leaderboard of the family closes, by the kind of its period. */
  rewards?: Record<string, Array<RewardBody>>;
};

/** The specification of a league. It is a family with one kind of period; its leaderboards have cohorts. */
export type PutLeague = {
  columns: Array<ColumnBody>;
  /** The ranked column that decides who rises and who falls. */
  column: string;
  ties?: "earliest" | "shared" | Array<string>;
  period: "all" | "day" | "month" | "week" | "year" | PeriodBody;
  /** An IANA name: `Europe/Berlin`. */
  time_zone?: string;
  /** The number of seats of a cohort. */
  cohort: number;
  /** The divisions, the best one last. Their rules can change at any time, and better ones can be appended. */
  divisions: Array<DivisionBody>;
  /** The prizes when a period ends. They can change until then. */
  rewards?: Array<LeagueRewardBody>;
  /** The cost of a period without a post: `stay` costs nothing, `relegate` one division, `leave` all of them. */
  absent?: "leave" | "relegate" | "stay";
  /**
   * The time after the end of a period during which late posts still count. Default: 0 for a new league. Until it
   * has passed, owners of that period wait for their seats in the next one. It can only be shortened.
   */
  grace_seconds?: number;
  /** The number of closed periods that keep their rows and cohorts. */
  keep?: number;
  partition?: number | null;
  predictor?: PredictorBody;
  reason?: string | null;
};

/** A webhook: the address that receives events, and which ones. */
export type PutWebhook = {
  url: string;
  /** The types of events that are sent; empty: all. There is `top.changed` only where a webhook names it. */
  events?: Array<"board.archived" | "board.closed" | "board.created" | "grant.claimed" | "grants.made" | "league.closed" | "top.changed">;
  /** Ids of leaderboards, or beginnings of ids with `*` at the end, such as `arena:*`; empty: all leaderboards. */
  boards?: Array<string>;
  reason?: string | null;
};

/**
 * The ingest queue. `workers` run now, and at most `workers_max` may run. `capacity` is how many posts per second
 * the store can apply, and `speed` how many one worker can apply. The service calculates `workers_max` from both.
 * Both are null before the first calculation. `partitions_away` lists the partitions that do not answer. Their
 * posts and shards are missing.
 */
export type QueueAnswer = {
  posts: number;
  age_seconds: number;
  workers: number;
  workers_max: number;
  capacity: number | null;
  speed: number | null;
  shards: Array<ShardAnswer>;
  partitions_away?: Array<number>;
};

/**
 * A shard, which is a part of the ingest queue, and the `worker` that applies its posts. `posts` is the number of
 * waiting posts, `age_seconds` the age of the oldest of them, and `applied` the number of posts that were ever
 * applied or rejected. Each partition has its own shards, numbered from 0. If `partition` is null, the shard is
 * for posts to leaderboards in several partitions.
 */
export type ShardAnswer = {
  partition: number | null;
  shard: number;
  posts: number;
  age_seconds: number;
  applied: number;
  worker: string | null;
};

/**
 * The answer of a service that can serve requests: `status` is `ok`. `partitions_away` has the numbers of the
 * partitions that do not answer; requests to their boards fail.
 */
export type Readiness = {
  status: string;
  partitions_away?: Array<number>;
};

/** The result of a refresh: facts about the new curve. `seconds` is how long the refresh took. */
export type RefreshAnswer = {
  method: "scan" | "skip";
  total: number;
  /** ISO 8601 in UTC, with microseconds */
  as_of: string;
  certificate: number | null;
  column: string;
  seconds: number;
};

/** Resources to remove from a pool. */
export type RemoveResources = {
  resources: Array<string>;
  reason?: string | null;
};

/**
 * Counts the resources of a request that were removed, that stay because they are leased, and that are unknown. A
 * leased resource can be removed once its key has returned it, or once its lease has ended and the service has
 * liberated it.
 */
export type RemovedResources = {
  removed: number;
  leased: number;
  unknown: number;
};

/**
 * The data of an event `reset`, which has no members. The event says that the stream can't continue after the
 * last event that the client has seen, which is too old.
 */
export type ResetEvent = Record<string, unknown>;

/** The kind of period whose current leaderboards are emptied. */
export type ResetFamily = {
  period: string;
  reason?: string | null;
};

/** A page of resources by name. `next` is the cursor of the next page; null on the last page. */
export type ResourceList = {
  resources: Array<ResourceAnswer>;
  next: string | null;
};

/** A resource of a pool, with the key that leases it. `key` and `lease_expires` are null if the resource is free. */
export type ResourceAnswer = {
  resource: string;
  region: string;
  version: number;
  key: string | null;
  lease_expires: string | null;
};

/**
 * A page of the grants that would be made now, by reward and rank. `next` is null on the last page. A page can be
 * short or empty and still have a `next`, because owners who get only one reward are left out of others.
 */
export type RewardPreview = {
  board: string;
  grants: Array<ExpectedGrant>;
  next: string | null;
};

/** A reward that an owner would get if the leaderboard closed now. `data` comes from the reward. */
export type ExpectedGrant = {
  owner: string;
  reward: string;
  rank: number;
  data: Record<string, unknown>;
};

/** An event of a stream. */
export type StreamEvent = {
  event: "cohort" | "position" | "reset" | "top";
  id: string;
  data: string;
};

/** The data of an event `top` of a stream: the best rows of the ranking at the time of the event. */
export type TopEvent = {
  column: string;
  total: number;
  entries: Array<RankedEntry>;
};

/** The values at the requested ranks, followed by the values at the requested percentiles. */
export type Values = {
  values: Array<RankValue>;
};

/**
 * The worst value that still reaches this rank or this percentile. The true value lies between `low` and `high`.
 * If the value comes from the curve, it holds for the curve's time `as_of`, and `exact` is true only if the
 * leaderboard has not changed since then. On an empty leaderboard, `value`, `low` and `high` are null.
 */
export type RankValue = {
  value: number | null;
  low: number | null;
  high: number | null;
  exact: boolean;
  rank?: number;
  percentile?: number;
};

/** The result of taking back a post. Repeating the request gives the same result. */
export type VoidedPost = {
  post_id: string;
  owner: string;
  boards: Array<VoidedBoard>;
};

/**
 * One leaderboard of a post that was taken back, with either `status` or `error`. `stats` has the values of the
 * owner's entry without the post, or is null if no other post made the entry.
 */
export type VoidedBoard = {
  board: string;
  status?: "recomputed";
  stats?: Record<string, number | string | null> | null;
  error?: ProblemDocument;
};

/** A webhook, and how far its deliveries have come. */
export type WebhookAnswer = {
  id: string;
  url: string;
  events: Array<string>;
  boards: Array<string>;
  /** ISO 8601 in UTC, with microseconds */
  created_at: string;
  /** Paused: deliveries failed for three days. They continue after a request to resume them. */
  state: "active" | "failing" | "paused";
  /** The number of the last event that the receiver got, or that was not for it. */
  delivered: number;
  /** Failed attempts since the last delivery. */
  failures: number;
  failing_since: string | null;
  next_attempt: string | null;
  last_error: string | null;
  /** The secret that signs deliveries. Only the request that makes it shows it. */
  secret?: string;
};

/** A page of webhooks, by id. `next` is null on the last page. */
export type WebhookList = {
  webhooks: Array<WebhookAnswer>;
  next: string | null;
};

/** Values of facets, by the names of the facets. */
export type Facets = Record<string, string | number | undefined>;

/** By the name of an operation: what it takes, and what it answers with the status 200 or 201. */
export interface Operations {
  post: {
    query: {
      mode?: "direct" | "queued";
      /** Ranked columns. Each result, or each of its `boards`, then has the owner's positions after the request. */
      positions?: Array<string>;
      /** True: each position also has `rank_before`. */
      moved?: boolean;
    };
    body: PostBody | PostList | Array<PostBody>;
    answer: PostResults | Accepted;
  };
  post_to_boards: {
    query: {
      mode?: "direct" | "queued";
    };
    body: FanPostBody | FanPostList | Array<FanPostBody>;
    answer: PostResults | Accepted;
  };
  ask_lease: {
    query: {};
    body: AskLease;
    answer: LeaseAnswer;
  };
  lease: {
    query: {};
    body: never;
    answer: LeaseAnswer;
  };
  give_back_lease: {
    query: {};
    body: never;
    answer: never;
  };
  lease_journal: {
    query: {
      after?: number;
      limit?: number;
    };
    body: never;
    answer: never;
  };
  post_to_family: {
    query: {
      mode?: "direct" | "queued";
      /** Ranked columns. Each result, or each of its `boards`, then has the owner's positions after the request. */
      positions?: Array<string>;
      /** True: each position also has `rank_before`. */
      moved?: boolean;
    };
    body: FacetedPostBody | FacetedPostList | Array<FacetedPostBody>;
    answer: PostResults | Accepted;
  };
  void_family_post: {
    query: {
      /**
       * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
       * surrogates.
       */
      owner: string;
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: VoidedPost;
  };
  family_board: {
    query: {
      period: string;
      /** A time with a zone, kept to the microsecond, not before 1970. */
      at?: string;
    } & Facets;
    body: never;
    answer: FamilyBoardAnswer;
  };
  facet_values: {
    query: {
      period: string;
      /** A time with a zone, kept to the microsecond, not before 1970. */
      at?: string;
      facet: string;
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    } & Facets;
    body: never;
    answer: FacetList;
  };
  history: {
    query: {
      period: string;
      /** Default: the only ranked column. */
      column?: string;
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      rank?: "auto" | "estimate" | "exact";
    } & Facets;
    body: never;
    answer: HistoryAnswer;
  };
  create_family: {
    query: {};
    body: PutFamily;
    answer: FamilyAnswer;
  };
  family: {
    query: {};
    body: never;
    answer: FamilyAnswer;
  };
  delete_family: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  families: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: FamilyList;
  };
  reset_family: {
    query: {};
    body: ResetFamily;
    answer: FamilyReset;
  };
  post_to_league: {
    query: {
      mode?: "direct" | "queued";
      /** Ranked columns. Each result, or each of its `boards`, then has the owner's positions after the request. */
      positions?: Array<string>;
      /** True: each position also has `rank_before`. */
      moved?: boolean;
    };
    body: LeaguePostBody | LeaguePostList | Array<LeaguePostBody>;
    answer: PostResults | Accepted;
  };
  league_owner: {
    query: {};
    body: never;
    answer: LeagueOwner;
  };
  leave_league: {
    query: {};
    body: never;
    answer: never;
  };
  league_history: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: LeagueHistory;
  };
  cohort: {
    query: {
      /** The period as a result names it, such as `2026-W49`. Default: the current one. */
      period?: string;
    };
    body: never;
    answer: CohortAnswer;
  };
  stream_cohort: {
    query: {};
    body: never;
    answer: never;
  };
  divisions: {
    query: {};
    body: never;
    answer: DivisionList;
  };
  create_league: {
    query: {};
    body: PutLeague;
    answer: LeagueAnswer;
  };
  league: {
    query: {};
    body: never;
    answer: LeagueAnswer;
  };
  delete_league: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  leagues: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: LeagueList;
  };
  positions: {
    query: {
      columns?: Array<string>;
      rank?: "auto" | "estimate" | "exact";
      next?: boolean;
      compare?: "previous";
    };
    body: never;
    answer: OwnerPositions;
  };
  around: {
    query: {
      /** Default: the only ranked column. */
      column?: string;
      better?: number;
      worse?: number;
      /** True: if one side has fewer rows, because the ranking ends there, the other side has more. */
      fill?: boolean;
      profiles?: boolean;
    };
    body: never;
    answer: Page;
  };
  entry: {
    query: {
      profiles?: boolean;
    };
    body: never;
    answer: EntryAnswer;
  };
  erase_entry: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  page: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      from_rank?: number;
      profiles?: boolean;
      order?: "owner" | "rank";
      /** Only rows of this tier. */
      tier?: string;
    };
    body: never;
    answer: Page;
  };
  top: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      from_rank?: number;
      profiles?: boolean;
      order?: "owner" | "rank";
      /** Only rows of this tier. */
      tier?: string;
      column?: string;
    };
    body: never;
    answer: Page;
  };
  value_positions: {
    query: {
      values: Array<string>;
      rank?: "auto" | "estimate" | "exact";
      with?: Array<string>;
    };
    body: never;
    answer: Positions;
  };
  value_around: {
    query: {
      value: string;
      better?: number;
      worse?: number;
      /** True: if one side has fewer rows, because the ranking ends there, the other side has more. */
      fill?: boolean;
      profiles?: boolean;
    };
    body: never;
    answer: Page;
  };
  values: {
    query: {
      ranks?: Array<number>;
      percentiles?: Array<number>;
    };
    body: never;
    answer: Values;
  };
  curve: {
    query: {};
    body: never;
    answer: CurveAnswer;
  };
  buckets: {
    query: {
      buckets?: number;
      rank?: "estimate" | "exact";
    };
    body: never;
    answer: Buckets;
  };
  lookup: {
    query: {
      profiles?: boolean;
    };
    body: Lookup;
    answer: LookupAnswer;
  };
  positions_on_boards: {
    query: {};
    body: ManyBoards;
    answer: BoardPositions;
  };
  post_state: {
    query: {
      /**
       * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
       * surrogates.
       */
      owner?: string;
    };
    body: never;
    answer: PostState | PostStates;
  };
  void_post: {
    query: {
      /**
       * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
       * surrogates.
       */
      owner: string;
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: VoidedPost;
  };
  held_posts: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: HeldPosts;
  };
  judge_post: {
    query: {
      /**
       * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
       * surrogates.
       */
      owner: string;
    };
    body: JudgePost;
    answer: PostState;
  };
  queue: {
    query: {};
    body: never;
    answer: QueueAnswer;
  };
  boards: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      prefix?: string;
      /** A part of the ids, in upper or lower case. Every id is compared. */
      contains?: string;
      order?: "activity" | "id";
      /** True: the list has the leaderboards of families, too. */
      families?: boolean;
    };
    body: never;
    answer: BoardList;
  };
  create_board: {
    query: {};
    body: PutBoard;
    answer: BoardAnswer;
  };
  board: {
    query: {};
    body: never;
    answer: BoardAnswer;
  };
  delete_board: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  reset_board: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: BoardAnswer;
  };
  grants: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: BoardGrants;
  };
  preview_rewards: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: RewardPreview;
  };
  owner_grants: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      /** Only grants that are not claimed yet, or only those that are. Default: all. */
      state?: "claimed" | "open";
    };
    body: never;
    answer: OwnerGrants;
  };
  claim_grant: {
    query: {};
    body: never;
    answer: ClaimedGrant;
  };
  erase_entries: {
    query: {};
    body: EraseEntries;
    answer: ErasedEntries;
  };
  join: {
    query: {};
    body: JoinBoard;
    answer: JoinAnswer;
  };
  erase_owner: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: OwnerEntries;
  };
  hide_owner: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: HideOwner;
    answer: OwnerEntries;
  };
  show_owner: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: OwnerEntries;
  };
  export_owner: {
    query: {};
    body: never;
    answer: never;
  };
  hidden_owners: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      /** Only hidden owners are listed. */
      hidden: "true";
    };
    body: never;
    answer: HiddenList;
  };
  acts: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      /**
       * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
       * surrogates.
       */
      owner?: string;
      board?: string;
      /** The id of an API key. */
      key?: string;
    };
    body: never;
    answer: ActList;
  };
  merge_owner: {
    query: {};
    body: MergeOwner;
    answer: MergedOwner;
  };
  put_profile: {
    query: {};
    body: ProfileBody;
    answer: ProfileAnswer;
  };
  profile: {
    query: {};
    body: never;
    answer: ProfileAnswer;
  };
  remove_profile: {
    query: {};
    body: never;
    answer: never;
  };
  owner_boards: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: OwnerBoards;
  };
  owner_posts: {
    query: {
      limit?: number;
      before?: number | string | null;
    };
    body: never;
    answer: OwnerPosts;
  };
  stream: {
    query: {
      /** Default: the only ranked column. */
      column?: string;
      top?: number;
      /**
       * 1 to 128 Unicode characters after normalisation to NFC, which the service does; no control characters, no
       * surrogates.
       */
      owner?: string;
    };
    body: never;
    answer: never;
  };
  journal: {
    query: {
      after?: number | string;
      limit?: number;
    };
    body: never;
    answer: never;
  };
  refresh_curve: {
    query: {};
    body: never;
    answer: RefreshAnswer;
  };
  audit_curve: {
    query: {
      owners?: number;
    };
    body: never;
    answer: AuditAnswer;
  };
  pools: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
      client_id?: string;
    };
    body: never;
    answer: PoolList;
  };
  put_pool: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: PoolAnswer;
  };
  pool: {
    query: {};
    body: never;
    answer: PoolAnswer;
  };
  delete_pool: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  add_resources: {
    query: {};
    body: AddResources;
    answer: AddedResources;
  };
  resources: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: ResourceList;
  };
  remove_resources: {
    query: {};
    body: RemoveResources;
    answer: RemovedResources;
  };
  create_key: {
    query: {};
    body: PostKey;
    answer: CreatedKey;
  };
  keys: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: KeyList;
  };
  revoke_key: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  issue_token: {
    query: {};
    body: IssueToken;
    answer: IssuedToken;
  };
  void_tokens: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  events: {
    query: {
      after?: number;
      limit?: number;
    };
    body: never;
    answer: never;
  };
  put_webhook: {
    query: {};
    body: PutWebhook;
    answer: WebhookAnswer;
  };
  webhook: {
    query: {};
    body: never;
    answer: WebhookAnswer;
  };
  delete_webhook: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: never;
  };
  webhooks: {
    query: {
      limit?: number;
      /** Opaque text: `next` or `prev` of an earlier answer. */
      cursor?: string;
    };
    body: never;
    answer: WebhookList;
  };
  rotate_webhook: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: WebhookAnswer;
  };
  resume_webhook: {
    query: {
      /** Why an operator does this, for the list of acts. */
      reason?: string;
    };
    body: never;
    answer: WebhookAnswer;
  };
  test_webhook: {
    query: {};
    body: never;
    answer: never;
  };
  healthz: {
    query: {};
    body: never;
    answer: Health;
  };
  readyz: {
    query: {};
    body: never;
    answer: Readiness;
  };
  metrics: {
    query: {};
    body: never;
    answer: never;
  };
  openapi: {
    query: {};
    body: never;
    answer: unknown;
  };
  jolokia: {
    query: {};
    body: never;
    answer: JolokiaAnswer;
  };
  jolokia_post: {
    query: {};
    body: unknown;
    answer: JolokiaAnswer | Array<JolokiaAnswer>;
  };
  jolokia_get: {
    query: {};
    body: never;
    answer: JolokiaAnswer;
  };
  jolokia_post_to: {
    query: {};
    body: unknown;
    answer: JolokiaAnswer | Array<JolokiaAnswer>;
  };
  dashboard: {
    query: {};
    body: never;
    answer: never;
  };
  dashboard_file: {
    query: {};
    body: never;
    answer: never;
  };
  api_page: {
    query: {};
    body: never;
    answer: never;
  };
}
