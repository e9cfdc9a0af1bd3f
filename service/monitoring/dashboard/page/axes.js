// Scales of charts, and the values that are marked on an axis.

const NICE = [1, 2, 5];
const FINER = [...NICE, 3, 7, 4, 6, 8, 9, 1.5];

/** Return a scale: `at` maps a value to a place in pixels, `back` a place to a value. `kind` is "linear" or "log". */
function scale(kind, [from, to], [start, end], forward, inverse) {
  const low = forward(from);
  const span = forward(to) - low || 1;
  return {
    kind,
    domain: [from, to],
    at: (value) => start + ((forward(value) - low) / span) * (end - start),
    back: (place) => inverse(low + ((place - start) / (end - start || 1)) * span),
  };
}

/** Return a linear scale. */
export function linear(domain, places) {
  return scale("linear", domain, places, (x) => x, (x) => x);
}

/** Return a logarithmic scale, for ranks, which begin at 1. */
export function logarithmic(domain, places) {
  return scale("log", domain, places, (x) => Math.log(Math.max(x, 0.5)), Math.exp);
}

/** Return a scale that is linear up to about the median and logarithmic far above it, for a few huge values. */
function stretched(domain, places, median) {
  const [from] = domain;
  const unit = Math.max((median - from) / 2, Number.MIN_VALUE);
  return scale("log", domain, places, (x) => Math.asinh((x - from) / unit), (y) => from + unit * Math.sinh(y));
}

/** Return the scale for values. It is not linear if the largest or the smallest value is far from the median. */
export function forValues([from, to], places, median) {
  const skew = (to - from) / Math.max(median - from, 1e-300);
  if (skew > 8 && median > from) return stretched([from, to], places, median);
  if (skew < 8 / 7 && median < to) return mirrored([from, to], places, median);
  return linear([from, to], places);
}

function mirrored([from, to], places, median) {
  const unit = Math.max((to - median) / 2, Number.MIN_VALUE);
  return scale("log", [from, to], places, (x) => -Math.asinh((to - x) / unit), (y) => to + unit * Math.sinh(y));
}

/** Return round values to mark on the scale `on`, at least `apart` pixels from each other. */
export function marks(on, apart, { whole = false, fine = false } = {}) {
  const candidates = on.kind === "linear" ? steps(on, apart, whole) : [...decades(on.domain, whole, fine ? FINER : NICE)];
  const kept = [];
  for (const value of candidates) {
    const place = on.at(value);
    if (kept.every((other) => Math.abs(on.at(other) - place) >= apart)) kept.push(value);
  }
  return kept.sort((a, b) => a - b);
}

function steps(on, apart, whole) {
  const [from, to] = on.domain;
  const room = Math.abs(on.at(to) - on.at(from));
  const least = ((to - from) * apart) / Math.max(room, 1);
  if (!(least > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(least));
  let step = power * ([...NICE, 10].find((nice) => nice * power >= least) ?? 10);
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-9; value += step) found.push(rounded(value, step));
  return found;
}

function rounded(value, step) {
  const digits = Math.min(20, Math.max(0, 1 - Math.floor(Math.log10(step))));
  return Number(value.toFixed(digits));
}

function* decades([from, to], whole, niceOnes) {
  const most = Math.max(Math.abs(from), Math.abs(to), 1);
  const top = Math.ceil(Math.log10(most));
  const inside = (value) => value >= from && value <= to;
  if (inside(0)) yield 0;
  for (const nice of niceOnes) {
    for (let power = top; power >= (whole ? 0 : -3); power -= 1) {
      const size = Number((nice * 10 ** power).toPrecision(3));
      if (whole && !Number.isInteger(size)) continue;
      for (const value of [size, -size]) if (inside(value)) yield value;
    }
  }
}
