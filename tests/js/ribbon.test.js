// The ribbon stacks what was held, byte for byte, over the whole step.

import assert from "node:assert/strict";
import test from "node:test";
import { bands, categoryName, defaults, fill, scales } from "../../components/static/ribbon.js";
import { CATEGORIES, duration } from "../../components/static/step.js";
import * as made from "./runs/made.js";
import * as shipped from "./runs/shipped.js";

const steps = [...shipped.run().recorded, made.step(), made.step({ hidden: [] }), made.step({ hidden: [3, 3], activation: "linear" })];

/** The bands that are drawn at a moment, from the bottom up. */
const at = (list, t) => list.filter((b) => b.t0 <= t && t < b.t1).sort((a, b) => a.low - b.low);

/** Moments between any two edges. */
function moments(list) {
  const edges = [...new Set(list.flatMap((b) => [b.t0, b.t1]))].sort((a, b) => a - b);
  return edges.slice(1).map((t, i) => (t + edges[i]) / 2);
}

test("bands stack without a gap, weights at the bottom, in the order of the categories", () => {
  for (const recorded of steps) {
    const list = bands(recorded);
    for (const t of moments(list)) {
      const stack = at(list, t);
      assert.equal(stack[0].low, 0);
      assert.equal(stack[0].category, "weights");
      stack.slice(1).forEach((band, i) => assert.equal(band.low, stack[i].high));
      const order = stack.map((b) => CATEGORIES.indexOf(b.category));
      assert.deepEqual(order, [...order].sort((a, b) => a - b));
    }
  }
});

test("at every moment each category is as high as it has recorded bytes", () => {
  for (const recorded of steps) {
    const list = bands(recorded);
    const shown = moments(list).map((t) => Object.fromEntries(at(list, t).map((b) => [b.category, b.high - b.low])));
    const samples = recorded.memory.map((m) => Object.fromEntries(Object.entries(m.held_bytes).filter(([, n]) => n)));
    assert.deepEqual(shown, samples);
  }
});

test("the stack reaches from the step's beginning to its end, without a hole", () => {
  for (const recorded of steps) {
    const weights = bands(recorded).filter((b) => b.category === "weights");
    assert.equal(weights[0].t0, 0);
    assert.equal(weights.at(-1).t1, duration(recorded));
    weights.slice(1).forEach((b, i) => assert.equal(b.t0, weights[i].t1));
  }
});

test("time and place turn into each other, and the step fills the width", () => {
  for (const recorded of steps) {
    for (const width of [320, 700, 1400]) {
      const s = scales(recorded, width), end = duration(recorded);
      assert.equal(s.x(0), defaults.left);
      assert.ok(Math.abs(s.x(end) - (width - defaults.right)) < 1e-9);
      for (const t of [0, end / 3, end]) assert.ok(Math.abs(s.t(s.x(t)) - t) < 1e-12);
    }
  }
});

test("no bytes stand on the axis, and the most that were held fit below the top", () => {
  for (const recorded of steps) {
    const s = scales(recorded, 700);
    const most = Math.max(...bands(recorded).map((b) => b.high));
    assert.equal(s.y(0), s.bottom);
    assert.ok(s.y(most) >= defaults.top && s.y(most) < s.bottom);
    assert.ok(s.bottom < defaults.height);
  }
});

test("twice the bytes are twice as high", () => {
  const s = scales(steps[0], 700);
  assert.ok(Math.abs((s.y(0) - s.y(200)) / (s.y(0) - s.y(100)) - 2) < 1e-12);
});

test("every category has a name of its own", () => {
  const names = CATEGORIES.map(categoryName);
  assert.ok(names.every(Boolean));
  assert.equal(new Set(names).size, CATEGORIES.length);
});

test("a category without a pattern is filled with its own colour", () => {
  const colours = Object.fromEntries(CATEGORIES.map((category, i) => [category, `#00000${i}`]));
  for (const category of ["weights", "inputs", "activations", "temporaries"]) assert.equal(fill(null, category, colours), colours[category]);
});
