// A run read in the browser is the run that stands in its folder, however its bytes arrive.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import test from "node:test";
import { Trace, unpack } from "../../components/static/trace.js";
import * as made from "./runs/made.js";
import { NAMES, recorded } from "./runs/recorded.js";
import * as shipped from "./runs/shipped.js";

const text = new TextEncoder();

/** All that a trace holds, as plain data: arrays by a hash of their bytes. */
function plain(trace) {
  const digest = (a) => createHash("sha1").update(a.values).digest("hex");
  const arrays = (map) => [...map].map(([key, a]) => [key, a.step, a.shape, a.values.constructor.name, a.low, a.high, digest(a)]);
  return {
    started: trace.started, ended: trace.ended, paused: trace.paused, nStates: trace.nStates, nTrain: trace.nTrain,
    constants: arrays(trace.constants),
    frames: trace.frames.map((f) => ({ ...f, arrays: arrays(f.arrays) })),
    recorded: trace.recorded.map((r) => ({ ...r, arrays: arrays(r.arrays) })),
  };
}

/** For each line its end, and the end of the last array named up to it. */
const ends = [];
for (const [i, line] of shipped.lines.trimEnd().split("\n").entries()) {
  const r = shipped.records[i];
  const [lineEnd, arrayEnd] = ends.at(-1) ?? [0, 0];
  const size = r.type === "Array" ? r.shape.reduce((a, b) => a * b, Number(r.dtype.at(-1))) : 0;
  ends.push([lineEnd + line.length + 1, size ? r.offset + size : arrayEnd]);
}

/** Where to cut a file of `size` bytes: `n` places, the same each time. */
function cuts(size, n, seed) {
  const next = made.numbers(seed);
  return [...Array.from({ length: n }, () => Math.floor(((next() + 1) / 2) * size)), size].sort((a, b) => a - b);
}

test("what the folder says comes out: start, end, examples, losses, recorded steps", () => {
  const run = shipped.run();
  const scalars = (name) => shipped.records.filter((r) => r.name === name).map((r) => r.value);
  assert.deepEqual(run.started, shipped.records[0]);
  assert.deepEqual(run.ended, shipped.records.at(-1));
  assert.equal(run.nTrain, 250);
  assert.deepEqual(run.frames.map((f) => f.epoch), scalars("epoch"));
  assert.deepEqual(run.frames.map((f) => f.train_loss), scalars("train_loss"));
  assert.deepEqual(run.frames.map((f) => f.held_out_accuracy), scalars("held_out_accuracy"));
  assert.deepEqual(run.recorded.map((r) => r.step), shipped.steps);
  assert.deepEqual(run.recorded.map((r) => r.scalars.loss), scalars("loss"));
});

test("every span and every memory sample of a recorded step comes out, in order", () => {
  for (const recorded of shipped.run().recorded) {
    const of = (type) => shipped.records.filter((r) => r.type === type && r.step === recorded.step);
    assert.deepEqual(recorded.spans, of("Span"));
    assert.deepEqual(recorded.memory, of("Memory"));
    assert.ok(recorded.spans.length && recorded.memory.length);
  }
});

test("every exact number of every recorded step is the stored one", () => {
  const run = shipped.run();
  let seen = 0;
  for (const recorded of run.recorded) {
    for (const [key, array] of recorded.arrays) {
      const [op, role] = key.split(" ");
      const record = shipped.record(recorded.step, op, role);
      assert.deepEqual(array.shape, record.shape);
      assert.deepEqual(Array.from(array.values, (_, i) => array.at(i)), shipped.stored(record), `${recorded.step} ${key}`);
      seen += 1;
    }
  }
  const all = shipped.records.filter((r) => r.type === "Array" && shipped.steps.includes(r.step)
    && !["boundary", "frame_weight", "points", "labels"].includes(r.role));
  assert.equal(seen, all.length);
});

test("a quantised number is the share of the way from low to high that its shade says", () => {
  for (const frame of shipped.run().frames) {
    for (const [key, array] of frame.arrays) {
      if (!key.endsWith("boundary")) continue;
      const record = shipped.record(frame.step, ...key.split(" "));
      assert.ok(array.quantised);
      const shades = shipped.stored(record);
      for (const i of [0, 1, shades.length >> 1, shades.length - 1]) {
        const expected = record.low * (1 - shades[i] / 255) + record.high * (shades[i] / 255);
        assert.ok(Math.abs(array.at(i) - expected) < 1e-12 * (record.high - record.low), `${key} ${i}`);
      }
    }
  }
});

test("the darkest shade is exactly low; the brightest is high, as near as a float tells", () => {
  const run = made.run([
    made.scalar(0, "epoch", 0),
    { ...made.array(0, "head", "boundary", [1, 1, 2], [0, 255], "u1"), low: -0.3, high: 1.7 },
  ]);
  const picture = run.frames[0].arrays.get("head boundary");
  assert.equal(picture.at(0), -0.3);
  assert.ok(Math.abs(picture.at(1) - 1.7) < 1e-15 * 4);
});

test("every stored type is read as itself, though its bytes do not stand aligned", () => {
  const run = made.run([
    made.array(7, "a", "u1", [3], [0, 1, 255], "u1"),
    made.array(7, "a", "i1", [2], [-128, 127], "i1"),
    made.array(7, "a", "i4", [2], [-2147483648, 2147483647], "i4"),
    made.array(7, "a", "f4", [2, 1], [Math.fround(0.1), -1e30].map(Math.fround), "f4"),
    made.array(7, "a", "f8", [2], [0.1, -1e300]),
    made.array(7, "a", "none", [0, 4], []),
    made.array(7, "a", "one", [], [5]),
    made.scalar(7, "recorded_step_s", 1),
  ]);
  const read = (role) => Array.from(run.recorded[0].arrays.get(`a ${role}`).values);
  assert.deepEqual(read("u1"), [0, 1, 255]);
  assert.deepEqual(read("i1"), [-128, 127]);
  assert.deepEqual(read("i4"), [-2147483648, 2147483647]);
  assert.deepEqual(read("f4"), [Math.fround(0.1), Math.fround(-1e30)]);
  assert.deepEqual(read("f8"), [0.1, -1e300]);
  assert.deepEqual(read("none"), []);
  assert.deepEqual(read("one"), [5]);
});

test("numbers that are not finite travel as words and come back as numbers", () => {
  const run = made.run([
    made.scalar(0, "epoch", 0), made.scalar(0, "train_loss", "NaN"), made.scalar(0, "held_out_loss", "Infinity"),
    made.scalar(0, "loss", "-Infinity"), made.scalar(0, "recorded_step_s", 1),
  ]);
  assert.ok(Number.isNaN(run.frames[0].train_loss));
  assert.equal(run.frames[0].held_out_loss, Infinity);
  assert.equal(run.recorded[0].scalars.loss, -Infinity);
});

test("the same two files in chunks, each line's array bytes before it, give the same trace", () => {
  const whole = plain(shipped.run());
  const bytes = text.encode(shipped.lines);
  for (const seed of [1, 2, 3]) {
    const trace = new Trace();
    let from = 0;
    for (const to of cuts(bytes.length, 200, seed)) {
      const lines = bytes.subarray(from, to);
      // As the stream does: the array file is read after the lines, so it is ahead of them.
      const needed = ends.findLast(([line]) => line <= to)?.[1] ?? 0;
      const end = Math.min(shipped.arrays.length, needed + ((seed * to) % 4096));
      trace.append(lines, shipped.arrays.subarray(trace.size, Math.max(end, trace.size)), trace.size);
      from = to;
    }
    assert.deepEqual(plain(trace), whole);
  }
});

test("lines that come before their array bytes wait for them, in order", () => {
  const whole = plain(shipped.run());
  const trace = new Trace();
  let from = 0, fromArrays = 0;
  const places = cuts(shipped.arrays.length, 60, 5);
  for (const [i, to] of cuts(shipped.lines.length, 60, 4).entries()) {
    trace.append(shipped.lines.slice(from, to), shipped.arrays.subarray(fromArrays, places[i]), fromArrays);
    [from, fromArrays] = [to, places[i]];
  }
  assert.deepEqual(plain(trace), whole);
});

test("chunks may be text or bytes", () => {
  const asBytes = new Trace().append(text.encode(shipped.lines), shipped.arrays, 0);
  assert.deepEqual(plain(asBytes), plain(shipped.run()));
});

test("array bytes that come a second time change nothing", () => {
  const trace = new Trace();
  trace.append("", shipped.arrays.subarray(0, 300_000), 0);
  trace.append(shipped.lines, shipped.arrays.subarray(200_000), 200_000);
  assert.deepEqual(plain(trace), plain(shipped.run()));
});

test("a line that is cut off waits for its rest", () => {
  const line = '{"type":"Scalar","step":0,"name":"n_train","value":250}\n';
  const trace = new Trace().append(line.slice(0, 30), new Uint8Array(0));
  assert.equal(trace.nTrain, 0);
  trace.append(line.slice(30, -1), new Uint8Array(0));
  assert.equal(trace.nTrain, 0, "the line has no end yet");
  trace.append("\n", new Uint8Array(0));
  assert.equal(trace.nTrain, 250);
});

test("a line whose array bytes are not there is not taken, nor is any after it", () => {
  const { lines, arrays } = made.folder([
    made.scalar(0, "epoch", 0), made.array(0, "head.linear", "frame_weight", [2], [1, 2]), made.scalar(0, "n_train", 9),
  ]);
  const trace = new Trace().append(lines, arrays.subarray(0, 15), 0);
  assert.equal(trace.frames.length, 1);
  assert.equal(trace.frames[0].arrays.size, 0);
  assert.equal(trace.nTrain, 0);
  trace.append("", arrays.subarray(15), 15);
  assert.deepEqual(Array.from(trace.frames[0].arrays.get("head.linear frame_weight").values), [1, 2]);
  assert.equal(trace.nTrain, 9);
});

test("whether a run is paused is what it said last; how often it said so is counted", () => {
  const trace = made.run([0, 1, 0, 1].map((value) => made.scalar(0, "paused", value)));
  assert.equal(trace.paused, true);
  assert.equal(trace.nStates, 4);
});

test("a recorded step shows only once it is whole", () => {
  const records = [made.scalar(3, "loss", 1), made.array(3, "input", "activation", [1], [1])];
  assert.equal(made.run(records).recorded.length, 0);
  assert.equal(made.run([...records, made.scalar(3, "recorded_step_s", 1e-4)]).recorded.length, 1);
});

test("the frame at a step is the last that has pictures at or before it", () => {
  const run = shipped.run();
  const pictured = shipped.records.filter((r) => r.op === "head" && r.role === "boundary").map((r) => r.step);
  for (const step of [0, 1, 24, 25, 26, 1025, 6000, 12499, 12500, Infinity]) {
    const expected = pictured.filter((s) => s <= step).at(-1);
    assert.equal(run.frameAt(step).step, expected, `at step ${step}`);
  }
});

test("a recorded step has the frame of its own epoch behind it", () => {
  const run = shipped.run();
  for (const step of shipped.steps) assert.equal(run.frameAt(step).step, step);
});

test("before any picture came there is no frame; before any step no recorded one", () => {
  const run = made.run([made.scalar(0, "epoch", 0)]);
  assert.equal(run.frameAt(0), null);
  assert.equal(run.recordedAt(0), null);
});

test("the recorded step at a step is that one, or the latest where there is none", () => {
  const run = shipped.run();
  for (const step of shipped.steps) assert.equal(run.recordedAt(step).step, step);
  assert.equal(run.recordedAt(7).step, shipped.steps.at(-1));
});

test("a message of the page falls apart into its header and the two files", () => {
  const header = { events_bytes: 5, run: "α/β" };
  const head = text.encode(JSON.stringify(header));
  const message = new Uint8Array(7 + 4 + head.length + 5 + 3).subarray(7); // not at the start of its buffer
  new DataView(message.buffer, message.byteOffset).setUint32(0, head.length, true);
  message.set(head, 4);
  message.set(text.encode("{}\n{}"), 4 + head.length);
  message.set([7, 8, 9], 4 + head.length + 5);
  const parts = unpack(message);
  assert.deepEqual(parts.header, header);
  assert.equal(new TextDecoder().decode(parts.events), "{}\n{}");
  assert.deepEqual([...parts.arrays], [7, 8, 9]);
});

test("a message that only points to a stream holds two empty files", () => {
  const head = text.encode(JSON.stringify({ events_bytes: 0, stream: "./api/runs/a/b" }));
  const message = new Uint8Array(4 + head.length);
  new DataView(message.buffer).setUint32(0, head.length, true);
  message.set(head, 4);
  const { header, events, arrays } = unpack(message);
  assert.equal(header.stream, "./api/runs/a/b");
  assert.deepEqual([events.length, arrays.length], [0, 0]);
});

// -- models that torch runs -------------------------------------------------------------------------

const models = NAMES.map(recorded);

test("a step of a torch model comes out whole: spans, samples of memory, arrays, scalars", () => {
  for (const { run, records } of models) {
    const of = (type) => records.filter((r) => r.type === type);
    assert.deepEqual(run.recorded.map((r) => r.step), [20]);
    const [step] = run.recorded;
    assert.deepEqual(step.spans, of("Span"));
    assert.deepEqual(step.memory, of("Memory"));
    const frame = ["images", "labels", "answers"];
    assert.deepEqual([...step.arrays.keys()], of("Array").filter((r) => !frame.includes(r.role)).map((r) => `${r.op} ${r.role}`));
    for (const name of ["loss", "peak_bytes", "activations_bytes", "flops_executed"]) {
      assert.equal(step.scalars[name], of("Scalar").find((r) => r.name === name).value);
    }
  }
});

test("a frame holds the losses and the accuracy that were recorded of it", () => {
  for (const { run, records } of models) {
    const [frame] = run.frames;
    for (const name of ["train_loss", "held_out_loss", "held_out_accuracy"]) {
      assert.equal(frame[name], records.find((r) => r.name === name).value, name);
    }
  }
});

test("answers to the digits belong to their frame; the digits and their labels to the run", () => {
  const { run } = recorded("digits");
  const answers = run.frames[0].arrays.get("head answers");
  const [images, labels] = ["images", "labels"].map((role) => run.constants.get(`data ${role}`));
  assert.deepEqual([answers.shape, images.shape, labels.shape], [[64, 10], [64, 8, 8], [64]]);
  for (let i = 0; i < 64; i += 1) {
    const sum = Array.from({ length: 10 }, (_, k) => answers.at(i * 10 + k)).reduce((a, b) => a + b);
    assert.ok(Math.abs(sum - 1) < 10 / 255, "probabilities");
    assert.ok(labels.at(i) >= 0 && labels.at(i) <= 9);
  }
});

/** A run that wrote something at some of its frames. */
const writing = made.run([
  made.scalar(0, "epoch", 0), made.scalar(0, "held_out_loss", 3),
  { type: "Sample", step: 0, name: "sum", text: "01+02=999" }, { type: "Sample", step: 0, name: "sum", text: "11+11=022" },
  made.scalar(8, "epoch", 0.5), made.scalar(8, "held_out_loss", 2),
  made.scalar(16, "epoch", 1), made.scalar(16, "held_out_loss", 1), { type: "Sample", step: 16, name: "sum", text: "01+02=003" },
]);

test("what a model wrote is that of the moment looked at, or the last before it", () => {
  const at = (step) => writing.samplesAt(step).map((s) => s.text);
  assert.deepEqual(at(0), ["01+02=999", "11+11=022"]);
  assert.deepEqual(at(8), ["01+02=999", "11+11=022"]);
  for (const step of [16, Infinity]) assert.deepEqual(at(step), ["01+02=003"]);
  assert.deepEqual(made.run([made.scalar(0, "epoch", 0)]).samplesAt(0), []);
});

test("a run without pictures has a frame for every look, once its losses are there", () => {
  for (const [step, shown] of [[0, 0], [7, 0], [8, 8], [15, 8], [Infinity, 16]]) assert.equal(writing.frameAt(step).step, shown);
  const half = made.run([made.scalar(0, "epoch", 0), made.scalar(0, "train_loss", 3)]);
  assert.equal(half.frameAt(Infinity), null);
});

test("a digits run's frames are those with answers", () => {
  const run = made.run([0, 8].flatMap((step) => [
    made.scalar(step, "epoch", step), made.scalar(step, "held_out_loss", 1),
    ...(step ? [] : [made.array(step, "head", "answers", [1, 10], Array(10).fill(0), "u1")]),
  ]));
  assert.equal(run.frameAt(Infinity).step, 0);
});

test("a run may be counted in epochs or in steps", () => {
  assert.equal(new Trace().axis, "epoch");
  assert.equal(new Trace("step").axis, "step");
});

test("the loss scale is one more number of a frame", () => {
  const run = made.run([made.scalar(0, "epoch", 0), made.scalar(0, "loss_scale", 65536)]);
  assert.equal(run.frames[0].loss_scale, 65536);
});
