// The KV cache as a staircase: a column for each token, as high as all keys and values up to it.

import { bytes, count, mix, sharpen } from "./player.js";
import { drawLevel } from "./ribbon.js";

export const defaults = { height: 178, left: 62, right: 14, top: 12, axis: 22, bar: 9, below: 20 };

/** How many tokens the picture has room for: those of the whole answer, as far as it is known. */
export function slotsOf({ nPrompt, context, maxNew, nTrips, ended }) {
  const nRead = ended ? nTrips : Math.max(nTrips, maxNew); // the newest token is in no cache
  return Math.max(1, Math.min(context, nPrompt + Math.max(nRead, 1) - 1));
}

/** Bytes up to and with token `i`, of those that are there: whole tokens, and a share of others. */
export const levelAt = ({ whole, writing, share }, perToken, i) =>
  perToken * (Math.min(i + 1, whole) + share * Math.min(Math.max(i + 1 - whole, 0), writing));

export function scales(slots, perToken, width) {
  const d = defaults;
  const bottom = d.height - d.axis - d.bar - d.below;
  return {
    bottom,
    x: (i) => d.left + (i / slots) * (width - d.left - d.right),
    at: (x) => Math.min(slots - 1, Math.max(0, Math.floor(((x - d.left) / (width - d.left - d.right)) * slots))),
    y: (b) => bottom - (b / (slots * perToken)) * (bottom - d.top),
  };
}

/** `held`: what trips.cachedAt says; `chosen` and `hover`: positions of tokens, or null. */
export function draw(canvas, { held, slots, perToken, reserved, nPrompt, chosen, hover }, c) {
  const d = defaults;
  const width = canvas.clientWidth;
  const context = sharpen(canvas, width, d.height);
  const s = scales(slots, perToken, width);
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  for (const share of [0, 0.5, 1]) drawLevel(context, share * slots * perToken, s.y(share * slots * perToken), width, c);
  drawRoom(context, s, slots, perToken, c);
  drawSteps(context, s, held, perToken, c);
  for (const [i, colour] of [[hover, c.muted], [chosen, c.ink]]) {
    if (i === null || i === undefined || i >= slots) continue;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    const top = s.y((i + 1) * perToken);
    context.strokeRect(s.x(i), top - 1, Math.max(3, s.x(i + 1) - s.x(i)), s.bottom - top + 2);
  }
  drawParts(context, s, slots, nPrompt, width, c);
  drawReserved(context, held, perToken, reserved, width, c);
}

/** Outline of the stairs that there is room for. */
function drawRoom(context, s, slots, perToken, c) {
  context.strokeStyle = c.line;
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(s.x(0), s.bottom);
  for (let i = 0; i < slots; i += 1) {
    context.lineTo(s.x(i), s.y((i + 1) * perToken));
    context.lineTo(s.x(i + 1), s.y((i + 1) * perToken));
  }
  context.stroke();
}

/** Each column: what was there already, pale, and what its own token adds. */
function drawSteps(context, s, held, perToken, c) {
  const n = held.whole + (held.share > 0 ? held.writing : 0);
  const pale = mix(c.background, c.cache, 0.28);
  const gap = s.x(1) - s.x(0) > 5 ? 1.5 : 0;
  for (let i = 0; i < n; i += 1) {
    const [below, level] = [i ? levelAt(held, perToken, i - 1) : 0, levelAt(held, perToken, i)];
    const [x, w] = [s.x(i), Math.max(0.75, s.x(i + 1) - s.x(i) - gap)];
    context.fillStyle = pale;
    context.fillRect(x, s.y(below), w, s.bottom - s.y(below));
    context.fillStyle = c.cache;
    context.fillRect(x, s.y(level), w, Math.max(1, s.y(below) - s.y(level)));
  }
}

/** Which columns are the prompt's and which the answer's. */
function drawParts(context, s, slots, nPrompt, width, c) {
  const y = s.bottom + defaults.axis / 2 + 1;
  context.textAlign = "center";
  for (const [name, from, to] of [["prompt", 0, Math.min(nPrompt, slots)], ["answer", nPrompt, slots]]) {
    if (to <= from) continue;
    const [x0, x1] = [s.x(from), s.x(to)];
    context.strokeStyle = c.muted;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x0 + 1, s.bottom + 4.5);
    context.lineTo(x1 - 1, s.bottom + 4.5);
    context.stroke();
    context.fillStyle = c.muted;
    const half = context.measureText(name).width / 2;
    if (x1 - x0 > 2 * half || name === "prompt") context.fillText(name, Math.max((x0 + x1) / 2, defaults.left + (x1 - x0 > 2 * half ? 0 : half)), y + 3);
  }
}

/** All the room that was taken beforehand, and how much of it is filled. */
function drawReserved(context, held, perToken, reserved, width, c) {
  const d = defaults;
  const y = d.height - d.below - d.bar + 2;
  const w = width - d.left - d.right;
  context.strokeStyle = c.cache;
  context.lineWidth = 1.2;
  context.strokeRect(d.left + 0.5, y + 0.5, w - 1, d.bar - 1);
  context.fillStyle = c.cache;
  context.fillRect(d.left, y, Math.min(w, Math.max(filled(held, perToken) ? 1 : 0, (w * filled(held, perToken)) / reserved)), d.bar);
  context.fillStyle = c.muted;
  context.textAlign = "left";
  context.fillText("filled", d.left, y + d.bar + 10);
  context.textAlign = "right";
  context.fillText(`reserved: ${bytes(reserved)}`, width - d.right, y + d.bar + 10);
}

/** Bytes that are filled. */
export const filled = (held, perToken) => perToken * (held.whole + held.share * held.writing);

/** The sum in words. */
export function sumWords(held, perToken, reserved) {
  const b = `${bytes(perToken)} = ${bytes(Math.round(filled(held, perToken)))} of ${bytes(reserved)} reserved`;
  if (!held.writing) return `${count(held.whole)} tokens × ${b}`;
  if (!held.whole) return `${count(held.writing)} tokens being written × ${b}`;
  return `${count(held.whole)} tokens + ${count(held.writing)} being written, × ${b}`;
}
