// One weight in the recorded step: before, gradient, update, after, with the arithmetic.

import { exact } from "./player.js";
import { featureName, layerName } from "./scene.js";

/** The recorded numbers of one weight: plain data, drawn by `render`. */
export function working(recorded, layers, selection, optimizer) {
  const op = layers[selection.layer].linear;
  const read = (role) => {
    const array = recorded.arrays.get(`${op} ${role}`);
    return array ? array.at(selection.out * array.shape[1] + selection.in) : null;
  };
  const before = read("weight"), grad = read("grad_weight"), after = read("weight_after");
  const difference = read("finite_difference");
  const gap = Math.abs(grad - difference) / Math.max(Math.abs(grad), Math.abs(difference), 1e-300);
  return {
    before, grad, after, difference, gap: grad === difference ? 0 : gap, delta: after - before,
    velocity: read("velocity"), m_hat: read("m_hat"), v_hat: read("v_hat"), ...arithmetic({
      before, grad, after, velocity: read("velocity"), m_hat: read("m_hat"), v_hat: read("v_hat"),
    }, optimizer),
  };
}

function arithmetic(w, o) {
  const [eta, n] = [exact(o.learning_rate), exact];
  const rate = `learning rate η = ${eta}`;
  if (o.name === "momentum") {
    return {
      rate: `${rate}, momentum μ = ${exact(o.momentum)}`,
      formula: "w′ = w − η·v,  v = μ·v + g",
      substituted: `${n(w.before)} − ${eta} × (${n(w.velocity)}) = ${n(w.after)}`,
      computed: w.before - o.learning_rate * w.velocity,
    };
  }
  if (o.name === "adamw") {
    const decayed = 1 - o.learning_rate * o.weight_decay;
    const step = w.m_hat / (Math.sqrt(w.v_hat) + o.epsilon);
    return {
      rate: `${rate}, decay λ = ${exact(o.weight_decay)}, ε = ${exact(o.epsilon)}`,
      formula: "w′ = w·(1 − η·λ) − η·m̂ ∕ (√v̂ + ε)",
      substituted: `${n(w.before)} × ${exact(decayed, 7)} − ${eta} × ${n(w.m_hat)} ∕ (√${n(w.v_hat)} + ${n(o.epsilon)}) = ${n(w.after)}`,
      computed: w.before * decayed - o.learning_rate * step,
    };
  }
  return {
    rate,
    formula: "w′ = w − η·g",
    substituted: `${n(w.before)} − ${eta} × (${n(w.grad)}) = ${n(w.after)}`,
    computed: w.before - o.learning_rate * w.grad,
  };
}

/** Every weight by name, grouped by layer: [{label, options: [{value, label}]}]. */
export function choices(features, layers, widths) {
  return layers.map((_, layer) => {
    const sources = layer === 0 ? features.map(featureName) : Array.from({ length: widths[layer - 1] }, (_, i) => `${layerName(layers, layer - 1)} · ${i + 1}`);
    const to = (out) => (layer === layers.length - 1 ? "output" : `${layerName(layers, layer)} · ${out + 1}`);
    const options = [];
    for (let out = 0; out < widths[layer]; out += 1) {
      sources.forEach((source, i) => options.push({ value: `${layer}/${out}/${i}`, label: `${source} → ${to(out)}` }));
      options.push({ value: `${layer}/${out}/${sources.length}`, label: `bias of ${to(out)}` });
    }
    return { label: layer === layers.length - 1 ? "into the output" : `into ${layerName(layers, layer)}`, options };
  });
}

export const parse = (value) => {
  const [layer, out, i] = value.split("/").map(Number);
  return { layer, out, in: i };
};
export const spell = (s) => `${s.layer}/${s.out}/${s.in}`;

/** Fill the card. `node(name)` gives its elements. */
export function render(node, w, precision, step) {
  const digits = precision === "fp64" ? 17 : 9; // as many as tell every number of the format apart
  node("before").textContent = exact(w.before, 6);
  node("before").title = exact(w.before, digits);
  node("grad").textContent = exact(w.grad, 6);
  node("grad").title = exact(w.grad, digits);
  node("after").textContent = exact(w.after, 6);
  node("after").title = exact(w.after, digits);
  node("difference").textContent = exact(w.difference, 6);
  node("gap").textContent = w.gap === 0 ? "equal" : `relative gap ${w.gap < 1e-4 ? w.gap.toExponential(1).replace("e-", "·10⁻").replace(/⁻(\d+)/, (_, d) => "⁻" + [...d].map((x) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[x]).join("")) : `${(w.gap * 100).toFixed(2)} %`}`;
  node("formula").textContent = w.formula;
  node("substituted").textContent = w.substituted;
  node("rate").textContent = w.rate;
  node("delta").textContent = `moved by ${exact(w.delta, 4)}`;
  const extra = w.velocity !== null ? `v ${exact(w.velocity, 6)}` : w.m_hat !== null ? `m̂ ${exact(w.m_hat, 6)} · v̂ ${exact(w.v_hat, 6)} · decay λ takes a share of w itself` : "";
  node("extra").textContent = extra;
  node("step").textContent = step;
}
