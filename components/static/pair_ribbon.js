// What the step and the answer hold, one stack above the other: one clock, one scale of bytes.

import { answerPeak, answerTimeline, endOf, stepPeak } from "./pair.js";
import { bytes, mix } from "./player.js";
import { bands, categoryName, drawBands, drawHead, drawLevel, drawTimes } from "./ribbon.js";
import { phases } from "./step.js";

export const defaults = { stacks: 150, left: 62, right: 14, top: 26, strip: 19, gap: 22, axis: 20, held: 0.32 };
const ANSWERED = ["weights", "inputs", "cache", "temporaries"];

/** Height of the picture: two stacks that share their bytes' scale, each with a strip of phases. */
export const height = () => {
  const d = defaults;
  return d.top + d.stacks + 2 * d.strip + d.gap + d.axis;
};

/** Stacked rectangles of an answer: [{category, t0, t1, low, high, looked}] in seconds and bytes. */
export function answerBands(lane) {
  const points = answerTimeline(lane);
  const list = [];
  points.forEach((point, i) => {
    const t1 = points[i + 1]?.t ?? lane.end;
    let low = 0;
    for (const category of ANSWERED) {
      const high = low + (point.held_bytes[category] ?? 0);
      if (high > low && t1 > point.t) list.push({ category, t0: point.t, t1, low, high, looked: point.looked });
      low = high;
    }
  });
  return list;
}

/** Places: x and t of the clock they share, and `perByte`, pixels for a byte in both stacks.
 * `expected`: predicted peaks, {step, answer}, that hold the scale until there are measured ones. */
export function scales(step, answer, width, expected = {}) {
  const d = defaults;
  const end = endOf([step, answer]) || 1;
  const a = step ? stepPeak(step).total : expected.step ?? 0;
  const b = (answer && answerPeak(answer)?.total) || (expected.answer ?? 0);
  const perByte = (d.stacks * 0.97) / (a + b || 1);
  const stepBase = d.top + (b ? a * perByte + d.stacks * 0.03 : d.stacks);
  return {
    end, perByte, stepPeak: a, answerPeak: b, stepBase,
    answerBase: stepBase + d.strip + d.gap + b * perByte,
    x: (t) => d.left + (t / end) * (width - d.left - d.right),
    t: (x) => Math.min(end, Math.max(0, ((x - d.left) / (width - d.left - d.right)) * end)),
  };
}

/** Everything but the playhead. */
export function drawStill(context, step, answer, width, expected, c) {
  const s = scales(step, answer, width, expected);
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  if (step) drawStack(context, bands(step.recorded), step.end, s, s.stepBase, c);
  if (answer) drawStack(context, answerBands(answer), answer.end, s, s.answerBase, c);
  drawScale(context, s, width, c);
  if (step) drawPhases(context, step, s, c);
  if (answer) drawTrips(context, answer, s, c);
  if (step && s.answerPeak) drawOutline(context, s, c);
  if (step) {
    const top = stepPeak(step);
    drawPeak(context, s.x(top.t), s.stepBase - top.total * s.perByte, `peak ${bytes(top.total)} · ${top.phase}, ${top.op}`, width, c);
  }
  if (!step && s.stepPeak) drawPromise(context, `predicted ${bytes(s.stepPeak)} for the step`, s.stepBase, s.stepPeak, s, c);
  const top = answer && answerPeak(answer);
  if (top) {
    const what = top.looked ? `answering: at most ${bytes(top.total)}` : `answering: ${bytes(top.total)} of weights and cache`;
    say(context, what, s.answerBase - top.total * s.perByte - 9, c);
  } else if (s.answerPeak) drawPromise(context, `predicted ${bytes(s.answerPeak)} for the answer`, s.answerBase, s.answerPeak, s, c);
  drawTimes(context, s.end, s.x, height() - defaults.axis / 2 + 2, c);
}

function say(context, text, y, c) {
  context.fillStyle = c.ink;
  context.textAlign = "left";
  context.fillText(text, defaults.left, y);
}

/** A peak that is predicted and not measured yet: an outline. */
function drawPromise(context, text, base, value, s, c) {
  context.save();
  context.strokeStyle = c.muted;
  context.lineWidth = 1;
  context.setLineDash([5, 4]);
  context.strokeRect(s.x(0) + 0.5, base - value * s.perByte, s.x(s.end) - s.x(0) - 1, value * s.perByte);
  context.restore();
  say(context, text, base - value * s.perByte - 9, c);
}

/** A stack, and what is still in memory once its lane is over. */
function drawStack(context, list, end, s, base, c) {
  const own = { x: s.x, y: (n) => base - n * s.perByte };
  drawBands(context, list, own, c);
  if (end >= s.end) return;
  const rest = list.filter((band) => band.t1 === end).map((band) => ({ ...band, t0: end, t1: s.end }));
  context.globalAlpha = defaults.held;
  drawBands(context, rest, own, c);
  context.globalAlpha = 1;
  const text = "over; this much stays in memory";
  const tall = Math.max(...rest.map((band) => band.high), 0) * s.perByte;
  if (tall < 18 || context.measureText(text).width + 12 > s.x(s.end) - s.x(end)) return;
  context.fillStyle = c.ink;
  context.textAlign = "center";
  context.fillText(text, (s.x(end) + s.x(s.end)) / 2, base - tall / 2);
}

function drawScale(context, s, width, c) {
  if (s.stepPeak) for (const value of [0, s.stepPeak]) drawLevel(context, value, s.stepBase - value * s.perByte, width, c);
  if (s.answerPeak) drawLevel(context, 0, s.answerBase, width, c);
}

function drawPhases(context, step, s, c) {
  for (const { phase, start, end } of phases(step.recorded)) {
    const again = phase === "recompute";
    strip(context, phase, s.x(start), s.x(end), s.stepBase, mix(c.background, c[again ? "forward" : phase], again ? 0.6 : 0.3), c);
  }
}

function drawTrips(context, answer, s, c) {
  answer.trips.forEach((trip, i) => {
    const shade = trip.phase === "prefill" ? 0.55 : 0.32;
    strip(context, i ? "" : trip.phase, s.x(trip.start), s.x(trip.end), s.answerBase, mix(c.background, c.forward, shade), c);
  });
  const decodes = answer.trips.slice(1);
  const [x0, x1] = [s.x(decodes[0]?.start ?? 0), s.x(decodes.at(-1)?.end ?? 0)];
  const text = ["decode: one trip for each token", "decode"].find((words) => context.measureText(words).width + 8 < x1 - x0);
  if (!text) return;
  context.fillStyle = c.ink;
  context.textAlign = "center";
  context.fillText(text, (x0 + x1) / 2, s.answerBase + 3 + (defaults.strip - 5) / 2 + 0.5);
}

function strip(context, text, x0, x1, base, colour, c) {
  const tall = defaults.strip - 5;
  context.fillStyle = colour;
  context.fillRect(x0, base + 3, Math.max(1, x1 - x0 - 1), tall);
  if (!text || x1 - x0 < context.measureText(text).width + 6) return;
  context.fillStyle = c.ink;
  context.textAlign = "center";
  context.fillText(text, (x0 + x1) / 2, base + 3 + tall / 2 + 0.5);
}

/** The answer's most, drawn into the step's stack. */
function drawOutline(context, s, c) {
  const y = s.stepBase - s.answerPeak * s.perByte;
  context.save();
  for (const [colour, width] of [[c.background, 4], [c.cache, 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(s.x(0), y);
    context.lineTo(s.x(s.end), y);
    context.stroke();
  }
  context.restore();
}

function drawPeak(context, x, y, text, width, c) {
  context.fillStyle = c.ink;
  context.beginPath();
  context.moveTo(x, y - 2);
  context.lineTo(x - 4, y - 8);
  context.lineTo(x + 4, y - 8);
  context.fill();
  const half = context.measureText(text).width / 2;
  context.textAlign = "center";
  context.fillText(text, Math.min(Math.max(x, defaults.left + half), width - defaults.right - half), y - 15);
}

export function drawPlayhead(context, step, answer, t, width, expected, c) {
  const s = scales(step, answer, width, expected);
  const bottom = (answer && s.answerPeak ? s.answerBase : s.stepBase) + defaults.strip;
  drawHead(context, s.x(Math.min(t, s.end)), defaults.top - 4, bottom, c);
}

/** Categories that either stack holds, from the bottom up, with their names. */
export function categories(step, answer) {
  const seen = new Set([...(step ? bands(step.recorded) : []), ...(answer ? answerBands(answer) : [])].map((b) => b.category));
  return ["weights", "inputs", "optimizer", "activations", "gradients", "cache", "temporaries"]
    .filter((category) => seen.has(category)).map((category) => [category, categoryName(category) ?? category]);
}
