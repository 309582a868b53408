// Bytes held during a recorded step, stacked by category, on the player's own clock.

import { CATEGORIES, duration, peak, phases, timeline } from "./step.js";
import { bytes, mix, seconds } from "./player.js";

export const defaults = { height: 190, left: 62, right: 14, top: 20, phases: 20, axis: 20 };
const NAMES = {
  weights: "weights", inputs: "inputs", optimizer: "optimizer state",
  activations: "activations kept for backward", gradients: "gradients", temporaries: "temporaries",
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

export function draw(context, recorded, t, width, c) {
  const d = defaults;
  const s = scales(recorded, width);
  for (const band of bands(recorded)) {
    const [x0, x1] = [s.x(band.t0), s.x(band.t1)];
    context.fillStyle = fill(context, band.category, c);
    // Whole device pixels: neighbours of one colour must not show a seam.
    const ratio = context.getTransform().a;
    const [left, right] = [Math.round(x0 * ratio) / ratio, Math.round(x1 * ratio) / ratio];
    context.fillRect(left, s.y(band.high), Math.max(1 / ratio, right - left), s.y(band.low) - s.y(band.high));
  }
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  drawAxes(context, recorded, s, width, c);
  drawPeak(context, recorded, s, width, c);
  const x = s.x(t);
  context.strokeStyle = c.ink;
  context.fillStyle = c.ink;
  context.lineWidth = 1.6;
  context.beginPath();
  context.moveTo(x, d.top - 6);
  context.lineTo(x, d.height - d.axis);
  context.stroke();
  context.beginPath();
  context.arc(x, d.height - d.axis, 4.5, 0, 7);
  context.fill();
}

function drawAxes(context, recorded, s, width, c) {
  const d = defaults;
  const top = peak(timeline(recorded)).total;
  context.fillStyle = c.muted;
  context.textAlign = "right";
  for (const value of [0, top / 2, top]) {
    context.fillText(bytes(Math.round(value)), d.left - 8, s.y(value));
    context.strokeStyle = c.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(d.left, Math.round(s.y(value)) + 0.5);
    context.lineTo(width - d.right, Math.round(s.y(value)) + 0.5);
    context.globalAlpha = 0.6;
    context.stroke();
    context.globalAlpha = 1;
  }
  context.textAlign = "center";
  for (const { phase, start, end } of phases(recorded)) {
    const [x0, x1] = [s.x(start), s.x(end)];
    context.fillStyle = mix(c.background, c[phase === "recompute" ? "forward" : phase], phase === "recompute" ? 0.6 : 0.3);
    context.fillRect(x0, s.bottom + 4, Math.max(1, x1 - x0 - 1), d.phases - 5);
    context.fillStyle = c.ink;
    if (x1 - x0 > context.measureText(phase).width + 6) context.fillText(phase, (x0 + x1) / 2, s.bottom + 4 + (d.phases - 5) / 2);
  }
  context.fillStyle = c.muted;
  const last = duration(recorded);
  for (const [share, align] of [[0, "left"], [0.25, "center"], [0.5, "center"], [0.75, "center"], [1, "right"]]) {
    context.textAlign = align;
    context.fillText(seconds(last * share), s.x(last * share), d.height - d.axis / 2 + 2);
  }
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
