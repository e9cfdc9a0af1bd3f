// Computes ranks from a curve's document in doubles, which is precise enough for drawing. The service computes in whole
// numbers, as clients/typescript/src/rank_of.ts does.

const SHAPE_UNIT = 65_536;

/** The curve in a document of `GET …/rankings/{column}/curve`, as a function from value to rank. */
export class Shape {
  constructor(document) {
    this.document = document;
    this.high = document.best === "high";
    this.total = document.total;
    this.segments = (document.segments ?? []).map((segment) => new Shape({ ...document, ...segment, segments: undefined }));
    if (this.segments.length) this.addUp();
    this.values = this.document.knots.map((knot) => Number(knot.value));
    this.keys = this.values.map((value) => this.key(value));
    this.ranks = this.document.knots.map((knot) => knot.rank);
    this.ties = this.document.knots.map((knot) => knot.ties);
    this.unit = 10 ** -document.scale; // the smallest difference between two values
    this.step = document.ties === "shared" ? document.step * this.unit : 0;
    const ends = document.outside ?? {};
    this.bestEnd = ends.best ? this.key(Number(ends.best.value)) : null;
    this.worstEnd = ends.worst ? this.key(Number(ends.worst.value)) : null;
    this.outerErrors = ends.errors ?? null;
  }

  /** Make the knots of a board with segments: the values of all segments' knots, with estimated ranks. */
  addUp() {
    const known = new Map(this.segments.flatMap(({ document }) => document.knots.map(({ value }) => [Number(value), value])));
    const values = [...known.keys()].sort((a, b) => this.key(a) - this.key(b));
    const knots = values.map((value) => ({ value: known.get(value), rank: this.at(value).rank, ties: 1 }));
    this.document = { ...this.document, knots };
  }

  /** Return the key of a value. A smaller key is better. */
  key(value) {
    return this.high ? -value : value;
  }

  /** Return the value of a key. */
  value(key) {
    return this.high ? -key : key;
  }

  /** Return the index of the first knot that is not better than the key. */
  indexOf(key) {
    let from = 0;
    let to = this.keys.length;
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.keys[middle] < key) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  /** Return the rank of a value with its bracket: {rank, low, high}. */
  at(value) {
    if (this.segments.length) return this.sumAt(value);
    const key = this.key(value);
    const j = this.indexOf(key);
    const count = this.keys.length;
    const low = j ? this.ranks[j - 1] + this.ties[j - 1] : 1;
    const high = j < count ? this.ranks[j] : this.total + 1;
    if (low >= high || this.keys[j] === key) return { rank: high, low: high, high };
    if (j === 0 && (this.bestEnd === null || key <= this.bestEnd)) return { rank: low, low, high: low };
    if (j === count && (this.worstEnd === null || key > this.worstEnd)) return { rank: high, low: high, high };
    const start = j ? this.keys[j - 1] + this.step : this.bestEnd;
    const end = j < count ? this.keys[j] : Math.max(this.worstEnd, start) + this.step;
    const inside = j > 0 && j < count;
    const shape = inside ? this.document.shapes?.[j - 1] : undefined;
    const rank = Math.round(low + (high - low) * risen((key - start) / (end - start), shape));
    const error = inside ? this.document.errors?.[j - 1] : this.outerErrors?.[j === 0 ? 0 : 1];
    if (error === undefined || error === null) return { rank, low, high };
    return { rank, low: Math.max(low, rank - error), high: Math.min(high, rank + error) };
  }

  sumAt(value) {
    const sum = { rank: 1, low: 1, high: 1 };
    for (const segment of this.segments) {
      const found = segment.at(value);
      for (const name of ["rank", "low", "high"]) sum[name] += found[name] - 1;
    }
    return sum;
  }

  /** Return the smallest and the largest value in the document. */
  range() {
    const ranges = this.segments.filter(({ total }) => total).map((segment) => segment.range());
    if (ranges.length) return [Math.min(...ranges.map(([least]) => least)), Math.max(...ranges.map(([, most]) => most))];
    const keys = [...this.keys, this.bestEnd, this.worstEnd].filter((key) => key !== null);
    const values = keys.map((key) => this.value(key));
    return [Math.min(...values), Math.max(...values)];
  }

  /** Return the value of a knot near the middle of the ranking. */
  median() {
    const index = this.ranks.findIndex((rank) => rank >= this.total / 2);
    return this.values[index < 0 ? this.values.length - 1 : index];
  }

  /** Return how many entries have a smaller value. */
  below(value) {
    if (!this.high) return this.at(value).rank - 1;
    return this.total - (this.at(value - this.unit).rank - 1);
  }
}

function risen(part, shape) {
  const t = Math.min(1, Math.max(0, part));
  if (!shape) return t;
  const [first, second] = shape;
  return (3 * (1 - t) * ((1 - t) * first + t * second) * t) / SHAPE_UNIT + t ** 3;
}
