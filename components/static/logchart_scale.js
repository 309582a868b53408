// Axes of a chart: where a value stands, which ticks it needs, and numbers with their units.

import { bytes, seconds } from "./player.js";

const SIZES = [["T", 1e12], ["B", 1e9], ["M", 1e6], ["k", 1e3]];
const RATES = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];

const digits = (v) => Number(v.toPrecision(3));
function scaled(v, table, unit, gap = " ") {
  const [prefix, size] = table.find(([, one]) => Math.abs(v) >= one * 0.9995) ?? ["", 1];
  return `${digits(v / size)}${prefix || unit ? gap : ""}${prefix}${unit}`;
}

/** Three digits and the unit, as people read it. */
export function readable(v, unit) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  if (v < 0) return `−${readable(-v, unit)}`;
  if (unit === "B") {
    if (v < 1000) return `${digits(v)} B`;
    const [prefix, size] = RATES.find(([, one]) => v >= one * 0.9995);
    return `${digits(v / size)} ${prefix}B`;
  }
  if (unit === "s") return v === 0 ? "0 s" : longer(v);
  if (unit === "params" || unit === "tokens") return scaled(v, SIZES, "");
  if (unit === "1" || unit === "x") return `${digits(v)}${unit === "x" ? " ×" : ""}`;
  return scaled(v, RATES, unit);
}

function longer(v) {
  if (v >= 365.25 * 86400) return `${digits(v / (365.25 * 86400))} years`;
  if (v >= 2 * 86400) return `${digits(v / 86400)} days`;
  if (v >= 2 * 3600) return `${digits(v / 3600)} h`;
  if (v >= 120) return `${digits(v / 60)} min`;
  return seconds(v);
}

/** Every digit that counts, for a card. */
export function exactly(v, unit) {
  if (v === null || v === undefined || !Number.isFinite(v)) return "–";
  if (unit === "B") return v < 1e15 ? `${bytes(v)}${v >= 1e4 ? ` (${grouped(v)} B)` : ""}` : readable(v, unit);
  if (unit === "params") return `${readable(v, unit)}${v >= 1000 ? ` (${grouped(v)})` : ""}`;
  return readable(v, unit);
}

const grouped = (v) => new Intl.NumberFormat("en", { maximumFractionDigits: 0 }).format(v);

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
    ticks: log ? decades(low, high, nTicks) : evenly(axis.low, axis.high, nTicks),
  };
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
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

/** The span of an axis that gives none: all values with a little room, on whole decades where it is logarithmic. */
export function spanned(axis, values) {
  const good = values.filter((v) => Number.isFinite(v) && (!axis.log || v > 0));
  let low = axis.low ?? Math.min(...good);
  let high = axis.high ?? Math.max(...good);
  if (!good.length && (axis.low ?? axis.high) == null) [low, high] = axis.log ? [1, 10] : [0, 1];
  if (axis.log) {
    if (axis.low == null) low = 10 ** (Math.floor(Math.log10(low) * 2 - 0.1) / 2);
    if (axis.high == null) high = 10 ** (Math.ceil(Math.log10(high) * 2 + 0.1) / 2);
  } else {
    if (axis.low == null) low = Math.min(0, low);
    if (axis.high == null) high += (high - low) * 0.06 || 1;
  }
  return { ...axis, low, high };
}

/** Labels that do not touch: each {at, size, weight}; heavier ones first, those without room left out. */
export function placed(labels, gap, low, high) {
  const kept = [];
  for (const label of [...labels].sort((a, b) => b.weight - a.weight)) {
    const half = label.size / 2;
    const at = Math.min(Math.max(label.at, low + half), high - half);
    if (Math.abs(at - label.at) > label.size) continue;
    if (kept.every((other) => Math.abs(other.at - at) >= half + other.size / 2 + gap)) kept.push({ ...label, at });
  }
  return kept;
}
