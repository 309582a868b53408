// Answers to read: the shipped ones, and ones made by hand, whose every time is known.

import { readFileSync } from "node:fs";
import { Trace } from "../../../components/static/trace.js";
import { array, run, scalar } from "./made.js";

/** A shipped answer by its folder's name: its files, read by the widget's code, and its settings. */
export function shipped(name) {
  const folder = new URL(`../../../core/recordings/${name}/`, import.meta.url);
  const lines = readFileSync(new URL("events.jsonl", folder), "utf8");
  const arrays = new Uint8Array(readFileSync(new URL("arrays.bin", folder)));
  const records = lines.trimEnd().split("\n").map((line) => JSON.parse(line));
  return { name, lines, arrays, records, spec: records[0].spec, trace: new Trace().append(lines, arrays, 0) };
}

export const NAMES = ["answer", "sum"];

/** Ops after which a layer has a token's keys and values. */
export function writersOf(trace) {
  const ids = trace.texts.get("ops")[0].split(" ");
  const turned = ids.filter((id) => id.endsWith(".attn.rope"));
  return new Set(turned.length ? turned : ids.filter((id) => id.endsWith(".attn.qkv")));
}

export const OPS = ["embed.tokens", "blocks.0.attn.qkv", "blocks.0.mlp.add", "blocks.1.attn.qkv", "blocks.1.mlp.add", "head"];
export const WRITERS = new Set(OPS.filter((id) => id.endsWith("qkv")));

export const token = (fields) => ({ type: "Token", row: 0, id: 7, text: " a", ...fields });

/**
 * An answer whose trips begin at `starts` and take a second each, an op every 0.15 s; `nPrompt` tokens
 * of prompt. `rows`: sequences; `times`: whether trips were timed op by op.
 */
export function answer({ nPrompt = 3, starts = [0, 1, 2], rows = 1, times = true } = {}) {
  return run([
    { type: "Sample", step: 0, name: "ops", text: OPS.join(" ") },
    ...Array.from({ length: nPrompt }, (_, i) => token({ step: 0, phase: "prompt", id: i, text: `p${i}` })),
    ...starts.flatMap((start, step) => [
      ...Array.from({ length: rows }, (_, row) => token({
        step, row, phase: step ? "decode" : "prefill", id: 10 + step, text: ` t${step}`, start_s: start, end_s: start + 1, prob: 0.5,
        top: row ? [] : [[10 + step, ` t${step}`, 0.5], [1, " x", 0.3]],
      })),
      ...(times ? [array(step, "trip", "op_ends", [OPS.length], OPS.map((_, i) => 0.15 * (i + 1)), "f8")] : []),
    ]),
    scalar(0, "kv_cache_bytes", 800),
  ]);
}
