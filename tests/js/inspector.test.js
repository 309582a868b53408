// One weight in one step: the arithmetic shown gives the weight that was recorded after it.

import assert from "node:assert/strict";
import test from "node:test";
import { choices, parse, render, spell, working } from "../../components/static/inspector.js";
import { layersOf } from "../../components/static/step.js";
import * as made from "./runs/made.js";
import * as shipped from "./runs/shipped.js";

const SGD = { name: "sgd", learning_rate: 0.03 };
const MOMENTUM = { name: "momentum", learning_rate: 0.1, momentum: 0.9 };
const ADAMW = { name: "adamw", learning_rate: 0.01, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay: 0.01 };

const layers = layersOf(made.ops());
const steps = shipped.run().recorded;
const everyWeight = (features, widths) => choices(features, layersOf(made.ops({ hidden: widths.slice(0, -1) })), widths)
  .flatMap((group) => group.options.map((option) => option.value));
const near = (a, b, relative) => Math.abs(a - b) <= relative * Math.max(Math.abs(a), Math.abs(b));

/**
 * The last of some updates of a 2 x 3 weight by torch's own rules, step by step, as a recorded step.
 * SGD with momentum: v = mu v + g, w -= eta v. AdamW: w -= eta lambda w first, then
 * w -= eta / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon).
 */
function updated(optimizer, times) {
  const next = made.numbers(times);
  const some = () => Array.from({ length: 6 }, next);
  let w = some(), before, g;
  const [m, v] = [Array(6).fill(0), Array(6).fill(0)];
  for (let t = 1; t <= times; t += 1) {
    before = [...w];
    g = some();
    w = w.map((x, i) => {
      if (optimizer.name === "momentum") {
        m[i] = optimizer.momentum * m[i] + g[i];
        return x - optimizer.learning_rate * m[i];
      }
      m[i] = optimizer.beta_1 * m[i] + (1 - optimizer.beta_1) * g[i];
      v[i] = optimizer.beta_2 * v[i] + (1 - optimizer.beta_2) * g[i] * g[i];
      const size = Math.sqrt(v[i]) / Math.sqrt(1 - optimizer.beta_2 ** t) + optimizer.epsilon;
      const kept = x - optimizer.learning_rate * optimizer.weight_decay * x;
      return kept - (optimizer.learning_rate / (1 - optimizer.beta_1 ** t)) * (m[i] / size);
    });
  }
  const array = (role, values) => made.array(0, "head.linear", role, [2, 3], values);
  const state = optimizer.name === "momentum" ? [array("velocity", m)] : [
    array("m_hat", m.map((x) => x / (1 - optimizer.beta_1 ** times))),
    array("v_hat", v.map((x) => x / (1 - optimizer.beta_2 ** times))),
  ];
  return made.run([
    array("weight", before), array("grad_weight", g), array("finite_difference", g), array("weight_after", w), ...state,
    made.scalar(0, "recorded_step_s", 1e-4),
  ]).recorded[0];
}

const head = layersOf(made.ops({ hidden: [] }));
const sixWeights = [0, 1].flatMap((out) => [0, 1, 2].map((i) => ({ layer: 0, out, in: i })));

// -- the arithmetic ---------------------------------------------------------------------------------

test("SGD: every recorded weight after the step follows from the one before and its gradient", () => {
  for (const recorded of steps) {
    for (const value of everyWeight(["x", "y"], [4, 2, 1])) {
      const w = working(recorded, layers, parse(value), SGD);
      assert.ok(near(w.computed, w.after, 1e-6), `step ${recorded.step}, ${value}: ${w.computed} and ${w.after}`);
    }
  }
});

test("momentum: the formula gives what torch's rule gives, after one step and after many", () => {
  for (const times of [1, 2, 7]) {
    const recorded = updated(MOMENTUM, times);
    for (const selection of sixWeights) {
      const w = working(recorded, head, selection, MOMENTUM);
      assert.ok(near(w.computed, w.after, 1e-12));
      assert.notEqual(w.computed, w.before);
    }
  }
});

test("AdamW: the formula gives what torch's rule gives, decay included, after one step and after many", () => {
  for (const times of [1, 2, 7]) {
    const recorded = updated(ADAMW, times);
    for (const selection of sixWeights) {
      const w = working(recorded, head, selection, ADAMW);
      assert.ok(near(w.computed, w.after, 1e-12));
      assert.notEqual(w.computed, w.before);
    }
  }
});

test("every number is the recorded one of the weight that was asked for, the bias last in its row", () => {
  for (const recorded of steps) {
    for (const value of everyWeight(["x", "y"], [4, 2, 1])) {
      const { layer, out, in: i } = parse(value);
      const w = working(recorded, layers, { layer, out, in: i }, SGD);
      const stored = (role) => {
        const record = shipped.record(recorded.step, layers[layer].linear, role);
        return shipped.stored(record)[out * record.shape[1] + i];
      };
      assert.deepEqual(
        [w.before, w.grad, w.after, w.difference], ["weight", "grad_weight", "weight_after", "finite_difference"].map(stored));
      assert.equal(w.delta, w.after - w.before);
    }
  }
});

test("autograd and finite differences agree to 1e-4 wherever the gradient is not next to nothing", () => {
  for (const recorded of steps) {
    for (const value of everyWeight(["x", "y"], [4, 2, 1])) {
      const w = working(recorded, layers, parse(value), SGD);
      if (Math.abs(w.grad) > 1e-3) assert.ok(w.gap <= 1e-4, `step ${recorded.step}, ${value}: ${w.gap}`);
    }
  }
});

test("the gap is relative, nothing for equal numbers, also for two zeros", () => {
  const of = (grad, difference) => {
    const array = (role, x) => made.array(0, "head.linear", role, [1, 1], [x]);
    const recorded = made.run([
      array("weight", 1), array("grad_weight", grad), array("finite_difference", difference), array("weight_after", 1),
      made.scalar(0, "recorded_step_s", 1),
    ]).recorded[0];
    return working(recorded, head, { layer: 0, out: 0, in: 0 }, SGD).gap;
  };
  assert.equal(of(0, 0), 0);
  assert.equal(of(0.25, 0.25), 0);
  assert.ok(near(of(1e-3, 1.01e-3), 0.01 / 1.01, 1e-9));
  assert.equal(of(0, 1e-9), 1);
});

test("an optimizer that keeps nothing shows nothing that it kept", () => {
  const w = working(steps[0], layers, { layer: 0, out: 0, in: 0 }, SGD);
  assert.deepEqual([w.velocity, w.m_hat, w.v_hat], [null, null, null]);
});

// -- the list of weights ----------------------------------------------------------------------------

test("every parameter is in the list once, grouped by the layer it leads into", () => {
  for (const [features, hidden] of [[["x", "y"], [4, 2]], [["xy"], []], [["x", "y", "x2", "y2", "xy", "sinx", "siny"], Array(6).fill(8)]]) {
    const widths = [...hidden, 1], all = [features.length, ...widths];
    const groups = choices(features, layersOf(made.ops({ hidden })), widths);
    assert.deepEqual(groups.map((g) => g.options.length), widths.map((out, i) => (all[i] + 1) * out));
    const values = groups.flatMap((g) => g.options.map((o) => o.value));
    assert.equal(new Set(values).size, values.length);
    groups.forEach((group, layer) => group.options.forEach((o) => {
      const at = parse(o.value);
      assert.equal(at.layer, layer);
      assert.ok(at.out < widths[layer] && at.in <= all[layer]);
    }));
    assert.equal(groups.at(-1).label, "into the output");
  }
});

test("a name says where a weight comes from and where it goes", () => {
  const groups = choices(["x", "xy"], layersOf(made.ops({ hidden: [2] })), [2, 1]);
  assert.deepEqual(groups.map((g) => g.label), ["into hidden 1", "into the output"]);
  assert.deepEqual(groups.map((g) => g.options.map((o) => o.label)), [
    ["x → hidden 1 · 1", "x·y → hidden 1 · 1", "bias of hidden 1 · 1", "x → hidden 1 · 2", "x·y → hidden 1 · 2", "bias of hidden 1 · 2"],
    ["hidden 1 · 1 → output", "hidden 1 · 2 → output", "bias of output"],
  ]);
});

test("names differ within a group", () => {
  for (const group of choices(["x", "y"], layersOf(made.ops({ hidden: [8, 8] })), [8, 8, 1])) {
    assert.equal(new Set(group.options.map((o) => o.label)).size, group.options.length);
  }
});

test("a weight's spelling reads back as that weight", () => {
  for (const value of everyWeight(["x", "y"], [8, 8, 1])) assert.equal(spell(parse(value)), value);
  for (const selection of sixWeights) assert.deepEqual(parse(spell(selection)), selection);
});

// -- the card ---------------------------------------------------------------------------------------

/** The card's elements, filled with a working. */
function card(w, precision = "fp32") {
  const nodes = {};
  render((name) => (nodes[name] ??= { textContent: "", title: "" }), w, precision, "step 0");
  return nodes;
}

/** The number that a text of ours stands for. */
const number = (text) => Number(text.replace("−", "-").replace(/·10(.+)/, (_, e) => `e${[...e].map((d) => "-0123456789"["⁻⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(d)]).join("")}`));

test("pointing at a number gives the true one: its text reads back as the very bits", () => {
  for (const recorded of steps) {
    for (const value of everyWeight(["x", "y"], [4, 2, 1])) {
      const w = working(recorded, layers, parse(value), SGD);
      const shown = card(w);
      for (const name of ["before", "grad", "after"]) assert.equal(Math.fround(number(shown[name].title)), w[name], shown[name].title);
    }
  }
  const recorded = updated(ADAMW, 3);
  for (const selection of sixWeights) {
    const w = working(recorded, head, selection, ADAMW);
    const shown = card(w, "fp64");
    for (const name of ["before", "grad", "after"]) assert.equal(number(shown[name].title), w[name], shown[name].title);
  }
});

test("the card shows what the optimizer kept, and only what it kept", () => {
  const kept = (w) => card(w).extra.textContent;
  assert.equal(kept(working(steps[0], layers, parse("0/0/0"), SGD)), "");
  assert.match(kept(working(updated(MOMENTUM, 2), head, sixWeights[0], MOMENTUM)), /^v /);
  assert.match(kept(working(updated(ADAMW, 2), head, sixWeights[0], ADAMW)), /m̂ .* v̂ /);
});

test("a gap reads as a share: equal, in per cent, or as a power of ten where tiny", () => {
  const said = (gap) => card({ ...working(steps[0], layers, parse("0/0/0"), SGD), gap }).gap.textContent;
  assert.equal(said(0), "equal");
  assert.equal(said(0.0123), "relative gap 1.23 %");
  assert.equal(said(2.5e-7), "relative gap 2.5·10⁻⁷");
  assert.equal(said(1e-12), "relative gap 1.0·10⁻¹²");
});

test("the arithmetic shown holds the numbers of the card", () => {
  const w = working(steps[2], layers, parse("2/0/1"), SGD);
  const shown = card(w);
  for (const name of ["before", "grad", "after"]) assert.ok(shown.substituted.textContent.includes(shown[name].textContent));
  assert.ok(shown.substituted.textContent.includes("0.03"));
});
