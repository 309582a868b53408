// The picture of a step is a function of the recording and a moment, and says what was recorded.

import assert from "node:assert/strict";
import test from "node:test";
import {
  CATEGORIES, duration, frame, layersOf, moment, peak, phaseStops, phases, slowDown, stops, timeline,
} from "../../components/static/step.js";
import * as made from "./runs/made.js";
import * as shipped from "./runs/shipped.js";
import { NAMES, recorded as torch } from "./runs/recorded.js";

const PHASES = ["forward", "loss", "backward", "update"];
const ops = made.ops({ hidden: shipped.spec.hidden, activation: shipped.spec.activation });
const steps = shipped.run().recorded;

// Shapes of every kind: usual, no hidden layer, one that has no activation op, the largest.
const SHAPES = [
  { hidden: [4, 2] }, { hidden: [] }, { hidden: [3], activation: "linear" }, { hidden: [2, 3, 2], activation: "linear" },
  { hidden: [8, 8, 8, 8, 8, 8], activation: "relu", features: ["x", "y", "x2", "y2", "xy", "sinx", "siny"], batch: 30 },
];
const cases = [
  ...steps.map((recorded) => ({ name: `shipped step ${recorded.step}`, recorded, ops })),
  ...SHAPES.map((shape) => ({
    name: `hidden ${JSON.stringify(shape.hidden)} ${shape.activation ?? "tanh"}`, recorded: made.step(shape), ops: made.ops(shape), shape,
  })),
];
const every = (claim, check) => cases.forEach((c) => test(`${claim}: ${c.name}`, () => check(c)));

/** Beginning, middle and end of every span. */
const moments = (recorded) => recorded.spans.flatMap((s) => [s.start_s, (s.start_s + s.end_s) / 2, s.end_s]);

/** Plain copy of a recorded step, to see whether it was touched. */
const copy = (recorded) => structuredClone({
  ...recorded, arrays: [...recorded.arrays].map(([key, a]) => [key, a.shape, a.values]),
});

/** End of the span of an op in a phase. */
const endOf = (recorded, phase, op) => recorded.spans.find((s) => s.phase === phase && s.op === op).end_s;

test("the categories and the phases are those of the recording", () => {
  assert.deepEqual(Object.keys(steps[0].memory[0].held_bytes), CATEGORIES);
  assert.deepEqual([...new Set(steps[0].spans.map((s) => s.phase))], PHASES);
});

every("the same moment gives the same picture, and asking changes nothing", (c) => {
  const before = copy(c.recorded);
  const table = structuredClone(c.ops);
  const times = moments(c.recorded);
  const forwards = times.map((t) => frame(c.recorded, c.ops, t));
  const backwards = [...times].reverse().map((t) => frame(c.recorded, c.ops, t)).reverse();
  assert.deepEqual(backwards, forwards);
  assert.deepEqual(copy(c.recorded), before);
  assert.deepEqual(c.ops, table);
});

every("at the first moment nothing is there yet", ({ recorded, ops: table }) => {
  const state = frame(recorded, table, 0);
  for (const column of state.columns) {
    for (const name of ["filled", "released", "grad", "weightGrad", "updating", "updated", "receiving"]) {
      assert.equal(column[name], false, `${column.name} ${name}`);
    }
    assert.equal(column.linksBackward, null);
  }
  assert.equal(state.loss, null);
  assert.equal(state.phase, "forward");
  assert.equal(state.finished, false);
});

every("a moment outside the step is its nearest end", ({ recorded, ops: table }) => {
  assert.deepEqual(frame(recorded, table, -1), frame(recorded, table, 0));
  assert.deepEqual(frame(recorded, table, 2 * duration(recorded)), frame(recorded, table, duration(recorded)));
});

every("forward fills the columns left to right, each when its output has been computed and no sooner", (c) => {
  c.recorded.spans.filter((s) => s.phase === "forward").forEach((span) => {
    const before = frame(c.recorded, c.ops, (span.start_s + span.end_s) / 2);
    const after = frame(c.recorded, c.ops, span.end_s);
    const filled = (state) => state.columns.filter((column) => column.filled).length;
    const makes = after.columns.some((column) => column.output === span.op);
    assert.equal(filled(after), filled(before) + (makes ? 1 : 0), span.op);
    assert.ok(after.columns.slice(0, filled(after)).every((column) => column.filled), "no gap");
  });
  const last = frame(c.recorded, c.ops, endOf(c.recorded, "forward", c.ops.at(-2).id));
  assert.ok(last.columns.every((column) => column.filled));
});

every("gradients appear right to left, each when the op that reads the output has gone backward", (c) => {
  const seen = [];
  for (const t of moments(c.recorded).filter((m) => m < endOf(c.recorded, "update", "optimizer.step"))) {
    frame(c.recorded, c.ops, t).columns.forEach((column, i) => { if (column.grad && !seen.includes(i)) seen.push(i); });
  }
  assert.deepEqual(seen, [...seen].sort((a, b) => b - a));
  assert.equal(seen.length, layersOf(c.ops).length);
  const layers = layersOf(c.ops);
  layers.forEach((layer, i) => {
    const reader = i + 1 < layers.length ? layers[i + 1].linear : "loss";
    const at = endOf(c.recorded, "backward", reader);
    assert.equal(frame(c.recorded, c.ops, at - 1e-9).columns[i].grad, false, layer.name);
    assert.equal(frame(c.recorded, c.ops, at).columns[i].grad, true, layer.name);
  });
});

every("weights have gradients from their op's backward to zero_grad", (c) => {
  layersOf(c.ops).forEach((layer, i) => {
    const at = endOf(c.recorded, "backward", layer.linear);
    assert.equal(frame(c.recorded, c.ops, at - 1e-9).columns[i].weightGrad, false);
    assert.equal(frame(c.recorded, c.ops, at).columns[i].weightGrad, true);
    assert.equal(frame(c.recorded, c.ops, endOf(c.recorded, "update", "optimizer.step")).columns[i].weightGrad, true);
    assert.equal(frame(c.recorded, c.ops, duration(c.recorded)).columns[i].weightGrad, false);
  });
});

every("an output is let go in backward, in the order last in, first out, and all are gone at its end", (c) => {
  const order = [];
  for (const t of moments(c.recorded)) {
    const state = frame(c.recorded, c.ops, t);
    state.columns.forEach((column, i) => {
      if (!column.released) return;
      assert.ok(column.filled, "only what was there can go");
      if (order.includes(i)) return;
      order.push(i);
      const justEnded = c.recorded.spans.findLast((s) => s.end_s <= t);
      assert.equal(justEnded.phase, "backward");
    });
  }
  assert.deepEqual(order, layersOf(c.ops).map((_, i) => i).reverse());
});

for (const recorded of steps) {
  test(`what the picture holds of outputs is what the ledger measured, after every op of step ${recorded.step}`, () => {
    const bytesOf = (column) => shipped.stored(shipped.record(recorded.step, column.output, "activation")).length * 4;
    for (const span of recorded.spans) {
      const state = frame(recorded, ops, span.end_s);
      const held = state.columns.filter((column) => column.filled && !column.released).reduce((sum, column) => sum + bytesOf(column), 0);
      const sample = recorded.memory.findLast((m) => m.phase === span.phase && m.op === span.op);
      assert.equal(held, sample.held_bytes.activations, `${span.phase} ${span.op}`);
    }
  });
}

every("weights are new only once the optimizer has stepped", (c) => {
  const at = endOf(c.recorded, "update", "optimizer.step");
  assert.ok(frame(c.recorded, c.ops, at - 1e-9).columns.every((column) => !column.updated && column.updating));
  assert.ok(frame(c.recorded, c.ops, at).columns.every((column) => column.updated && !column.updating));
});

every("the loss has no value before its op has ended, and then the recorded one", (c) => {
  const at = endOf(c.recorded, "loss", "loss");
  assert.equal(frame(c.recorded, c.ops, at - 1e-9).loss, null);
  for (const t of [at, duration(c.recorded)]) assert.equal(frame(c.recorded, c.ops, t).loss, c.recorded.scalars.loss);
});

every("inside a span it is named, with the share of it that has passed", (c) => {
  for (const span of c.recorded.spans) {
    for (const share of [0, 0.25, 0.75]) {
      const state = frame(c.recorded, c.ops, span.start_s + share * (span.end_s - span.start_s));
      assert.deepEqual([state.phase, state.op], [span.phase, span.op]);
      assert.ok(Math.abs(state.progress - share) < 1e-6);
    }
  }
});

every("a pulse runs along the links of the layer that computes, and along no other", (c) => {
  layersOf(c.ops).forEach((layer, i) => {
    for (const [phase, name] of [["forward", "linksForward"], ["backward", "linksBackward"]]) {
      const span = c.recorded.spans.find((s) => s.phase === phase && s.op === layer.linear);
      const state = frame(c.recorded, c.ops, (span.start_s + span.end_s) / 2);
      state.columns.forEach((column, k) => {
        if (k === i) assert.ok(Math.abs(column[name] - 0.5) < 1e-6);
        else assert.equal(column[name], null);
      });
    }
  });
});

every("the widths are those of the network", ({ recorded, ops: table, shape }) => {
  const expected = shape ? [(shape.features ?? ["x", "y"]).length, ...shape.hidden, 1] : [2, ...shipped.spec.hidden, 1];
  assert.deepEqual(frame(recorded, table, 0).widths, expected);
});

every("the end is the end", ({ recorded, ops: table }) => {
  const state = frame(recorded, table, duration(recorded));
  assert.equal(state.finished, true);
  assert.equal(state.t, recorded.spans.at(-1).end_s);
  assert.deepEqual([state.phase, state.op], ["update", "optimizer.zero_grad"]);
});

// -- bytes over time ------------------------------------------------------------------------------

every("no memory sample is lost on the timeline, and each total is the sum of its categories", ({ recorded }) => {
  const points = timeline(recorded);
  assert.deepEqual(points.map((p) => p.held_bytes), recorded.memory.map((m) => m.held_bytes));
  for (const p of points) {
    assert.equal(p.total, Object.values(p.held_bytes).reduce((a, b) => a + b, 0));
  }
});

every("time goes on along the timeline, and every sample stands in its own span", ({ recorded }) => {
  const points = timeline(recorded);
  points.forEach((p, i) => {
    const span = recorded.spans.find((s) => s.phase === p.phase && s.op === p.op);
    assert.ok(span.start_s <= p.t && p.t < span.end_s);
    if (i) assert.ok(points[i - 1].t < p.t);
  });
});

every("the peak is the most that was ever held, where it was held first", ({ recorded }) => {
  const points = timeline(recorded);
  const totals = recorded.memory.map((m) => Object.values(m.held_bytes).reduce((a, b) => a + b, 0));
  const top = peak(points);
  assert.equal(top.total, Math.max(...totals));
  assert.equal(top, points[totals.indexOf(Math.max(...totals))]);
});

test("of equal peaks the first one is the peak", () => {
  const points = [1, 7, 3, 7].map((total, t) => ({ t, total }));
  assert.equal(peak(points), points[1]);
});

every("the sample of a moment is the last one at or before it", (c) => {
  const points = timeline(c.recorded);
  for (const t of moments(c.recorded)) {
    assert.deepEqual(frame(c.recorded, c.ops, t).sample, points.filter((p) => p.t <= t).at(-1));
  }
});

// -- places to stop at ------------------------------------------------------------------------------

every("the stops are in order: the beginning of every op, and the end", ({ recorded }) => {
  const list = stops(recorded);
  assert.deepEqual(list, [...list].sort((a, b) => a - b));
  assert.equal(list.length, recorded.spans.length + 1);
  assert.equal(list[0], 0);
  assert.equal(list.at(-1), duration(recorded));
});

every("the phase stops are in order: the beginnings of the four phases, and the end", ({ recorded }) => {
  const list = phaseStops(recorded);
  assert.deepEqual(list, [...list].sort((a, b) => a - b));
  assert.deepEqual(list, [...PHASES.map((phase) => recorded.spans.find((s) => s.phase === phase).start_s), duration(recorded)]);
});

// -- steps of torch models --------------------------------------------------------------------------

const models = NAMES.map(torch);
const everyModel = (claim, check) => models.forEach((c) => test(`${claim}: ${c.name}`, () => check(c)));

everyModel("the phases follow one another without a hole, and no two neighbours are the same", ({ step }) => {
  const list = phases(step);
  assert.equal(list[0].start, 0);
  assert.equal(list.at(-1).end, duration(step));
  list.slice(1).forEach((p, i) => {
    assert.equal(p.start, list[i].end);
    assert.notEqual(p.phase, list[i].phase);
  });
});

test("a step without checkpointing has the four phases, each once", () => {
  for (const name of ["addition", "digits"]) {
    assert.deepEqual(phases(torch(name).step).map((p) => p.phase), PHASES);
  }
});

test("a checkpointed block is computed again inside backward, and accumulation repeats all but the update", () => {
  const micro = ["forward", "loss", "backward", "recompute", "backward"];
  assert.deepEqual(phases(torch("checkpointed").step).map((p) => p.phase), [...micro, ...micro, "update"]);
});

everyModel("every span lies in the stretch of its own phase", ({ step }) => {
  const list = phases(step);
  for (const span of step.spans) {
    const at = (span.start_s + span.end_s) / 2;
    assert.equal(list.find((p) => at < p.end).phase, span.phase);
  }
});

everyModel("the phase stops are the beginnings of the phases, and the end", ({ step }) => {
  assert.deepEqual(phaseStops(step), [...phases(step).map((p) => p.start), duration(step)]);
});

everyModel("no memory sample is lost on the timeline, though an op may run several times", ({ step }) => {
  const points = timeline(step);
  assert.deepEqual(points.map((p) => p.held_bytes), step.memory.map((m) => m.held_bytes));
  points.slice(1).forEach((p, i) => assert.ok(points[i].t < p.t));
});

everyModel("a moment names the op that runs then, and how far it is", ({ step }) => {
  for (const span of step.spans) {
    const state = moment(step, span.start_s + 0.25 * (span.end_s - span.start_s));
    assert.deepEqual([state.phase, state.op], [span.phase, span.op]);
    assert.ok(Math.abs(state.progress - 0.25) < 1e-6);
  }
});

everyModel("a moment outside the step is its nearest end", ({ step }) => {
  const plain = ({ done, running, ...state }) => state;
  assert.deepEqual(plain(moment(step, -1)), plain(moment(step, 0)));
  assert.deepEqual(plain(moment(step, 2 * duration(step))), plain(moment(step, duration(step))));
  assert.equal(moment(step, duration(step)).finished, true);
});

everyModel("the loss has a value once the last micro-batch's is known, and then the recorded one", ({ step }) => {
  const at = step.spans.findLast((s) => s.phase === "loss").end_s;
  assert.equal(moment(step, at - 1e-9).loss, null);
  assert.equal(moment(step, at).loss, step.scalars.loss);
});

test("the slow-down is 1, 2 or 5 times a power of ten, the largest that lasts no longer than asked", () => {
  const next = made.numbers(3);
  for (let i = 0; i < 400; i += 1) {
    const end = 10 ** (4 * next() - 3);
    const recorded = { spans: [{ end_s: end }] };
    const asked = 10 ** next();
    const slow = slowDown(recorded, asked);
    const ten = 10 ** Math.floor(Math.log10(slow) + 1e-9);
    assert.ok([1, 2, 5].some((m) => Math.abs(slow / ten - m) < 1e-9), `${slow} is no round number`);
    assert.ok(slow * end <= asked * (1 + 1e-6), `${slow} x ${end} lasts longer than ${asked}`);
    assert.ok(slow * 2.5 * end > asked * (1 - 1e-6), `${slow} x ${end} could last longer in ${asked}`);
  }
});

test("a slow-down that is round already stays as it is", () => {
  for (const exact of [1, 2, 5, 10, 50, 2000, 0.5]) {
    assert.ok(Math.abs(slowDown({ spans: [{ end_s: 9 / exact }] }) / exact - 1) < 1e-9);
  }
});

// -- layers -----------------------------------------------------------------------------------------

test("a layer's output is its activation's, or the linear op's where there is no activation", () => {
  assert.deepEqual(layersOf(made.ops({ hidden: [3], activation: "relu" })), [
    { name: "layers.0", linear: "layers.0.linear", output: "layers.0.act", activation: "relu" },
    { name: "head", linear: "head.linear", output: "head.act", activation: "tanh" },
  ]);
  assert.deepEqual(layersOf(made.ops({ hidden: [3], activation: "linear" })), [
    { name: "layers.0", linear: "layers.0.linear", output: "layers.0.linear", activation: "linear" },
    { name: "head", linear: "head.linear", output: "head.act", activation: "tanh" },
  ]);
});

test("without hidden layers there is the head alone", () => {
  assert.deepEqual(layersOf(made.ops({ hidden: [] })).map((layer) => layer.name), ["head"]);
});
