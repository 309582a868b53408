// Two runs on one clock: what is true of each at t, how many tokens have come, who holds the end.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { movesOf, unpackBoth } from "../../components/static/bothways.js";
import {
  answerAt, answerLane, answerPeak, answerTimeline, endOf, passesOf, phaseStopsOf, stepAt, stepLane, stepPeak, stopsOf, tokensAt,
} from "../../components/static/pair.js";
import { answerBands, categories, defaults, height, scales } from "../../components/static/pair_ribbon.js";
import { bands } from "../../components/static/ribbon.js";
import { Trace } from "../../components/static/trace.js";
import { answerOps } from "../../components/static/trips.js";
import { OPS, answer, shipped } from "./runs/answers.js";

/** A shipped training step, and the ops of its forward. */
function step(name) {
  const folder = new URL(`../../core/recordings/${name}/`, import.meta.url);
  const trace = new Trace("step").append(readFileSync(new URL("events.jsonl", folder), "utf8"), new Uint8Array(readFileSync(new URL("arrays.bin", folder))), 0);
  const { spans } = trace.recorded.at(-1);
  const ops = [...new Set(spans.filter((s) => s.phase === "forward" || s.phase === "loss").map((s) => s.op))].map((id) => ({ id }));
  return { trace, spans, lane: stepLane(trace, ops) };
}

const PAIRS = [["smollm2_step", "answer"], ["addition", "sum"]].map(([a, b]) => {
  const { trace } = shipped(b);
  return { name: a, ...step(a), answer: answerLane(trace, answerOps(trace)), answered: trace };
});

const middle = (a, b) => a + (b - a) / 2;

for (const { name, spans, lane, answer: told, answered } of PAIRS) {
  test(`${name}: passes fill the step without a gap, a column and a phase each`, () => {
    assert.equal(lane.passes[0].start, spans[0].start_s);
    assert.equal(lane.passes.at(-1).end, lane.end);
    lane.passes.slice(1).forEach((pass, i) => {
      assert.ok(Math.abs(pass.start - lane.passes[i].end) < 1e-6);
      assert.ok(pass.phase !== lane.passes[i].phase || pass.column !== lane.passes[i].column);
    });
    assert.deepEqual([...new Set(lane.passes.map((p) => p.phase))], ["forward", "loss", "backward", "update"]);
  });

  test(`${name}: forward runs to the right and fills columns, backward to the left and turns them into gradients`, () => {
    const order = lane.columns.map((c) => c.id);
    for (const pass of lane.passes.filter((p) => p.column && p.end > p.start)) {
      const state = stepAt(lane, middle(pass.start, pass.end));
      const now = state.columns.filter((c) => c.state === "now").map((c) => c.id);
      assert.deepEqual(now, [pass.column]);
      assert.equal(state.phase, pass.phase);
      assert.equal(state.direction, pass.phase === "backward" ? -1 : 1);
      const at = order.indexOf(pass.column);
      if (pass.phase === "forward") {
        assert.ok(state.columns.slice(at + 1).every((c) => c.state === "todo"));
        assert.ok(state.columns.every((c) => c.role === "activation"));
      } else if (pass.phase === "backward") {
        assert.ok(state.columns.slice(at).every((c) => c.role === "grad"));
        assert.ok(state.columns.every((c) => c.state !== "todo"));
      }
    }
  });

  test(`${name}: the update is everywhere at once, and the end is held`, () => {
    const update = lane.passes.at(-1);
    const during = stepAt(lane, middle(update.start, update.end));
    assert.ok(during.columns.every((c) => c.role === "update" && c.state === "now"));
    for (const t of [lane.end, lane.end * 3, Infinity]) {
      const state = stepAt(lane, t);
      assert.ok(state.over && state.pass === null);
      assert.ok(state.columns.every((c) => c.role === "update" && c.state === "done"));
    }
  });

  test(`${name}: at t as many tokens have come as ended by then, and at the end all stay`, () => {
    const ends = answered.tokens.map((token) => token.end_s);
    for (const t of [0, ...ends, ...ends.map((e) => e - 1e-6), lane.end, told.end * 2]) {
      assert.equal(tokensAt(told, t), ends.filter((e) => e <= t).length);
      assert.equal(answerAt(told, t).n, tokensAt(told, t));
    }
    const held = answerAt(told, told.end * 5);
    assert.ok(held.over);
    assert.equal(held.n, ends.length);
    assert.ok(held.columns.every((c) => c.state === "done"));
  });

  test(`${name}: one clock ends with the longer of the two`, () => {
    assert.equal(endOf([lane, told]), Math.max(lane.end, told.end));
    assert.equal(endOf([lane, null]), lane.end);
    assert.equal(endOf([null, null]), 0);
  });

  test(`${name}: steps stop at the beginning of every pass and trip, in order, and at both ends`, () => {
    const stops = stopsOf(lane, told);
    assert.deepEqual(stops, [...stops].sort((a, b) => a - b));
    for (const t of [...lane.passes.map((p) => p.start), ...told.trips.map((trip) => trip.start), lane.end, told.end]) assert.ok(stops.includes(t));
    const phases = phaseStopsOf(lane, told);
    assert.ok(phases.every((t) => stops.includes(t)));
    assert.ok(phases.length < stops.length);
  });

  test(`${name}: an answer's wave goes from column to column, trip after trip`, () => {
    for (const trip of told.trips) {
      trip.ends.forEach((end, i) => {
        const begin = i ? trip.ends[i - 1] : 0;
        if (end <= begin) return;
        const state = answerAt(told, trip.start + middle(begin, end));
        assert.deepEqual(state.columns.map((c) => c.state), told.columns.map((_, k) => (k < i ? "done" : k === i ? "now" : "todo")));
      });
    }
  });

  test(`${name}: the peaks are the measured ones`, () => {
    assert.equal(stepPeak(lane).total, lane.recorded.scalars.peak_bytes);
    const first = answered.at(0).scalars.peak_bytes;
    assert.equal(answerPeak(told).total, first);
  });

  test(`${name}: of trips that nobody looked into only what stays is drawn`, () => {
    const stays = answered.scalars.get("weights_bytes") + answered.scalars.get("kv_cache_bytes");
    const points = answerTimeline(told);
    points.slice(1).forEach((p, i) => assert.ok(p.t >= points[i].t));
    const others = points.filter((p) => !p.looked);
    assert.equal(others.length, told.trips.length - 2);
    assert.ok(others.every((p) => p.total === stays));
  });

  test(`${name}: both stacks have one scale of bytes, the larger peak the higher`, () => {
    for (const width of [320, 950, 1400]) {
      const s = scales(lane, told, width);
      assert.ok(Math.abs((s.stepPeak + s.answerPeak) * s.perByte - 0.97 * defaults.stacks) < 1e-9);
      assert.ok(s.stepBase - s.stepPeak * s.perByte >= defaults.top - 1e-9);
      assert.ok(s.answerBase - s.answerPeak * s.perByte >= s.stepBase + defaults.strip);
      assert.ok(s.answerBase + defaults.strip < height());
      assert.equal(s.x(0), defaults.left);
      for (const t of [0, s.end / 3, s.end]) assert.ok(Math.abs(s.t(s.x(t)) - t) < 1e-9);
    }
  });

  test(`${name}: every recorded weight moved, and stands in a column of the lane`, () => {
    const moves = movesOf(lane.recorded.scalars);
    assert.ok(moves.length > 10);
    const columns = new Set(lane.columns.map((c) => c.id));
    for (const move of moves) {
      assert.ok(columns.has(move.column), move.name);
      assert.ok(move.share >= 0 && move.share < 10);
    }
    assert.ok(moves.some((move) => move.share > 0));
  });

  test(`${name}: the legend names what either stack holds, once`, () => {
    const seen = new Set([...bands(lane.recorded), ...answerBands(told)].map((b) => b.category));
    const named = categories(lane, told);
    assert.deepEqual(new Set(named.map(([category]) => category)), seen);
    assert.ok(named.every(([, text]) => text.length > 3));
  });
}

test("before anything is recorded there is no lane, and predictions hold the scale", () => {
  assert.equal(stepLane(new Trace(), []), null);
  assert.equal(answerLane(new Trace(), []), null);
  const s = scales(null, null, 900, { step: 300, answer: 100 });
  assert.deepEqual([s.stepPeak, s.answerPeak], [300, 100]);
  assert.ok(Math.abs(s.perByte * 400 - 0.97 * defaults.stacks) < 1e-9);
});

test("between two trips the earlier one stands, complete", () => {
  const lane = answerLane(answer({ starts: [0, 2] }), OPS.map((id) => ({ id })));
  const state = answerAt(lane, 1.5);
  assert.deepEqual([state.n, state.trip.step, state.phase, state.over], [1, 0, "prefill", false]);
  assert.ok(state.columns.every((c) => c.state === "done"));
});

test("a trip that was not timed op by op shows no wave, and its token when it came", () => {
  const lane = answerLane(answer({ times: false, starts: [0, 2] }), OPS.map((id) => ({ id })));
  assert.ok(answerAt(lane, 0.5).columns.every((c) => c.state === "todo"));
  assert.ok(answerAt(lane, 1).columns.every((c) => c.state === "done"));
  assert.equal(answerAt(lane, 1).n, 1);
});

test("a column that a checkpoint computes again is a pass of its own", () => {
  const span = (phase, op, start_s, end_s) => ({ phase, op, start_s, end_s });
  const passes = passesOf({ spans: [
    span("forward", "blocks.0.attn.qkv", 0, 1), span("forward", "blocks.0.mlp.add", 1, 2), span("loss", "loss", 2, 3),
    span("recompute", "blocks.0.attn.qkv", 3, 4), span("backward", "blocks.0.mlp.add", 4, 5), span("update", "optimizer.step", 5, 6),
  ] });
  assert.deepEqual(passes.map((p) => [p.phase, p.column]), [
    ["forward", "blocks.0"], ["loss", "head"], ["recompute", "blocks.0"], ["backward", "blocks.0"], ["update", null],
  ]);
});

test("a message gives each lane its own two files", () => {
  const encode = (text) => new TextEncoder().encode(text);
  const files = ["ab", "cde", "f", ""];
  const head = encode(JSON.stringify({ events_bytes: 0, lanes: { step: { events_bytes: 2, arrays_bytes: 3 }, answer: { events_bytes: 1, arrays_bytes: 0 } } }));
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, head.length, true);
  const { header, files: found } = unpackBoth(new Uint8Array([...length, ...head, ...encode(files.join(""))]));
  assert.equal(header.lanes.step.arrays_bytes, 3);
  const text = (bytes) => new TextDecoder().decode(bytes);
  assert.deepEqual([...found.step, ...found.answer].map(text), files);
});
