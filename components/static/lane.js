// A lane: the model as a row of columns (embedding, blocks, head), each a card of recorded values.
// The wave stands in one of them; dashes between the columns show how far it has come.

import { mix } from "./player.js";

export const defaults = {
  top: 26, bottom: 22, // for a word above the wave, for the columns' names
  pitch: 40, narrowPitch: 29, // least pixels from one column to the next
  gap: 0.26, widest: 62, // between columns, as a share of the pitch; of a card
  inset: 4, between: 2, // of the cells in their card
  rows: 12, cols: 3, // cells: channels down, tokens across
};

/** "blocks.3.mlp.add" -> "blocks.3"; what stands before the blocks is the embedding's. */
export function columnOf(id) {
  const [kind, i] = id.split(".");
  if (kind === "blocks" || kind === "layers") return `${kind}.${i}`;
  return ["norm", "head", "loss"].includes(kind) ? "head" : "embed";
}

function labelOf(column) {
  const [kind, i] = column.split(".");
  if (kind === "blocks") return `block ${Number(i) + 1}`;
  return kind === "layers" ? `layer ${Number(i) + 1}` : kind;
}

/** Columns of an op table, left to right: [{id, label, ops: [op ids]}]. */
export function columnsOf(ops) {
  const columns = new Map();
  for (const { id } of ops) {
    const column = columnOf(id);
    if (!columns.has(column)) columns.set(column, { id: column, label: labelOf(column), ops: [] });
    columns.get(column).ops.push(id);
  }
  return [...columns.values()];
}

/** At most `n` of them, evenly chosen, the first and the last among them. */
export function evenly(columns, n) {
  if (columns.length <= n) return columns;
  if (n < 2) return columns.slice(0, n);
  return Array.from({ length: n }, (_, i) => columns[Math.round((i * (columns.length - 1)) / (n - 1))]);
}

/** How many columns a width has room for. */
export const room = (width) => Math.max(3, Math.floor(width / (width < 380 ? defaults.narrowPitch : defaults.pitch)));

/** Index of the shown column that stands for a column of the model: itself, or the last before it. */
export function standIn(shown, columns, id) {
  const at = columns.findIndex((c) => c.id === id);
  return shown.findLastIndex((c) => columns.indexOf(c) <= at);
}

/**
 * Cells of a recorded array of tokens × channels: `cols` evenly spaced tokens across, the newest
 * last, `rows` evenly spaced channels down. Colour grows with the square root of a value's size, and
 * is full at a size that one in ten of those shown exceeds: a few channels are far larger than all
 * others, and would leave the rest pale.
 */
export function cellsOf(array, rows = defaults.rows, cols = defaults.cols) {
  const [n, width] = array.shape.length > 1 ? array.shape.slice(-2) : [1, array.shape[0]];
  const [r, c] = [Math.min(rows, width), Math.min(cols, n)];
  const step = array.quantised ? (array.high - array.low) / 255 : 0; // whose half stands for 0 too
  const value = (row, col) => {
    const token = Math.round(((col + 1) * n) / c) - 1;
    const channel = r < 2 ? 0 : Math.round((row * (width - 1)) / (r - 1));
    const found = array.at(token * width + channel);
    return Math.abs(found) < 0.6 * step ? 0 : found;
  };
  const sizes = Array.from({ length: r * c }, (_, i) => Math.abs(value(Math.floor(i / c), i % c))).sort((a, b) => a - b);
  const full = sizes[Math.ceil(sizes.length * 0.9) - 1] || sizes.at(-1) || 1;
  const at = (i, j) => Math.sign(value(i, j)) * Math.sqrt(Math.min(1, Math.abs(value(i, j)) / full));
  return { rows: r, cols: c, value, at };
}

/** Where `n` columns stand: [{x, y, w, h}] of their cards. */
export function place(n, width, height) {
  const d = defaults;
  const pitch = width / n;
  const w = Math.min(d.widest, pitch * (1 - d.gap));
  return Array.from({ length: n }, (_, i) => (
    { x: i * pitch + (pitch - w) / 2, y: d.top, w, h: height - d.top - d.bottom }));
}

/** The column under a point, or -1. */
export const hit = (boxes, x, y) => boxes.findIndex((b) => x >= b.x - 3 && x <= b.x + b.w + 3 && y >= b.y && y <= b.y + b.h);

/**
 * Draw a lane; returns where its columns stand. A column is {label, cells: {rows, cols, at(r, c) ->
 * [-1, 1]} | null, role: "activation" | "grad" | "update", state: "todo" | "now" | "done"};
 * `direction` is 1 where the wave runs to the right, -1 to the left; `note` is the word above it.
 */
export function drawLane(context, width, height, { columns, direction = 1, note = "" }, colours) {
  const c = colours;
  const boxes = place(columns.length, width, height);
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  drawDashes(context, columns, boxes, c);
  columns.forEach((column, i) => drawColumn(context, column, boxes[i], direction, c));
  drawLabels(context, columns, boxes, width, height, c);
  const now = columns.findIndex((column) => column.state === "now");
  if (now >= 0 && note) drawNote(context, boxes[now], direction, note, width, c);
  return boxes;
}

const HUES = { activation: "forward", grad: "backward", update: "update" };
const hue = (column, c) => c[HUES[column.role]];

function drawDashes(context, columns, boxes, c) {
  context.lineWidth = 3;
  for (let i = 0; i + 1 < boxes.length; i += 1) {
    const [left, right] = [columns[i], columns[i + 1]];
    context.strokeStyle = left.state === "todo" || right.state === "todo" ? c.line : hue(right, c);
    const [x0, x1] = [boxes[i].x + boxes[i].w, boxes[i + 1].x];
    const inset = Math.max(1.5, (x1 - x0) * 0.14);
    const y = Math.round(boxes[i].y + boxes[i].h / 2) + 0.5;
    context.beginPath();
    context.moveTo(x0 + inset, y);
    context.lineTo(x1 - inset, y);
    context.stroke();
  }
}

function drawColumn(context, column, box, direction, c) {
  const d = defaults;
  context.fillStyle = c.background;
  context.strokeStyle = c.line;
  context.lineWidth = 1;
  rounded(context, box.x, box.y, box.w, box.h, 6);
  context.fill();
  context.stroke();
  drawCells(context, column, box, c);
  if (column.state !== "now") return;
  context.strokeStyle = column.role === "update" ? c.update : direction < 0 ? c.backward : c.forward;
  context.lineWidth = 2.5;
  rounded(context, box.x - 2, box.y - 3, box.w + 4, box.h + 6, 7);
  context.stroke();
}

const shades = new Map();

/** One of 64 shades between a card's ground and a colour, made once. */
function shade(ground, colour, share) {
  const step = Math.round(63 * Math.min(1, share));
  const key = `${ground} ${colour} ${step}`;
  if (!shades.has(key)) shades.set(key, mix(ground, colour, 0.06 + (0.94 * step) / 63));
  return shades.get(key);
}

/** Cells of one width in every column, so that a single token is a single strip in the middle;
 * `wide` ones fill the card. */
function drawCells(context, column, box, c) {
  const d = defaults;
  const cells = column.cells ?? { rows: d.rows, cols: d.cols, at: null };
  const across = cells.wide ? cells.cols : d.cols;
  const w = (box.w - 2 * d.inset - (across - 1) * d.between) / across;
  const h = (box.h - 2 * d.inset - (cells.rows - 1) * d.between) / cells.rows;
  const left = box.x + (box.w - cells.cols * (w + d.between) + d.between) / 2;
  for (let i = 0; i < cells.rows; i += 1) {
    for (let j = 0; j < cells.cols; j += 1) {
      const known = cells.at && column.state !== "todo";
      context.fillStyle = known ? shade(c.empty, hue(column, c), Math.abs(cells.at(i, j))) : c.empty;
      rounded(context, left + j * (w + d.between), box.y + d.inset + i * (h + d.between), w, h, Math.min(2, w / 3));
      context.fill();
    }
  }
}

function drawLabels(context, columns, boxes, width, height, c) {
  context.textAlign = "center";
  const short = columns.some((column, i) => context.measureText(column.label).width + 3 > (boxes[1]?.x ?? width) - boxes[0].x);
  let free = -Infinity; // where the last name ends
  columns.forEach((column, i) => {
    const text = short ? column.label.replace(/^(block|layer) /, "") : column.label;
    const half = context.measureText(text).width / 2;
    const x = Math.min(Math.max(boxes[i].x + boxes[i].w / 2, half), width - half);
    if (x - half < free + 3) return;
    free = x + half;
    context.fillStyle = column.state === "now" ? c.ink : c.muted;
    context.fillText(text, x, height - defaults.bottom / 2 + 2);
  });
}

function drawNote(context, box, direction, note, width, c) {
  context.font = `600 11.5px ${c.font}`;
  const text = direction > 0 ? `${note} ▸` : `◂ ${note}`;
  const half = context.measureText(text).width / 2;
  context.textAlign = "center";
  context.fillStyle = c.ink;
  const x = Math.min(Math.max(box.x + box.w / 2, half), width - half);
  context.fillText(text, x, defaults.top / 2 - 3);
  context.font = `11px ${c.font}`;
}

function rounded(context, x, y, w, h, r) {
  context.beginPath();
  context.roundRect(x, y, w, h, Math.max(0, Math.min(r, w / 2, h / 2)));
}
