// Bytes held during a recorded step, stacked by category, on the player's own clock.

import { CATEGORIES, duration, peak, phases, timeline } from "./step.js";
import { bytes, mix, seconds } from "./player.js";

export const defaults = { height: 190, left: 62, right: 14, top: 20, phases: 20, axis: 20 };
const NAMES = {
  weights: "weights", inputs: "inputs", optimizer: "optimizer state",
  activations: "activations kept for backward", gradients: "gradients", temporaries: "temporaries", cache: "KV cache",
};
export const categoryName = (category) => NAMES[category];

/** Stacked rectangles of a recorded step: [{category, t0, t1, low, high}] in seconds and bytes. */
export function bands(recorded) {
  const points = timeline(recorded);
  const list = [];
  points.forEach((point, i) => {
    const t1 = points[i + 1]?.t ?? duration(recorded);
    let low = 0;
    for (const category of CATEGORIES) {
      const high = low + point.held_bytes[category];
      if (high > low && t1 > point.t) list.push({ category, t0: point.t, t1, low, high });
      low = high;
    }
  });
  return list;
}

export function scales(recorded, width) {
  const d = defaults;
  const top = peak(timeline(recorded)).total * 1.06;
  const bottom = d.height - d.axis - d.phases;
  return {
    x: (t) => d.left + (t / duration(recorded)) * (width - d.left - d.right),
    t: (x) => ((x - d.left) / (width - d.left - d.right)) * duration(recorded),
    y: (b) => bottom - (b / top) * (bottom - d.top),
    bottom,
  };
}

const patterns = new Map();

function pattern(context, kind, colour) {
  const key = `${kind} ${colour}`;
  if (!patterns.has(key)) {
    const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
    const tile = canvas.getContext("2d");
    tile.fillStyle = colour;
    tile.fillRect(0, 0, 8, 8);
    tile.strokeStyle = tile.fillStyle = "rgba(255, 255, 255, 0.42)";
    tile.lineWidth = 1.6;
    tile.beginPath();
    if (kind === "hatched") for (const k of [-8, 0, 8]) { tile.moveTo(k, 8); tile.lineTo(k + 8, 0); }
    else tile.arc(4, 4, 1.3, 0, 7);
    if (kind === "hatched") tile.stroke();
    else tile.fill();
    patterns.set(key, context.createPattern(canvas, "repeat"));
  }
  return patterns.get(key);
}

/** Fill of a category: colour, and a second cue where neighbours could be confused. */
export function fill(context, category, c) {
  if (category === "gradients") return pattern(context, "hatched", c.gradients);
  if (category === "optimizer") return pattern(context, "dotted", c.optimizer);
  return c[category];
}

/** Stacked rectangles on scales of time and bytes. */
export function drawBands(context, list, s, c) {
  // Whole device pixels: neighbours of one colour must not show a seam.
  const ratio = context.getTransform().a;
  for (const band of list) {
    context.fillStyle = fill(context, band.category, c);
    const [left, right] = [band.t0, band.t1].map((t) => Math.round(s.x(t) * ratio) / ratio);
    context.fillRect(left, s.y(band.high), Math.max(1 / ratio, right - left), s.y(band.low) - s.y(band.high));
  }
}

/** Five moments from 0 to the end, below a time axis. */
export function drawTimes(context, end, x, y, c) {
  context.fillStyle = c.muted;
  for (const [share, align] of [[0, "left"], [0.25, "center"], [0.5, "center"], [0.75, "center"], [1, "right"]]) {
    context.textAlign = align;
    context.fillText(share ? seconds(end * share) : "0", x(end * share), y);
  }
}

/** Where the clock stands: a line from `top` to a knob at `bottom`. */
export function drawHead(context, x, top, bottom, c) {
  context.strokeStyle = c.ink;
  context.fillStyle = c.ink;
  context.lineWidth = 1.6;
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, bottom);
  context.stroke();
  context.beginPath();
  context.arc(x, bottom, 4.5, 0, 7);
  context.fill();
}

/** A level of the stack: a line, and its bytes beside it. */
export function drawLevel(context, value, y, width, c) {
  context.fillStyle = c.muted;
  context.textAlign = "right";
  context.fillText(bytes(Math.round(value)), defaults.left - 8, y);
  context.strokeStyle = c.line;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(defaults.left, Math.round(y) + 0.5);
  context.lineTo(width - defaults.right, Math.round(y) + 0.5);
  context.globalAlpha = 0.6;
  context.stroke();
  context.globalAlpha = 1;
}

export function draw(context, recorded, t, width, c) {
  const d = defaults;
  const s = scales(recorded, width);
  drawBands(context, bands(recorded), s, c);
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  drawAxes(context, recorded, s, width, c);
  drawPeak(context, recorded, s, width, c);
  drawHead(context, s.x(t), d.top - 6, d.height - d.axis, c);
}

function drawAxes(context, recorded, s, width, c) {
  const d = defaults;
  const top = peak(timeline(recorded)).total;
  for (const value of [0, top / 2, top]) drawLevel(context, value, s.y(value), width, c);
  context.textAlign = "center";
  for (const { phase, start, end } of phases(recorded)) {
    const [x0, x1] = [s.x(start), s.x(end)];
    context.fillStyle = mix(c.background, c[phase === "recompute" ? "forward" : phase], phase === "recompute" ? 0.6 : 0.3);
    context.fillRect(x0, s.bottom + 4, Math.max(1, x1 - x0 - 1), d.phases - 5);
    context.fillStyle = c.ink;
    if (x1 - x0 > context.measureText(phase).width + 6) context.fillText(phase, (x0 + x1) / 2, s.bottom + 4 + (d.phases - 5) / 2);
  }
  drawTimes(context, duration(recorded), s.x, d.height - d.axis / 2 + 2, c);
}

function drawPeak(context, recorded, s, width, c) {
  const top = peak(timeline(recorded));
  const x = s.x(top.t);
  context.fillStyle = c.ink;
  context.beginPath();
  context.moveTo(x, s.y(top.total) - 2);
  context.lineTo(x - 4, s.y(top.total) - 8);
  context.lineTo(x + 4, s.y(top.total) - 8);
  context.fill();
  const text = `peak ${bytes(top.total)} · ${top.phase}, ${top.op}`;
  const half = context.measureText(text).width / 2;
  context.textAlign = "center";
  context.fillText(text, Math.min(Math.max(x, defaults.left + half), width - defaults.right - half), 8);
}
