// Loss on the training examples and on those held out, epoch by epoch, with the recorded steps.

export const defaults = { height: 190, left: 40, right: 14, top: 12, bottom: 26 };

/** Plain points of the two curves: [{epoch, step, train, held_out}]. */
export const points = (run) => run.frames
  .filter((f) => f.held_out_loss !== undefined)
  .map((f) => ({ epoch: f.epoch, step: f.step, train: f.train_loss, held_out: f.held_out_loss }));

export function scales(list, width) {
  const d = defaults;
  const last = Math.max(list.at(-1)?.epoch ?? 1, 1);
  const top = Math.max(0.1, ...list.map((p) => Math.max(p.train, p.held_out)).filter(Number.isFinite)) * 1.05;
  return {
    x: (epoch) => d.left + (epoch / last) * (width - d.left - d.right),
    y: (loss) => d.height - d.bottom - (loss / top) * (d.height - d.bottom - d.top),
    epoch: (x) => ((x - d.left) / (width - d.left - d.right)) * last,
    last, top,
  };
}

export const nearest = (list, epoch) => list.reduce(
  (best, p) => (Math.abs(p.epoch - epoch) < Math.abs(best.epoch - epoch) ? p : best), list[0]);

export function draw(context, run, cursorEpoch, hovered, width, c) {
  const d = defaults;
  const list = points(run);
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
  for (const epoch of ticks) context.fillText(String(epoch), Math.min(s.x(epoch), width - 24), d.height - 12);
  const marker = (epoch) => { // a recorded step stands here
    context.strokeStyle = c.update;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(s.x(epoch), d.height - d.bottom);
    context.lineTo(s.x(epoch), d.height - d.bottom + 6);
    context.stroke();
  };
  for (const r of run.recorded) marker(list.findLast((p) => p.step <= r.step)?.epoch ?? 0);
  line(context, list, (p) => [s.x(p.epoch), s.y(p.held_out)], c.weights, [5, 4], 1.6);
  line(context, list, (p) => [s.x(p.epoch), s.y(p.train)], c.loss, [], 2.2);
  if (cursorEpoch !== null) {
    context.strokeStyle = c.ink;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(s.x(cursorEpoch), d.top);
    context.lineTo(s.x(cursorEpoch), d.height - d.bottom);
    context.stroke();
  }
  const dotted = hovered ?? (list.length === 1 ? list[0] : null); // one point makes no line
  if (dotted) {
    for (const [value, colour] of [[dotted.held_out, c.weights], [dotted.train, c.loss]]) {
      context.fillStyle = colour;
      context.beginPath();
      context.arc(s.x(dotted.epoch), s.y(value), 4, 0, 7);
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
