// Reads run folders with the widget's own code and prints what it makes of them, for Python to compare.
// Arguments: a JSON list of {folder, ops, optimizer, features}.

import { readFileSync } from "node:fs";
import { choices, parse, working } from "../../components/static/inspector.js";
import { frame, layersOf, timeline } from "../../components/static/step.js";
import { Trace } from "../../components/static/trace.js";

const runs = JSON.parse(process.argv[2]).map(({ folder, ops, optimizer, features }) => {
  const trace = new Trace().append(readFileSync(`${folder}/events.jsonl`), new Uint8Array(readFileSync(`${folder}/arrays.bin`)), 0);
  const layers = layersOf(ops);
  return {
    n_frames: trace.frames.length,
    steps: trace.recorded.map((recorded) => ({
      step: recorded.step,
      scalars: recorded.scalars,
      arrays: Object.fromEntries([...recorded.arrays].map(([key, a]) => [key, { shape: a.shape, values: Array.from(a.values, (_, i) => a.at(i)) }])),
      held_bytes: timeline(recorded).map((point) => point.held_bytes),
      // Bytes of the outputs that the picture shows as held when each op has ended.
      outputs: recorded.spans.map((span) => frame(recorded, ops, span.end_s).columns
        .filter((column) => column.filled && !column.released)
        .reduce((sum, column) => sum + recorded.arrays.get(`${column.output} activation`).values.byteLength, 0)),
      weights: choices(features, layers, frame(recorded, ops, 0).widths.slice(1)).flatMap((group) => group.options)
        .map((option) => { const w = working(recorded, layers, parse(option.value), optimizer); return [w.before, w.computed, w.after]; }),
    })),
  };
});
console.log(JSON.stringify(runs));
