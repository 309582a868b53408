// One recorded step at a moment t: everything a picture of it needs, and nothing else.

export const CATEGORIES = ["weights", "inputs", "optimizer", "activations", "gradients", "temporaries"];

/** Layers of the recorded step, told by its arrays: names, and the op whose output each gives. */
export function layersOf(ops) {
  const layers = [];
  for (const op of ops) {
    const [name, leaf] = [op.id.slice(0, op.id.lastIndexOf(".")), op.id.split(".").at(-1)];
    if (leaf === "linear") layers.push({ name, linear: op.id, output: op.id, activation: "linear" });
    if (leaf === "act") Object.assign(layers.at(-1), { output: op.id, activation: op.kind });
  }
  return layers;
}

/** Length of the step in seconds. */
export const duration = (recorded) => recorded.spans.at(-1).end_s;

/** Bytes held over time: [{t, phase, op, held_bytes, total}], samples of one span evenly inside it. */
export function timeline(recorded) {
  const points = [];
  let i = 0;
  for (const span of recorded.spans) {
    let n = 0;
    while (i + n < recorded.memory.length && recorded.memory[i + n].phase === span.phase
      && recorded.memory[i + n].op === span.op) n += 1;
    for (let k = 0; k < n; k += 1) {
      const { held_bytes } = recorded.memory[i + k];
      const t = span.start_s + ((span.end_s - span.start_s) * k) / n;
      const total = CATEGORIES.reduce((sum, c) => sum + held_bytes[c], 0);
      points.push({ t, phase: span.phase, op: span.op, held_bytes, total });
    }
    i += n;
  }
  return points;
}

/** The point of the timeline with the most bytes, the first of equals. */
export const peak = (points) => points.reduce((a, b) => (b.total > a.total ? b : a));

/** What is true at time t (seconds since the step began) of any recorded step. */
export function moment(recorded, t) {
  const end = duration(recorded);
  const at = Math.min(Math.max(t, 0), end);
  const span = recorded.spans.find((s) => at < s.end_s) ?? recorded.spans.at(-1);
  const done = (phase, op) => recorded.spans.some((s) => s.phase === phase && s.op === op && s.end_s <= at);
  const running = (phase, op) => span.phase === phase && span.op === op && at < end;
  const points = timeline(recorded);
  return {
    t: at, end, phase: span.phase, op: span.op, progress: progress(span, at), done, running,
    // The mean of all micro-batches: known with the last of them.
    loss: at >= recorded.spans.findLast((s) => s.phase === "loss").end_s ? recorded.scalars.loss : null,
    losing: running("loss", "loss") || running("backward", "loss"),
    sample: points.findLast((p) => p.t <= at) ?? points[0], finished: at >= end,
  };
}

/** A moment of a perceptron, layer by layer. */
export function frame(recorded, ops, t) {
  const layers = layersOf(ops);
  const { done, running, ...now } = moment(recorded, t);
  const stepped = done("update", "optimizer.step");
  const cleared = done("update", "optimizer.zero_grad");
  const columns = layers.map((layer, i) => {
    // Who reads this output backwards decides when its gradient exists and when it is let go.
    const reader = i + 1 < layers.length ? layers[i + 1].linear : "loss";
    const released = done("backward", layer.output === layer.linear ? reader : layer.output);
    return {
      ...layer,
      filled: done("forward", layer.output),
      released,
      computing: running("forward", layer.linear) || running("forward", layer.output),
      grad: done("backward", reader) && !cleared,
      receiving: running("backward", reader),
      linksForward: running("forward", layer.linear) ? now.progress : null,
      linksBackward: running("backward", layer.linear) ? now.progress : null,
      weightGrad: done("backward", layer.linear) && !cleared,
      updating: running("update", "optimizer.step"),
      updated: stepped,
    };
  });
  const widths = [recorded.arrays.get("input activation").shape[1],
    ...layers.map((layer) => recorded.arrays.get(`${layer.output} activation`).shape[1])];
  return { ...now, columns, widths };
}

const progress = (span, t) => Math.min(1, (t - span.start_s) / Math.max(span.end_s - span.start_s, 1e-12));

/** Moments a step button stops at: the beginning of each op, and the end. */
export const stops = (recorded) => [...recorded.spans.map((s) => s.start_s), duration(recorded)];

/** The step's stretches of one phase: [{phase, start, end}]. Checkpointing and accumulation have
 * more than four. */
export function phases(recorded) {
  const list = [];
  for (const span of recorded.spans) {
    if (list.at(-1)?.phase === span.phase) list.at(-1).end = span.end_s;
    else list.push({ phase: span.phase, start: span.start_s, end: span.end_s });
  }
  return list;
}

/** Beginnings of the phases, and the end. */
export const phaseStops = (recorded) => [...phases(recorded).map((p) => p.start), duration(recorded)];

/** The slow-down, 1-2-5 rounded, at which the step lasts about `seconds`. */
export const slowDown = (recorded, seconds = 9) => slowed(duration(recorded), seconds);

/** The same of any length of time. */
export function slowed(length, seconds = 9) {
  const exact = seconds / length;
  const ten = 10 ** Math.floor(Math.log10(exact));
  return ten * [1, 2, 5, 10].findLast((m) => m * ten <= exact * 1.0000001);
}
