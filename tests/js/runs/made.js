// Runs made by hand, in the format of a run folder: any shape, numbers of no meaning.

import { Trace } from "../../../components/static/trace.js";

const TYPES = { u1: Uint8Array, i1: Int8Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };

/** Event lines and array bytes of records; an array's numbers stand in `values`. */
export function folder(records) {
  let size = 0;
  const parts = [];
  const lines = records.map(({ values, ...record }) => {
    if (!values) return record;
    const bytes = new Uint8Array(new TYPES[record.dtype](values).buffer);
    parts.push([size, bytes]);
    size += bytes.length;
    return { ...record, offset: size - bytes.length };
  });
  const arrays = new Uint8Array(size);
  for (const [offset, bytes] of parts) arrays.set(bytes, offset);
  return { lines: lines.map((line) => `${JSON.stringify(line)}\n`).join(""), arrays };
}

/** A run of such records, as the widget reads it. */
export function run(records) {
  const { lines, arrays } = folder(records);
  return new Trace().append(lines, arrays, 0);
}

export const scalar = (step, name, value) => ({ type: "Scalar", step, name, value });
export const array = (step, op, role, shape, values, dtype = "f8") => (
  { type: "Array", step, op, role, dtype, shape, values });

/** The op table's ids and kinds, as the page sends them. */
export function ops({ hidden = [4, 2], activation = "tanh" } = {}) {
  const layers = hidden.map((_, i) => [`layers.${i}`, activation]);
  return [...[...layers, ["head", "tanh"]].flatMap(([name, kind]) => [
    { id: `${name}.linear`, kind: "linear" },
    ...(kind === "linear" ? [] : [{ id: `${name}.act`, kind }]),
  ]), { id: "loss", kind: "loss" }];
}

/** Numbers between -1 and 1 that look random and are the same each time. */
export function numbers(seed = 1) {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return state / 1073741824 - 1;
  };
}

/** One recorded step of a network of some shape. */
export function step({ features = ["x", "y"], hidden = [4, 2], activation = "tanh", batch = 3 } = {}) {
  const next = numbers();
  const some = (n) => Array.from({ length: n }, next);
  const table = ops({ hidden, activation });
  const forward = table.slice(0, -1).map((op) => op.id);
  const order = [
    ...forward.map((op) => ["forward", op]), ["loss", "loss"], ["backward", "loss"],
    ...[...forward].reverse().map((op) => ["backward", op]),
    ["update", "optimizer.step"], ["update", "optimizer.zero_grad"],
  ];
  let at = 0;
  const spans = order.map(([phase, op], i) => {
    const span = { type: "Span", step: 0, phase, op, start_s: at, end_s: at + (1 + (i % 3)) * 1e-6 };
    at = span.end_s;
    return span;
  });
  const memory = order.flatMap(([phase, op], i) => Array.from({ length: 1 + (i % 2) }, (_, k) => ({
    type: "Memory", step: 0, phase, op,
    held_bytes: {
      weights: 100, inputs: 40, optimizer: 0, activations: 8 * i, gradients: 4 * k, temporaries: i % 5,
    },
  })));
  const widths = [features.length, ...hidden, 1];
  const widthOf = Object.fromEntries([...hidden.map((_, i) => `layers.${i}`), "head"].map((name, i) => [name, i + 1]));
  const layer = (op) => widthOf[op.slice(0, op.lastIndexOf("."))];
  return run([
    scalar(0, "loss", 0.5), scalar(0, "batch_examples", batch),
    array(0, "data", "batch", [batch], some(batch).map((_, i) => i), "i4"),
    array(0, "input", "activation", [batch, features.length], some(batch * features.length)),
    array(0, "target", "activation", [batch, 1], some(batch).map(Math.sign)),
    ...forward.flatMap((op) => ["activation", "grad"].map((role) =>
      array(0, op, role, [batch, widths[layer(op)]], some(batch * widths[layer(op)])))),
    ...forward.filter((op) => op.endsWith("linear")).flatMap((op) =>
      ["weight", "grad_weight", "finite_difference", "weight_after"].map((role) => {
        const shape = [widths[layer(op)], widths[layer(op) - 1] + 1];
        return array(0, op, role, shape, some(shape[0] * shape[1]));
      })),
    ...memory, ...spans, scalar(0, "recorded_step_s", at),
  ]).recorded[0];
}
