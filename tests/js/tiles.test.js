// A model as tiles: every part stands where it can be seen, and shows what is there at the moment.

import assert from "node:assert/strict";
import test from "node:test";
import { duration, stops } from "../../components/static/step.js";
import { defaults, groupName, groupOf, groups, hit, layout, opName, states } from "../../components/static/tiles.js";
import { NAMES, recorded } from "./runs/recorded.js";

const models = NAMES.map(recorded);
const every = (claim, check) => models.forEach((c) => test(`${claim}: ${c.name}`, () => check(c)));
const addition = recorded("addition");

/** The op table of a transformer of so many layers, and a step that recorded all of its outputs. */
function deep(n) {
  const block = addition.ops.filter((op) => op.id.startsWith("blocks.0."));
  const at = addition.ops.indexOf(block[0]);
  const ops = [
    ...addition.ops.slice(0, at),
    ...Array.from({ length: n }, (_, i) => block.map((op) => ({ ...op, id: op.id.replace("blocks.0", `blocks.${i}`) }))).flat(),
    ...addition.ops.filter((op) => !op.id.startsWith("blocks.")).slice(at),
  ];
  return { ops, step: { arrays: new Map(ops.filter((op) => op.kind !== "loss").map((op) => [`${op.id} activation`, {}])) } };
}

// -- parts ------------------------------------------------------------------------------------------

test("a transformer's parts are the embedding, its blocks and the head", () => {
  const parts = groups(addition.ops, addition.step);
  assert.deepEqual(parts.map((p) => p.group), ["embed", "blocks.0", "blocks.1", "head"]);
  assert.deepEqual(parts.map((p) => groupName(p.group)), ["embed", "block 1", "block 2", "head"]);
  assert.deepEqual(parts.map((p) => p.main.id), ["embed.positions", "blocks.0.mlp.add", "blocks.1.mlp.add", "head"]);
});

test("a classifier's parts are its hidden layers and the head", () => {
  const { ops, step } = recorded("digits");
  const parts = groups(ops, step);
  assert.deepEqual(parts.map((p) => groupName(p.group)), ["hidden 1", "hidden 2", "head"]);
  assert.deepEqual(parts.map((p) => p.main.id), ["layers.0.act", "layers.1.act", "head.linear"]);
});

test("Llama's ops and the explicit mask have parts too", () => {
  for (const [id, group] of [["rope", "embed"], ["mask", "embed"], ["embed.drop", "embed"], ["blocks.11.attn.rope", "blocks.11"], ["norm", "head"], ["loss", "loss"]]) {
    assert.equal(groupOf(id), group, id);
  }
});

every("every op that gave an output stands in one part, in the order of the op table", ({ ops, step }) => {
  const shown = groups(ops, step).flatMap((p) => p.ops.map((op) => op.id));
  assert.deepEqual(shown, ops.map((op) => op.id).filter((id) => id !== "loss"));
});

test("an op's name inside its part is what is left of its id", () => {
  const names = [["blocks.3.attn.qkv", "attn.qkv"], ["layers.0.act", "act"], ["head.linear", "linear"], ["norm", "norm"]];
  for (const [id, name] of names) assert.equal(opName(id), name);
});

// -- places -----------------------------------------------------------------------------------------

/** Layouts of 1 to 12 layers on screens of 320 to 1400 px: nothing open, one part, and all. */
function* places() {
  for (let n = 1; n <= 12; n += 1) {
    const { ops, step } = deep(n);
    const parts = groups(ops, step);
    for (let width = 320; width <= 1400; width += 60) {
      for (const opened of [[], [parts[1].group], parts.map((p) => p.group)]) {
        for (const rows of [8, 32]) {
          const labels = Array(rows).fill("a");
          yield { place: layout(parts, new Set(opened), width, rows, labels), parts, opened, name: `${n} layers, ${width} px, ${opened.length} open` };
        }
      }
    }
  }
  const { ops, step } = recorded("digits");
  for (let width = 320; width <= 1400; width += 60) {
    const parts = groups(ops, step);
    yield { place: layout(parts, new Set([parts[0].group]), width, 32, null), parts, opened: [parts[0].group], name: `digits, ${width} px` };
  }
}
const boxes = (place) => [...place.tiles, ...place.openTiles];
const apart = (a, b) => a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;

test("every tile stands inside the canvas, with room for its name and for the bytes it keeps", () => {
  for (const { place, name } of places()) {
    for (const t of place.tiles) {
      assert.ok(t.x >= 0 && t.x + t.width <= place.width && t.y >= 24 && t.y + t.height + 5 + defaults.kept <= place.height, name);
    }
    for (const t of place.openTiles) {
      assert.ok(t.x >= 0 && t.x + t.width <= place.width && t.y + t.height + 30 <= place.height, name);
    }
  }
});

test("no two tiles overlap, nor the lines of text below an op's tile the next", () => {
  for (const { place, name } of places()) {
    const list = [...place.tiles, ...place.openTiles.map((t) => ({ ...t, height: t.height + 30 }))];
    list.forEach((a, i) => list.slice(i + 1).forEach((b) => assert.ok(apart(a, b), name)));
  }
});

test("the parts go left to right and can be seen: 8 px at the least", () => {
  for (const { place, name } of places()) {
    place.tiles.slice(1).forEach((t, i) => assert.ok(t.x > place.tiles[i].x, name));
    for (const t of boxes(place)) assert.ok(t.width >= 8 && t.height >= 8, `${name}: ${t.width} x ${t.height}`);
  }
});

test("there is a tile for each part, and one for each op of a part that is open", () => {
  for (const { place, parts, opened, name } of places()) {
    assert.deepEqual(place.tiles.map((t) => t.group), parts.map((p) => p.group), name);
    const ops = parts.filter((p) => opened.includes(p.group)).flatMap((p) => p.ops.map((op) => op.id));
    assert.deepEqual(place.openTiles.map((t) => t.op.id), ops, name);
  }
});

test("every open part has one heading, above its tiles and inside the canvas", () => {
  for (const { place, opened, name } of places()) {
    const headings = place.openTiles.filter((t) => t.heading);
    assert.deepEqual(headings.map((t) => t.heading.group), opened, name);
    for (const t of headings) assert.ok(t.heading.y < t.y && t.heading.y > place.tiles[0].y + place.tiles[0].height, name);
  }
});

test("in the middle of a tile the pointer is on its op", () => {
  for (const { place } of places()) {
    for (const t of place.tiles) assert.deepEqual(hit(place, t.x + t.width / 2, t.y + t.height / 2), { op: t.main.id, group: t.group });
    for (const t of place.openTiles) assert.deepEqual(hit(place, t.x + t.width / 2, t.y + t.height / 2), { op: t.op.id, group: t.group });
  }
});

test("beside the tiles the pointer is on nothing", () => {
  for (const { place } of places()) {
    assert.equal(hit(place, 1, 1), null);
    assert.equal(hit(place, place.width - 1, place.height - 1), null);
  }
});

// -- a moment ---------------------------------------------------------------------------------------

const at = ({ ops, step }, t) => states(step, ops, t);
const ids = (state, what) => [...state].filter(([, s]) => s[what]).map(([id]) => id);
/** Spans of the first micro-batch, and of the update. */
const first = ({ step }) => {
  const again = step.spans.findIndex((s, i) => i && s.phase === "forward" && step.spans[i - 1].phase !== "forward");
  return again < 0 ? step.spans : step.spans.slice(0, again);
};

every("at the first moment nothing is there; the first op computes", (c) => {
  const state = at(c, 0);
  for (const what of ["filled", "kept", "grad", "receiving"]) assert.deepEqual(ids(state, what), [], what);
  assert.deepEqual(ids(state, "computing"), [c.step.spans[0].op]);
});

every("forward fills the ops in their order, each once it has run", (c) => {
  const forward = first(c).filter((s) => s.phase === "forward" || s.phase === "loss");
  assert.deepEqual(forward.map((s) => s.op), c.ops.map((op) => op.id));
  forward.forEach((span, i) => {
    assert.deepEqual(ids(at(c, span.end_s - 1e-9), "filled"), c.ops.slice(0, i).map((op) => op.id));
    assert.deepEqual(ids(at(c, span.end_s), "filled"), c.ops.slice(0, i + 1).map((op) => op.id));
  });
});

every("gradients appear from the right to the left, each once all that read the output have gone backward", (c) => {
  const order = c.ops.map((op) => op.id);
  const seen = [];
  for (const span of first(c).filter((s) => s.phase === "backward")) {
    for (const id of ids(at(c, span.end_s), "grad")) if (!seen.includes(id)) seen.push(id);
  }
  const places = seen.map((id) => order.indexOf(id));
  assert.deepEqual(places, [...places].sort((a, b) => b - a));
  const read = new Set(c.ops.flatMap((op) => op.inputs));
  assert.deepEqual([...seen].sort(), order.filter((id) => read.has(id)).sort(), "every output that is read");
});

every("an output whose gradient shows has a recorded gradient", (c) => {
  const end = c.step.spans.findLast((s) => s.phase === "backward").end_s;
  for (const id of ids(at(c, end), "grad")) assert.ok(c.step.arrays.has(`${id} grad`), id);
});

every("what forward keeps is what the ledger measured, byte for byte, in every micro-batch", (c) => {
  const size = new Map(c.ops.map((op) => [op.id, op.saved_bytes]));
  for (const span of c.step.spans.filter((s) => s.phase === "forward")) {
    const held = ids(at(c, span.end_s), "kept").reduce((sum, id) => sum + size.get(id), 0);
    // The sample at the end of this very span: an op runs once for each micro-batch.
    const nth = c.step.spans.filter((s) => s.op === span.op && s.phase === "forward" && s.start_s < span.start_s).length;
    const ends = c.step.memory.filter((m, i) => m.phase === "forward" && m.op === span.op
      && (c.step.memory[i + 1]?.op !== m.op || c.step.memory[i + 1]?.phase !== m.phase));
    assert.equal(held, ends[nth].held_bytes.activations, `${span.op}, micro-batch ${nth + 1}`);
  }
});

every("after the last micro-batch's backward nothing is kept any more", (c) => {
  const end = c.step.spans.findLast((s) => s.phase === "backward").end_s;
  assert.deepEqual(ids(at(c, end), "kept"), []);
});

every("in backward no op lets go of what it keeps later than it has gone backward itself, nor before it began", (c) => {
  for (const span of first(c).filter((s) => s.phase === "backward")) {
    const keeps = c.ops.find((op) => op.id === span.op).saved_bytes > 0 && first(c).findLast((s) => s.op === span.op && s.phase === "backward") === span;
    if (!keeps) continue;
    assert.equal(at(c, span.start_s).get(span.op).kept, true, span.op);
    assert.equal(at(c, span.end_s).get(span.op).kept, false, span.op);
  }
});

every("one op computes or goes backward at a time, and it is the one whose span it is", (c) => {
  for (const span of c.step.spans) {
    const state = at(c, (span.start_s + span.end_s) / 2);
    const busy = [...ids(state, "computing"), ...ids(state, "receiving")];
    assert.deepEqual(busy, span.phase === "update" ? [] : [span.op]);
    assert.deepEqual(ids(state, "again"), span.phase === "recompute" ? [span.op] : []);
  }
});

every("gradients are cleared at the very end; outputs stay to be looked at", (c) => {
  const state = at(c, duration(c.step));
  assert.deepEqual(ids(state, "grad"), []);
  assert.deepEqual(ids(state, "filled"), c.ops.map((op) => op.id));
  assert.deepEqual([...ids(state, "computing"), ...ids(state, "receiving")], []);
});

every("the same moment gives the same picture, and asking changes nothing", (c) => {
  const table = structuredClone(c.ops);
  const times = stops(c.step);
  const seen = times.map((t) => [...at(c, t)]);
  assert.deepEqual([...times].reverse().map((t) => [...at(c, t)]).reverse(), seen);
  assert.deepEqual(c.ops, table);
});
