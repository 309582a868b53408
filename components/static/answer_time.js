// Time and memory of an answer on one axis: a bar for each trip, as wide and as high as it took, and
// below it what was held meanwhile.

import { answerPeak } from "./pair.js";
import { answerBands } from "./pair_ribbon.js";
import { bytes, mix, seconds } from "./player.js";
import { defaults as kit, drawBands, drawHead, drawLevel, drawTimes } from "./ribbon.js";

export const defaults = { height: 212, left: kit.left, right: kit.right, top: 20, bars: 58, gap: 26, axis: 20, mark: 9 };

export function scales(lane, width) {
  const d = defaults;
  const longest = Math.max(...lane.trips.map((trip) => trip.end - trip.start));
  const most = (answerPeak(lane)?.total ?? 1) * 1.03;
  const bottom = d.height - d.axis - d.mark;
  const memory = d.top + d.bars + d.gap;
  return {
    longest, bottom, memory, barBottom: d.top + d.bars,
    x: (t) => d.left + (t / lane.end) * (width - d.left - d.right),
    t: (x) => Math.min(lane.end, Math.max(0, ((x - d.left) / (width - d.left - d.right)) * lane.end)),
    y: (b) => bottom - (b / most) * (bottom - memory),
    bar: (s) => d.top + d.bars - (s / longest) * d.bars,
  };
}

/** Everything but what depends on the moment. `median`: seconds of a decode, or null. */
export function drawStill(context, lane, { median, looked }, width, c) {
  const s = scales(lane, width);
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  drawBars(context, lane, s, median, width, c);
  drawMemory(context, lane, s, width, c);
  drawMarks(context, lane, s, looked, c);
  drawTimes(context, lane.end, s.x, defaults.height - defaults.axis / 2 + 2, c);
}

function drawBars(context, lane, s, median, width, c) {
  lane.trips.forEach((trip) => drawBar(context, trip, s, mix(c.background, c.forward, trip.phase === "prefill" ? 0.75 : 0.45)));
  context.fillStyle = c.muted;
  context.textAlign = "right";
  context.fillText(seconds(s.longest), defaults.left - 8, s.bar(s.longest));
  context.fillText("0", defaults.left - 8, s.barBottom);
  context.textAlign = "left";
  context.fillText("time of each trip", defaults.left, 7);
  if (median === null) return;
  const y = Math.round(s.bar(median)) + 0.5;
  context.strokeStyle = c.ink;
  context.lineWidth = 1;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(defaults.left, y);
  context.lineTo(width - defaults.right, y);
  context.stroke();
  context.setLineDash([]);
  context.fillStyle = c.ink;
  context.textAlign = "right";
  context.fillText(`decode, median ${seconds(median)}`, width - defaults.right, Math.min(y - 8, 7));
}

function drawBar(context, trip, s, colour) {
  const [x0, x1] = [s.x(trip.start), s.x(trip.end)];
  const top = s.bar(trip.end - trip.start);
  context.fillStyle = colour;
  context.fillRect(x0, top, Math.max(0.75, x1 - x0 - (x1 - x0 > 4 ? 1 : 0)), s.barBottom - top);
}

function drawMemory(context, lane, s, width, c) {
  drawBands(context, answerBands(lane), s, c);
  const top = answerPeak(lane);
  if (!top) return;
  for (const b of [0, top.total]) drawLevel(context, b, s.y(b), width, c);
  context.textAlign = "left";
  context.fillStyle = c.muted;
  context.fillText(top.looked ? `memory held, at most ${bytes(top.total)}` : "memory held", defaults.left, s.memory - 11);
}

/** Below the trips that were looked into op by op. */
function drawMarks(context, lane, s, looked, c) {
  context.fillStyle = c.forward;
  for (const trip of lane.trips) {
    if (!looked(trip)) continue;
    context.fillRect(s.x(trip.start), s.bottom + 3, Math.max(2, s.x(trip.end) - s.x(trip.start) - 1), 4);
  }
}

/** The trip that is looked at, and the clock. */
export function drawNow(context, lane, trip, t, width, c) {
  const s = scales(lane, width);
  drawBar(context, trip, s, c.forward);
  drawHead(context, s.x(Math.min(t, lane.end)), defaults.top - 4, s.bottom + defaults.mark, c);
}
