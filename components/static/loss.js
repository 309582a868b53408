// Loss on the training examples and on those held out, with the recorded steps.

import { count } from "./player.js";

export const defaults = { height: 190, left: 40, right: 14, top: 12, bottom: 26, most: 900 };

/** Plain points of the two curves: [{x, epoch, step, train, held_out}], x what they stand against. */
export const points = (run) => run.frames
  .filter((f) => f.held_out_loss !== undefined)
  .map((f) => ({ x: run.axis === "step" ? f.step : f.epoch, epoch: f.epoch, step: f.step, train: f.train_loss, held_out: f.held_out_loss }));

export function scales(list, width) {
  const d = defaults;
  const last = Math.max(list.at(-1)?.x ?? 1, 1);
  const top = Math.max(0.1, ...list.map((p) => Math.max(p.train, p.held_out)).filter(Number.isFinite)) * 1.05;
  return {
    x: (at) => d.left + (at / last) * (width - d.left - d.right),
    y: (loss) => d.height - d.bottom - (loss / top) * (d.height - d.bottom - d.top),
    at: (x) => ((x - d.left) / (width - d.left - d.right)) * last,
    last, top,
  };
}

export const nearest = (list, at) => list.reduce(
  (best, p) => (Math.abs(p.x - at) < Math.abs(best.x - at) ? p : best), list[0]);

/** At most `most` points: of each stretch the first and those with the least and the greatest losses,
 * so that a spike stays a spike and drawing costs the same however long the run. */
export function thinned(list, most = defaults.most) {
  if (list.length <= most) return list;
  const stretch = Math.ceil((5 * list.length) / (most - 6)); // 5 of each, the last stretch is not whole
  const kept = new Set([list.at(-1)]);
  for (let i = 0; i < list.length; i += stretch) {
    const part = list.slice(i, i + stretch);
    kept.add(part[0]);
    for (const curve of ["train", "held_out"]) {
      const [first, ...rest] = part.filter((p) => Number.isFinite(p[curve]));
      if (!first) continue;
      kept.add(rest.reduce((a, b) => (b[curve] < a[curve] ? b : a), first));
      kept.add(rest.reduce((a, b) => (b[curve] > a[curve] ? b : a), first));
    }
  }
  return list.filter((p) => kept.has(p));
}

export function draw(context, run, cursor, hovered, width, c) {
  const d = defaults;
  const list = thinned(points(run));
  if (!list.length) return;
  const s = scales(list, width);
  context.font = `11px ${c.font}`;
  context.textBaseline = "middle";
  context.lineJoin = "round";
  for (const value of [0, s.top / 2, s.top]) {
    context.strokeStyle = c.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(d.left, Math.round(s.y(value)) + 0.5);
    context.lineTo(width - d.right, Math.round(s.y(value)) + 0.5);
    context.stroke();
    context.fillStyle = c.muted;
    context.textAlign = "right";
    context.fillText(value.toFixed(2), d.left - 6, s.y(value));
  }
  context.textAlign = "center";
  const ticks = new Set([0, Math.round(s.last / 2), s.last]);
  for (const at of ticks) context.fillText(count(at), Math.min(s.x(at), width - 24), d.height - 12);
  const marker = (at) => { // a recorded step stands here
    context.strokeStyle = c.update;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(s.x(at), d.height - d.bottom);
    context.lineTo(s.x(at), d.height - d.bottom + 6);
    context.stroke();
  };
  for (const r of run.recorded) marker(list.findLast((p) => p.step <= r.step)?.x ?? 0);
  line(context, list, (p) => [s.x(p.x), s.y(p.held_out)], c.weights, [5, 4], 1.6);
  line(context, list, (p) => [s.x(p.x), s.y(p.train)], c.loss, [], 2.2);
  if (cursor !== null) {
    context.strokeStyle = c.ink;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(s.x(cursor), d.top);
    context.lineTo(s.x(cursor), d.height - d.bottom);
    context.stroke();
  }
  const dotted = hovered ?? (s.last === 1 && list.at(-1).x === 0 ? list[0] : null); // one point makes no line
  if (dotted) {
    for (const [value, colour] of [[dotted.held_out, c.weights], [dotted.train, c.loss]]) {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(s.x(dotted.x), s.y(value), 4, 0, 7);
      context.fill();
    }
  }
}

function line(context, list, place, colour, dash, thickness) {
  context.strokeStyle = colour;
  context.lineWidth = thickness;
  context.setLineDash(dash);
  context.beginPath();
  for (const p of list) context.lineTo(...place(p));
  context.stroke();
  context.setLineDash([]);
}
