// The loss curves are the recorded losses, and the pointer reads the point it stands on.

import assert from "node:assert/strict";
import test from "node:test";
import { defaults, nearest, points, scales, thinned } from "../../components/static/loss.js";
import { Trace } from "../../components/static/trace.js";
import * as made from "./runs/made.js";
import * as shipped from "./runs/shipped.js";

const run = shipped.run();
const list = points(run);

/** A run of epochs with these losses, on training and on held-out examples. */
const losses = (...pairs) => made.run(pairs.flatMap(([train, held], i) => [
  made.scalar(25 * i, "epoch", i), made.scalar(25 * i, "train_loss", train), made.scalar(25 * i, "held_out_loss", held)]));

test("there is a point for each recorded epoch, with the recorded losses", () => {
  const values = (name) => shipped.records.filter((r) => r.name === name).map((r) => r.value);
  assert.deepEqual(list.map((p) => p.epoch), values("epoch"));
  assert.deepEqual(list.map((p) => p.train), values("train_loss"));
  assert.deepEqual(list.map((p) => p.held_out), values("held_out_loss"));
  assert.deepEqual(list.map((p) => p.step), shipped.records.filter((r) => r.name === "epoch").map((r) => r.step));
});

test("an epoch whose losses have not both come yet is no point", () => {
  const half = made.run([made.scalar(0, "epoch", 0), made.scalar(0, "train_loss", 0.5)]);
  assert.deepEqual(points(half), []);
});

test("the curves stand against epochs, or against steps where the run is counted in them", () => {
  const records = made.folder([0, 1].flatMap((i) => [
    made.scalar(40 * i, "epoch", i / 7), made.scalar(40 * i, "train_loss", 1), made.scalar(40 * i, "held_out_loss", 1)]));
  const at = (axis) => points(new Trace(axis).append(records.lines, records.arrays, 0)).map((p) => p.x);
  assert.deepEqual(at("epoch"), [0, 1 / 7]);
  assert.deepEqual(at("step"), [0, 40]);
});

test("epochs go from the left edge to the right one, and back", () => {
  for (const width of [320, 900]) {
    const s = scales(list, width);
    assert.equal(s.x(0), defaults.left);
    assert.ok(Math.abs(s.x(list.at(-1).epoch) - (width - defaults.right)) < 1e-9);
    for (const epoch of [0, 41, 500]) assert.ok(Math.abs(s.at(s.x(epoch)) - epoch) < 1e-9);
  }
});

test("every loss stands inside the chart, a loss of nothing on its floor", () => {
  const s = scales(list, 600);
  assert.equal(s.y(0), defaults.height - defaults.bottom);
  for (const p of list) for (const loss of [p.train, p.held_out]) assert.ok(s.y(loss) >= defaults.top && s.y(loss) <= s.y(0));
});

test("a loss that is no number does not take the scale with it", () => {
  const s = scales(points(losses([0.5, 0.6], ["NaN", "Infinity"], ["Infinity", "NaN"])), 600);
  assert.ok(Number.isFinite(s.top));
  assert.ok(s.y(0.6) >= defaults.top);
  assert.ok(Number.isFinite(s.y(0.5)));
});

test("the first epoch alone has a scale, and so has no epoch at all", () => {
  for (const some of [points(losses([0.5, 0.5])), []]) {
    const s = scales(some, 600);
    for (const value of [s.x(0), s.y(0), s.at(300), s.last, s.top]) assert.ok(Number.isFinite(value));
  }
});

test("the nearest point is the one fewest epochs away, and the ends beyond the ends", () => {
  assert.equal(nearest(list, -5), list[0]);
  assert.equal(nearest(list, 1e6), list.at(-1));
  for (const p of list) assert.equal(nearest(list, p.epoch + 0.2), p);
  for (const epoch of [13.4, 333.3, 480]) {
    const away = Math.min(...list.map((p) => Math.abs(p.epoch - epoch)));
    assert.equal(Math.abs(nearest(list, epoch).epoch - epoch), away);
  }
});

// -- long runs --------------------------------------------------------------------------------------

/** Curves that wander, with spikes of one point here and there. */
function wandering(n, seed) {
  const next = made.numbers(seed);
  let loss = 2;
  return Array.from({ length: n }, (_, step) => {
    loss = Math.max(0.01, loss + 0.02 * next());
    const train = next() > 0.98 ? loss * 5 : next() > 0.98 ? loss / 5 : loss;
    return { x: step, epoch: step, step, train, held_out: next() > 0.98 ? 4 * loss : loss + 0.1 };
  });
}

const LONG = [901, 1000, 1799, 2701, 20_000].map((n, seed) => wandering(n, seed + 1));

test("few points are all kept", () => {
  for (const n of [0, 1, 2, 900]) {
    const few = wandering(n, 1);
    assert.deepEqual(thinned(few, 900), few);
  }
});

test("of many points no more are kept than asked for, the first and the last among them, in order", () => {
  for (const many of LONG) {
    for (const most of [50, 300, 900]) {
      const kept = thinned(many, most);
      assert.ok(kept.length <= most, `${kept.length} of ${many.length}, ${most} were asked for`);
      assert.ok(kept.length >= most / 6, `only ${kept.length} of ${many.length}`);
      assert.deepEqual([kept[0], kept.at(-1)], [many[0], many.at(-1)]);
      assert.deepEqual(kept.map((p) => p.step), kept.map((p) => p.step).sort((a, b) => a - b));
    }
  }
});

test("a spike stays a spike: the least and the greatest losses are kept, of both curves", () => {
  for (const many of LONG) {
    const kept = thinned(many);
    for (const curve of ["train", "held_out"]) {
      const ends = (list) => [Math.min(...list.map((p) => p[curve])), Math.max(...list.map((p) => p[curve]))];
      assert.deepEqual(ends(kept), ends(many), curve);
    }
  }
});

test("losses that are no numbers do not hide those that are", () => {
  const many = wandering(3000, 7).map((p, i) => (i % 3 ? p : { ...p, train: NaN, held_out: Infinity }));
  const most = (list) => Math.max(...list.map((p) => p.train).filter(Number.isFinite));
  assert.equal(most(thinned(many)), most(many));
});
