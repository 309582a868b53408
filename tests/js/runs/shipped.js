// The shipped recording: its two files, and a plain reading of them to compare the widget's with.

import { readFileSync } from "node:fs";
import { Trace } from "../../../components/static/trace.js";

const folder = new URL("../../../core/recordings/circle/", import.meta.url);

export const lines = readFileSync(new URL("events.jsonl", folder), "utf8");
export const arrays = new Uint8Array(readFileSync(new URL("arrays.bin", folder)));
export const records = lines.trimEnd().split("\n").map((line) => JSON.parse(line));
export const { spec } = records[0];

/** Read by the widget's code, in one piece. */
export const run = () => new Trace().append(lines, arrays, 0);

const READ = { u1: "getUint8", i1: "getInt8", i4: "getInt32", f4: "getFloat32", f8: "getFloat64" };

/** Stored numbers of an Array record, read one by one. */
export function stored(record, bytes = arrays) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const n = record.shape.reduce((a, b) => a * b, 1);
  const size = Number(record.dtype.at(-1));
  return Array.from({ length: n }, (_, i) => view[READ[record.dtype]](record.offset + i * size, true));
}

/** The Array record of an op in a role at a step. */
export const record = (step, op, role) => records.find(
  (r) => r.type === "Array" && r.step === step && r.op === op && r.role === role);

/** Steps that were recorded op by op. */
export const steps = records.filter((r) => r.name === "recorded_step_s").map((r) => r.step);
