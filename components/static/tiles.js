// A model as tiles: each column what a part of it says, a row for each token or example, the
// gradient beside the value. A block opens into its ops. For transformers and classifiers alike.

import { largest, picture } from "./heat.js";
import { bytes, mix } from "./player.js";

export const defaults = {
  pad: 14, labels: 92, head: 30, between: 26, rowLeast: 11, rowMost: 20, tall: 230, kept: 7,
  openTile: 80, openHead: 30, openGap: 12, narrow: 640,
};

/** "blocks.3.attn.qkv" -> "blocks.3"; ops before the blocks are the embedding's. */
export function groupOf(id) {
  const parts = id.split(".");
  if (parts[0] === "blocks" || parts[0] === "layers") return `${parts[0]}.${parts[1]}`;
  if (["norm", "head"].includes(parts[0])) return "head";
  if (parts[0] === "loss") return "loss";
  return "embed";
}

export const groupName = (group) => {
  const [kind, i] = group.split(".");
  if (kind === "blocks") return `block ${Number(i) + 1}`;
  return kind === "layers" ? `hidden ${Number(i) + 1}` : kind;
};

/** Name of an op inside its group: "attn.qkv". */
export const opName = (id) => (id.startsWith(groupOf(id) + ".") ? id.slice(groupOf(id).length + 1) : id);

/** Columns of the picture: [{group, ops, main}], `main` the op whose output stands for the group. */
export function groups(ops, recorded) {
  const list = [];
  for (const op of ops) {
    const group = groupOf(op.id);
    if (list.at(-1)?.group !== group) list.push({ group, ops: [] });
    list.at(-1).ops.push(op);
  }
  for (const g of list) g.main = g.ops.findLast((op) => recorded.arrays.has(`${op.id} activation`)) ?? null;
  return list.filter((g) => g.main);
}

/** What is true of every op at time t: Map id -> {filled, computing, kept, grad, receiving}. */
export function states(recorded, ops, t) {
  const done = new Map(), now = new Set(), last = recorded.spans.at(-1).end_s; // done: when last
  for (const s of recorded.spans) {
    if (s.end_s <= t) done.set(`${s.phase} ${s.op}`, s.end_s);
    else if (s.start_s <= t && t < last) now.add(`${s.phase} ${s.op}`);
  }
  const readers = new Map();
  for (const op of ops) for (const input of op.inputs ?? []) readers.set(input, [...(readers.get(input) ?? []), op.id]);
  const cleared = done.has("update optimizer.zero_grad");
  // Of each micro-batch anew.
  const kept = (id) => (done.get(`forward ${id}`) ?? done.get(`loss ${id}`) ?? -1) > (done.get(`backward ${id}`) ?? -1);
  return new Map(ops.map((op) => {
    const back = readers.get(op.id) ?? [];
    return [op.id, {
      filled: done.has(`forward ${op.id}`) || done.has(`loss ${op.id}`),
      computing: now.has(`forward ${op.id}`) || now.has(`loss ${op.id}`) || now.has(`recompute ${op.id}`),
      again: now.has(`recompute ${op.id}`),
      kept: op.saved_bytes > 0 && kept(op.id),
      grad: back.length > 0 && back.every((id) => done.has(`backward ${id}`)) && !cleared,
      receiving: now.has(`backward ${op.id}`),
    }];
  }));
}

/** Where everything stands, in CSS pixels. `opened`: groups that show their ops. */
export function layout(columns, opened, width, rows, rowLabels) {
  const d = defaults;
  const narrow = width < d.narrow;
  const rowHeight = Math.min(d.rowMost, Math.max(d.rowLeast, d.tall / rows));
  const tall = rows * rowHeight;
  const left = d.pad + (rowLabels ? (narrow ? 26 : d.labels) : 0);
  const right = width - d.pad - (rowLabels ? 46 : 8);
  const pitch = (right - left) / columns.length;
  const between = Math.min(d.between, pitch * 0.3);
  const tileWidth = Math.min(pitch - between, 190);
  const tiles = columns.map((column, i) => ({
    ...column, x: left + i * pitch + (pitch - tileWidth) / 2, y: d.head, width: tileWidth, height: tall,
  }));
  let y = d.head + tall + d.kept + 18;
  const openTiles = [];
  for (const column of columns.filter((c) => opened.has(c.group))) {
    const heading = { group: column.group, x: left, y: y + 10 };
    y += d.openHead;
    const size = d.openTile, step = size + d.openGap;
    const perRow = Math.max(1, Math.floor((width - 2 * d.pad + d.openGap) / step));
    column.ops.forEach((op, k) => {
      openTiles.push({
        op, group: column.group, heading: k === 0 ? heading : null,
        x: d.pad + (k % perRow) * step, y: y + Math.floor(k / perRow) * (size + 44), width: size, height: size,
      });
    });
    y += Math.ceil(column.ops.length / perRow) * (size + 44);
  }
  return { width, height: y + 4, narrow, tiles, openTiles, rowHeight, left };
}

/** What the pointer is on: {group}, {op} or null. */
export function hit(place, x, y) {
  const inside = (t) => x >= t.x && x <= t.x + t.width && y >= t.y && y <= t.y + t.height;
  const open = place.openTiles.find(inside);
  if (open) return { op: open.op.id, group: open.group };
  const tile = place.tiles.find(inside);
  return tile ? { op: tile.main.id, group: tile.group } : null;
}

/** Paint the model at a moment. `view`: {recorded, state, states, ops, rowLabels, targets, pinned}. */
export function draw(context, place, view, c) {
  const d = defaults;
  context.imageSmoothingEnabled = false;
  context.textBaseline = "middle";
  drawStream(context, place, view, c);
  const most = Math.max(1, ...place.tiles.map((t) => saved(t.ops)));
  for (const tile of place.tiles) {
    const active = tile.ops.some((op) => view.states.get(op.id).computing);
    const backward = tile.ops.some((op) => view.states.get(op.id).receiving);
    heatPair(context, tile, tile.main, view, c, "beside");
    outline(context, tile, active ? c.forward : backward ? c.backward : view.pinned === tile.main.id ? c.ink : c.line, active || backward);
    context.fillStyle = c.muted;
    context.font = `${place.narrow ? 10 : 12}px ${c.font}`;
    context.textAlign = "center";
    const name = place.narrow ? groupName(tile.group).replace(/block |hidden /, "") : groupName(tile.group);
    context.fillText(tile.ops.length > 1 ? `${name} ▾` : name, tile.x + tile.width / 2, 12);
    keptBar(context, tile, most, view, c);
  }
  drawRows(context, place, view, c);
  for (const tile of place.openTiles) drawOpen(context, tile, view, c);
}

const saved = (ops) => ops.reduce((sum, op) => sum + op.saved_bytes, 0);

/** Value and gradient of one op in a box: side by side, or one above the other. */
function heatPair(context, box, op, view, c, how) {
  const { recorded, states: s } = view;
  const state = s.get(op.id);
  const value = recorded.arrays.get(`${op.id} activation`) ?? null;
  const grad = recorded.arrays.get(`${op.id} grad`) ?? null;
  const half = how === "beside"
    ? [{ ...box, width: box.width * 0.56 }, { ...box, x: box.x + box.width * 0.6, width: box.width * 0.4 }]
    : [{ ...box, height: box.height * 0.6 }, { ...box, y: box.y + box.height * 0.64, height: box.height * 0.36 }];
  context.fillStyle = c.empty;
  context.fillRect(box.x, box.y, box.width, box.height);
  if (value && state.filled) context.drawImage(picture(value, 0, "signed", c), half[0].x, half[0].y, half[0].width, half[0].height);
  if (grad && state.grad) context.drawImage(picture(grad, 0, "gradient", c), half[1].x, half[1].y, half[1].width, half[1].height);
}

function outline(context, box, colour, strong) {
  context.strokeStyle = colour;
  context.lineWidth = strong ? 3 : 1;
  context.strokeRect(box.x - 0.5, box.y - 0.5, box.width + 1, box.height + 1);
}

/** Bytes this part keeps for backward now, against the part that keeps the most. */
function keptBar(context, tile, most, view, c) {
  const y = tile.y + tile.height + 5;
  const now = saved(tile.ops.filter((op) => view.states.get(op.id).kept));
  context.fillStyle = c.empty;
  context.fillRect(tile.x, y, (tile.width * saved(tile.ops)) / most, defaults.kept);
  context.fillStyle = c.activations;
  context.fillRect(tile.x, y, (tile.width * now) / most, defaults.kept);
  context.strokeStyle = c.line;
  context.lineWidth = 1;
  context.strokeRect(tile.x - 0.5, y - 0.5, (tile.width * saved(tile.ops)) / most + 1, defaults.kept + 1);
}

/** The residual stream: a line through all columns, coloured as far as the step has come. */
function drawStream(context, place, { state }, c) {
  const y = place.tiles[0].y + place.tiles[0].height / 2;
  const at = place.tiles.findIndex((t) => t.group === groupOf(state.op));
  place.tiles.slice(1).forEach((tile, i) => {
    const from = place.tiles[i];
    const passed = state.phase === "forward" ? at > i : state.phase === "loss" || (state.phase !== "forward" && at >= 0);
    const back = (state.phase === "backward" || state.phase === "recompute") && at <= i;
    context.strokeStyle = back ? c.backward : passed ? mix(c.background, c.forward, 0.75) : c.line;
    context.lineWidth = 3;
    context.setLineDash(back ? [3, 3] : []);
    context.beginPath();
    context.moveTo(from.x + from.width + 2, y);
    context.lineTo(tile.x - 2, y);
    context.stroke();
  });
  context.setLineDash([]);
}

function drawRows(context, place, { rowLabels, targets }, c) {
  if (!rowLabels) return;
  context.font = `${Math.min(13, Math.max(8, place.rowHeight - 1))}px ui-monospace, monospace`;
  const last = place.tiles.at(-1);
  rowLabels.forEach((label, i) => {
    const y = place.tiles[0].y + (i + 0.5) * place.rowHeight;
    context.fillStyle = c.ink;
    context.textAlign = "right";
    context.fillText(shown(label), place.tiles[0].x - 8, y);
    if (!targets || targets[i] === null) return;
    context.textAlign = "left";
    context.fillText(shown(targets[i]), last.x + last.width + 10, y);
  });
}

const shown = (character) => ({ "\n": "⏎", " ": "␣", "\t": "⇥" }[character] ?? character);

function drawOpen(context, tile, view, c) {
  if (tile.heading) {
    context.fillStyle = c.ink;
    context.font = `600 13px ${c.font}`;
    context.textAlign = "left";
    context.fillText(`inside ${groupName(tile.group)}`, defaults.pad, tile.heading.y);
  }
  const state = view.states.get(tile.op.id);
  const heads = view.recorded.arrays.get(`${tile.op.id} attention`);
  if (heads && state.filled) drawHeads(context, tile, heads, c);
  else heatPair(context, tile, tile.op, view, c, "above");
  outline(context, tile, state.computing ? c.forward : state.receiving ? c.backward : view.pinned === tile.op.id ? c.ink : c.line, state.computing || state.receiving || view.pinned === tile.op.id);
  context.font = `11px ${c.font}`;
  context.textAlign = "left";
  context.fillStyle = c.ink;
  context.fillText(opName(tile.op.id), tile.x, tile.y + tile.height + 11);
  if (tile.op.saved_bytes) {
    context.fillStyle = state.kept ? c.activations : c.line;
    context.fillRect(tile.x, tile.y + tile.height + 20, 8, 8);
    context.fillStyle = c.muted;
    context.fillText(`keeps ${bytes(tile.op.saved_bytes)}`, tile.x + 12, tile.y + tile.height + 25);
  }
}

/** Attention of every head, who looks at whom: rows look at columns. */
function drawHeads(context, tile, heads, c) {
  const [n] = heads.shape;
  const across = Math.ceil(Math.sqrt(n));
  const size = tile.width / across;
  for (let h = 0; h < n; h += 1) {
    const [x, y] = [tile.x + (h % across) * size, tile.y + Math.floor(h / across) * size];
    context.drawImage(picture(heads, h, "probability", c, largest(heads)), x, y, size - 2, size - 2);
  }
}
