// Steps of torch models that make.py recorded, and what the page says of each model.

import { readFileSync } from "node:fs";
import { Trace } from "../../../components/static/trace.js";

/** A recording by its name: its files, its step as the widget reads it, the page's header. */
export function recorded(name) {
  const folder = new URL(`./${name}/`, import.meta.url);
  const text = (file) => readFileSync(new URL(file, folder), "utf8");
  const lines = text("events.jsonl");
  const arrays = new Uint8Array(readFileSync(new URL("arrays.bin", folder)));
  const header = JSON.parse(text("header.json"));
  const run = new Trace("step").append(lines, arrays, 0);
  return {
    name, lines, arrays, header, run, ops: header.ops, step: run.recorded[0],
    records: lines.trimEnd().split("\n").map((line) => JSON.parse(line)),
  };
}

export const NAMES = ["addition", "digits", "checkpointed"];
