// Every bound and wait of the page. What the service allows at most are settings of its own.

export const BOARDS_PER_PAGE = 50;
export const FAMILIES_SHOWN = 50; // rows above the boards
export const FACET_VALUES_SHOWN = 200; // proposals for a facet
export const OWNER_BOARD_PAGES_MAX = 10; // one request each, of 100 boards
export const HISTORY_PERIODS = 8; // closed periods of an owner
export const TOP_ROWS = 20; // of the live top
export const RANKING_ROWS = 25; // of a page further down
export const AROUND_ROWS = 3; // on each side of an owner
export const OVERTAKERS_SHOWN = 3;
export const NAMES_MAX = 5000; // remembered names of owners
export const NAME_CHARS_MAX = 80;
export const TABLE_KNOTS_MAX = 40; // rows of a chart's table
export const ZOOM_KNOTS = 4; // on each side of the one that is marked
export const BINS = 36; // of the distribution
export const ROUTES_SHOWN = 20; // rows of the node's table of requests
export const LEASE_POOLS_SHOWN = 8; // one request each
export const POOLS_PER_PAGE = 50;
export const SPARK_S = 900; // a quarter of an hour, as the node remembers it
export const SPARK_POINTS_MAX = 1_000; // of a picture: one for each poll, and those that the node gave

export const REQUEST_TIMEOUT_MS = 15_000;
export const ACT_TIMEOUT_MS = 120_000; // for what an operator does: a refresh of a large board, for example
export const BOARD_POLL_MS = 5_000; // the list, or state and curve of the board that is shown
export const AGES_STALE_MS = 60_000; // a list is drawn anew for its ages alone
export const HEALTH_POLL_MS = 2_000;
export const POOLS_POLL_MS = 10_000;
export const TOP_DRAW_MS = 200; // at most so often, however many events come
export const OWNER_RELOAD_MS = 1_000; // at most so often, however many events come
export const OWNER_POLL_MS = 15_000; // ages, and columns that no stream is about
export const SEARCH_PAUSE_MS = 250; // after the last key
export const ANNOUNCE_PAUSE_MS = 10_000; // between two changes that are read out
export const STREAM_SILENCE_MS = 60_000; // four heartbeats; past it the connection is taken for dead
export const STREAM_RETRY_MS = 1_000; // unless the stream says otherwise
export const STREAM_RETRY_MS_MAX = 10_000;
export const STREAM_LINE_CHARS_MAX = 4_000_000;
