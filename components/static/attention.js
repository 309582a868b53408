// Attention of the trips that were looked into: which tokens a token looked at, and how much.

import { largest, picture } from "./heat.js";
import { percent, sharpen } from "./player.js";
import { shown } from "./tokens.js";

export const defaults = { rows: 32, label: 64, top: 56, most: 34, tall: 320, bars: 150, barLabels: 54 };
export const MEAN = "mean";

/** Which of `n` places are recorded where there are more than `most`, as core/drawing.py takes them. */
export function evenly(n, most = defaults.rows) {
  if (n <= most) return Array.from({ length: n }, (_, i) => i);
  const step = (n - 1) / (most - 1);
  return Array.from({ length: most }, (_, i) => (i === most - 1 ? n - 1 : halfEven(i * step)));
}

/** Rounded as NumPy does: halves to the even neighbour. */
function halfEven(v) {
  const low = Math.floor(v);
  if (v - low !== 0.5) return Math.round(v);
  return low % 2 ? low + 1 : low;
}

/** What was recorded of a trip: [{layer, array}], or an empty list. */
export function layersOf(trace, step) {
  const arrays = trace.at(step)?.arrays;
  if (!arrays) return [];
  return [...arrays].filter(([key]) => key.endsWith(" attention"))
    .map(([key, array]) => ({ layer: Number(key.split(".")[1]), op: key.split(" ")[0], array }));
}

/** Steps of the trips whose attention was recorded. */
export const lookedAt = (trace, lane) => lane.trips.filter((trip) => layersOf(trace, trip.step).length).map((trip) => trip.step);

const means = new WeakMap();

/** One number for all heads: their mean. */
function meanOf(array) {
  if (!means.has(array)) {
    const [heads, rows, cols] = array.shape;
    const values = Float32Array.from({ length: rows * cols }, (_, k) => {
      let sum = 0;
      for (let h = 0; h < heads; h += 1) sum += array.at(h * rows * cols + k);
      return sum / heads;
    });
    means.set(array, { shape: [1, rows, cols], values, quantised: false, at: (i) => values[i] });
  }
  return means.get(array);
}

/**
 * Weights of one head, or of all (`MEAN`): {array, part, rows, cols, queries, keys, at(r, c), top};
 * `queries` and `keys` are positions in the text. `nAll`: tokens so far, `nNew`: those of the trip.
 */
export function weightsOf(recorded, head, nAll, nNew) {
  const array = head === MEAN ? meanOf(recorded) : recorded;
  const part = head === MEAN ? 0 : head;
  const [, rows, cols] = array.shape;
  const at = (r, c) => array.at((part * rows + r) * cols + c);
  let top = 0;
  for (let r = 0; r < rows; r += 1) for (let c = 0; c < cols; c += 1) top = Math.max(top, at(r, c));
  return { array, part, rows, cols, at, top: top || largest(array), queries: evenly(nNew).map((i) => nAll - nNew + i), keys: evenly(nAll) };
}

/** The row of a token of the text, or of the last before it that is recorded. */
export const rowOf = (weights, position) => Math.max(0, weights.queries.findLastIndex((q) => q <= position));

/** Places of the matrix: cells of one size, labels left and above. */
export function place(weights, width) {
  const d = defaults;
  const size = Math.max(4, Math.min(d.most, (width - d.label - 4) / weights.cols, d.tall / weights.rows));
  return { x: d.label, y: d.top, size, height: d.top + weights.rows * size + 4 };
}

/** How tall the picture is: a matrix, or bars where there is one row. */
export const heightOf = (weights, width) => (weights.rows === 1 ? defaults.bars : place(weights, width).height);

/** The cell under a point: {r, c}, or null. */
export function hit(weights, width, x, y) {
  if (weights.rows === 1) {
    const c = Math.floor((x / width) * weights.cols);
    return c >= 0 && c < weights.cols ? { r: 0, c } : null;
  }
  const box = place(weights, width);
  const [r, c] = [Math.floor((y - box.y) / box.size), Math.floor((x - box.x) / box.size)];
  return r >= 0 && c >= 0 && r < weights.rows && c < weights.cols ? { r, c } : null;
}

/** `texts`: of all tokens; `row`: the token that asks; `hover`: a cell or null. */
export function draw(canvas, weights, { texts, row, hover }, c) {
  const width = canvas.clientWidth;
  if (weights.rows === 1) drawBars(sharpen(canvas, width, defaults.bars), weights, texts, hover, width, c);
  else drawMatrix(sharpen(canvas, width, place(weights, width).height), weights, texts, row, hover, width, c);
}

function drawMatrix(context, weights, texts, row, hover, width, c) {
  const { x, y, size } = place(weights, width);
  const [w, h] = [weights.cols * size, weights.rows * size];
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(weights.array, weights.part, "probability", c, weights.top), x, y, w, h);
  context.strokeStyle = c.line;
  context.lineWidth = 1;
  context.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1);
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  const every = Math.ceil(12 / size);
  const asked = hover ?? { r: row, c: -1 };
  weights.queries.forEach((q, r) => {
    if (r % every && r !== asked.r) return;
    context.textAlign = "right";
    context.fillStyle = r === asked.r ? c.ink : c.muted;
    context.fillText(cut(context, texts[q], defaults.label - 8), x - 6, y + (r + 0.5) * size);
  });
  weights.keys.forEach((k, i) => {
    if (i % every && i !== asked.c) return;
    slanted(context, cut(context, texts[k], defaults.top - 2), x + (i + 0.5) * size, y - 4, i === asked.c ? c.ink : c.muted);
  });
  context.strokeStyle = c.ink;
  context.lineWidth = 1.5;
  context.strokeRect(x, y + asked.r * size, w, size);
  if (hover) context.strokeRect(x + hover.c * size, y + hover.r * size, size, size);
}

function drawBars(context, weights, texts, hover, width, c) {
  const d = defaults;
  const pitch = width / weights.cols;
  const bottom = d.bars - d.barLabels;
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  context.strokeStyle = c.line;
  context.beginPath();
  context.moveTo(0, bottom + 0.5);
  context.lineTo(width, bottom + 0.5);
  context.stroke();
  context.fillStyle = c.muted;
  context.textAlign = "left";
  context.fillText(`highest bar: ${percent(weights.top)}`, 0, 8);
  const every = Math.ceil(12 / pitch);
  for (let i = 0; i < weights.cols; i += 1) {
    const h = (weights.at(0, i) / weights.top) * (bottom - 20);
    const on = hover?.c === i;
    context.fillStyle = c.forward;
    context.globalAlpha = hover && !on ? 0.45 : 1;
    context.fillRect(i * pitch + pitch * 0.12, bottom - h, Math.max(1, pitch * 0.76), h);
    context.globalAlpha = 1;
    if (i % every && !on) continue;
    slanted(context, cut(context, texts[weights.keys[i]], d.barLabels - 6), (i + 0.5) * pitch, bottom + 6, on ? c.ink : c.muted, "right");
  }
}

/** Text that stands on its end. */
function slanted(context, text, x, y, colour, align = "left") {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.textAlign = align;
  context.fillStyle = colour;
  context.fillText(text, 0, 0);
  context.restore();
}

/** A token's text, cut to a width. */
function cut(context, text, width) {
  let label = shown(text).label;
  if (context.measureText(label).width <= width) return label;
  while (label.length > 1 && context.measureText(`${label}…`).width > width) label = label.slice(0, -1);
  return `${label}…`;
}
