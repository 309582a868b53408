// Axes of a chart: where a value stands, which ticks it needs, and numbers with their units.

import { bytes, exact, seconds } from "./player.js";

const SIZES = [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]];
const RATES = [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
const YEAR = 365.25 * 86400;

const grouped = (v) => new Intl.NumberFormat("en", { maximumFractionDigits: 0 }).format(v);

/** Three digits that count, in words a person would write: 0.0125, 1,020, 8.9·10⁻⁸. */
function digits(v) {
  const rounded = Number(v.toPrecision(3));
  return rounded >= 1000 && rounded < 1e6 ? grouped(rounded) : exact(rounded, 3);
}

function scaled(v, table, unit) {
  const [prefix, size] = table.find(([, one]) => v >= one * 0.9995) ?? ["", 1];
  return `${digits(v / size)} ${prefix}${unit}`.trimEnd();
}

/** Three digits and the unit, as people read it. */
export function readable(v, unit) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  if (v < 0) return `−${readable(-v, unit)}`;
  if (unit === "s") return v === 0 ? "0 s" : longer(v);
  if (unit === "params" || unit === "tokens") return scaled(v, SIZES, "");
  if (unit === "x") return `${digits(v)} ×`;
  if (unit === "1") return digits(v);
  return scaled(v, RATES, unit);
}

function longer(v) {
  if (v >= YEAR) return `${digits(v / YEAR)} years`;
  if (v >= 2 * 86400) return `${digits(v / 86400)} days`;
  if (v >= 2 * 3600) return `${digits(v / 3600)} h`;
  if (v >= 120) return `${digits(v / 60)} min`;
  if (v < 1e-6) return `${digits(v * 1e9)} ns`;
  return seconds(v);
}

/** A round value at an axis: no zeros that say nothing. */
export const tickText = (v, unit) => readable(v, unit).replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, "");

/** Every digit that counts, for a card. */
export function exactly(v, unit) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  if (v < 0) return `−${exactly(-v, unit)}`;
  if (unit === "B") return v >= 1e4 ? `${readable(v, unit)} (${grouped(v)} B)` : bytes(v);
  if (unit === "params" || unit === "tokens") return `${readable(v, unit)}${v >= 1000 ? ` (${grouped(v)})` : ""}`;
  return readable(v, unit);
}

/** A signed relative error, as the tables of the pages write it. */
export function errorText(error) {
  if (!Number.isFinite(error)) return "–";
  if (error === 0) return "exact";
  const percents = Math.abs(error) * 100;
  if (percents < 1e-4) return "< 0.0001 %";
  return `${error > 0 ? "+" : "−"}${percents < 10 ? exact(percents, 2) : grouped(percents)} %`;
}

/** {to, from, ticks, low, high}: value -> pixel and back; `from0`, `to0`: pixels of low and high. */
export function scale(axis, from0, to0, nTicks) {
  const log = axis.log;
  const f = log ? Math.log10 : (v) => v;
  const [low, high] = [f(axis.low), f(axis.high)];
  const span = high - low || 1;
  return {
    low: axis.low,
    high: axis.high,
    log,
    to: (v) => from0 + ((log && v <= 0 ? low : f(v)) - low) / span * (to0 - from0),
    from: (p) => { const at = low + (p - from0) / (to0 - from0) * span; return log ? 10 ** at : at; },
    ticks: ticksOf(axis, low, high, nTicks),
  };
}

function ticksOf(axis, low, high, most) {
  const found = axis.log ? decades(low, high, most) : [];
  return found.length > 1 ? found : evenly(axis.low, axis.high, most);
}

/** Powers of ten between two exponents, every one or every second, third, …; of a short span 1-2-5. */
export function decades(low, high, most) {
  const first = Math.ceil(low - 1e-9);
  const last = Math.floor(high + 1e-9);
  if (last - first < 2) {
    const fine = [];
    for (let e = Math.floor(low); e <= last + 1; e += 1) {
      for (const m of [1, 2, 5]) {
        const v = m * 10 ** e;
        if (Math.log10(v) >= low - 1e-9 && Math.log10(v) <= high + 1e-9) fine.push(v);
      }
    }
    return fine;
  }
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, most)));
  const step = [1, 2, 3, 6].find((s) => s >= every) ?? every;
  const found = [];
  for (let e = Math.ceil(first / step) * step; e <= last; e += step) found.push(10 ** e);
  return found;
}

/** Round values between two, at most about so many. */
export function evenly(low, high, most) {
  const rough = (high - low) / Math.max(1, most);
  const size = 10 ** Math.floor(Math.log10(rough || 1));
  const step = size * ([1, 2, 5, 10].find((m) => m * size >= rough) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const n = Math.max(0, Math.floor(high / step + 1e-9) - first + 1);
  return Array.from({ length: n }, (_, i) => Number(((first + i) * step).toPrecision(12)) + 0);
}

/** The span of an axis that gives none: all values with a little room, on half decades where it is logarithmic. */
export function spanned(axis, values) {
  const good = values.filter((v) => typeof v === "number" && Number.isFinite(v) && (!axis.log || v > 0));
  const edge = axis.low ?? axis.high ?? (axis.log ? 1 : 0); // where nothing else is known
  let low = axis.low ?? (good.length ? good.reduce((a, b) => Math.min(a, b)) : edge);
  let high = axis.high ?? (good.length ? good.reduce((a, b) => Math.max(a, b)) : edge);
  if (axis.log) {
    if (axis.low == null) low = 10 ** (Math.floor(Math.log10(low) * 2 - 0.1) / 2);
    if (axis.high == null) high = 10 ** (Math.ceil(Math.log10(high) * 2 + 0.1) / 2);
  } else {
    if (axis.low == null) low = low < 0 ? low - (high - low) * 0.06 : 0;
    if (axis.high == null) high += (high - low) * 0.06 || 1;
  }
  if (!(high > low)) high = axis.log ? low * 10 : low + 1;
  return { ...axis, low, high };
}

/** Every second, third, … of some ticks, so that none touches the next; `size`: pixels that one takes. */
export function thinned(ticks, to, size) {
  for (let every = 1; every < ticks.length; every += 1) {
    const kept = ticks.filter((_, i) => i % every === 0);
    const apart = kept.every((v, i) => i === 0 || Math.abs(to(v) - to(kept[i - 1])) >= (size(v) + size(kept[i - 1])) / 2);
    if (apart) return kept;
  }
  return ticks.slice(0, 1);
}

/** Labels pushed apart so that none touches another nor leans away more than `most`; heavier ones have
 * their way, those without room are left out. Each is {at, size, weight}; the answer's `at` is the moved one.
 */
export function spread(labels, { most, low, high }) {
  let kept = [];
  let places = [];
  for (const label of [...labels].sort((a, b) => b.weight - a.weight)) {
    const tried = [...kept, label].sort((a, b) => a.at - b.at);
    const found = apart(tried, low, high);
    if (!found || found.some((at, i) => Math.abs(at - tried[i].at) > most)) continue;
    [kept, places] = [tried, found];
  }
  return kept.map((label, i) => ({ ...label, at: places[i] }));
}

/** Nearest places in order that keep labels apart: neighbours that touch share what they lean. Null: no room. */
function apart(labels, low, high) {
  const offsets = [];
  let sum = 0;
  for (const label of labels) { offsets.push(sum + label.size / 2); sum += label.size; }
  if (sum > high - low) return null;
  const groups = [];
  labels.forEach((label, i) => {
    groups.push({ n: 1, want: label.at - offsets[i] });
    while (groups.length > 1 && groups.at(-1).want < groups.at(-2).want) {
      const [a, b] = groups.splice(-2);
      groups.push({ n: a.n + b.n, want: (a.want * a.n + b.want * b.n) / (a.n + b.n) });
    }
  });
  const shifts = groups.flatMap((g) => Array(g.n).fill(Math.min(Math.max(g.want, low), high - sum)));
  return shifts.map((shift, i) => shift + offsets[i]);
}
