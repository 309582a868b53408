// Bars are to scale on one axis, their labels do not touch, and what has no room is told.

import assert from "node:assert/strict";
import test from "node:test";
import { between, defaults, layout, markup, moved, tableMarkup, told } from "../../components/static/stacks.js";

const C = { ink: "#111111", muted: "#555555", background: "#ffffff", loss: "#d6336c", weights: "#35404d" };
const segment = (name, value, pattern = "") => ({ name, value, colour: "weights", pattern, why: "" });
const figure = (scale = 1, more = {}) => ({
  rows: [
    { name: "training", note: "in backward", segments: [segment("weights", 16e9 * scale), segment("gradients", 16e9 * scale, "hatched"), segment("optimizer state", 64e9 * scale, "dotted"), segment("nothing", 0), segment("activations", 8e9 * scale), segment("logits", 0.6e9 * scale), segment("temporaries", 1e9 * scale, "thin")] },
    { name: "answering", note: "", segments: [segment("weights", 16e9 * scale), segment("KV cache", 1e9 * scale), segment("temporaries", 0.3e9 * scale)] },
  ],
  unit: "B", summary: "bars", capacity: { at: 80e9, label: "H100 80 GB" }, ...more,
});
const WIDTHS = [330, 390, 700, 1180];

test("widths are to scale, segments follow each other, and both rows share one axis", () => {
  for (const width of WIDTHS) {
    const view = layout(figure(), width);
    const perByte = (view.x(1e9) - view.x(0)) / 1e9;
    for (const row of view.rows) {
      row.segments.forEach((s, i) => {
        assert.ok(Math.abs(s.w - Math.max(0.6, s.value * perByte)) < 1e-6, s.name);
        if (i) assert.ok(Math.abs(s.x - view.x(row.segments.slice(0, i).reduce((sum, t) => sum + t.value, 0))) < 1e-6);
      });
      assert.ok(row.end <= width && !row.segments.some((s) => s.name === "nothing"));
    }
  }
});

test("labels beneath do not touch, no lead crosses a text, and all are inside", () => {
  for (const width of WIDTHS) {
    for (const row of layout(figure(), width).rows) {
      row.labels.forEach((a, i) => {
        assert.ok(a.x >= 0 && a.x + a.w <= width);
        row.labels.slice(i + 1).forEach((b) => {
          if (a.tier === b.tier) assert.ok(a.x + a.w <= b.x || b.x + b.w <= a.x, `${width}: ${a.text} on ${b.text}`);
          const [upper, lower] = a.tier < b.tier ? [a, b] : [b, a];
          if (a.tier !== b.tier) assert.ok(lower.from < upper.x || lower.from > upper.x + upper.w, `${width}: the lead of ${lower.text} through ${upper.text}`);
        });
      });
    }
  }
});

test("with room every part is named, and on a phone at least the three largest of a step", () => {
  assert.deepEqual(layout(figure(), 1180).rows.map((r) => r.labels.length), [6, 3]);
  const named = layout(figure(), 360).rows[0].labels.map((l) => l.text);
  assert.ok(named.length >= 3, named.join());
});

test("on a phone a sliver's name never takes the place of a large part's", () => {
  const parts = [segment("weights", 16.1e9), segment("gradients", 16.1e9), segment("optimizer state", 96.4e9), segment("activations", 16.8e6), segment("temporaries", 32.8e3)];
  const [row] = layout(figure(1, { rows: [{ name: "a training step", note: "", segments: parts }] }), 358).rows;
  assert.deepEqual([0, 1, 2].filter((i) => !row.labels.some((l) => l.i === i)), []);
});

test("what goes beyond the capacity is marked, to scale, and told", () => {
  const view = layout(figure(), 900);
  const [training, answering] = view.rows;
  assert.equal(answering.over, null);
  assert.ok(Math.abs(training.over.x - view.x(80e9)) < 1e-9);
  assert.ok(Math.abs(training.over.value - 25.6e9) < 1);
  assert.match(markup(view, figure(), C, "t"), /url\(#t-beyond-111111\)/);
  const said = told(figure(), training, training.segments[0]);
  assert.deepEqual(said.rows[0], ["training", "16 GB (16,000,000,000 B)"]);
  assert.equal(Object.fromEntries(said.rows).over, "25.6 GB more than H100 80 GB");
});

test("a capacity far beyond the bars does not squeeze them; it is said", () => {
  const view = layout(figure(1e-3), 900);
  assert.equal(view.near, false);
  assert.ok(view.rows[0].end > 800);
  assert.match(markup(view, figure(1e-3), C, "t"), /H100 80 GB: 80 GB, beyond this axis/);
});

test("nothing at all, and no capacity, are drawn without a number that is none", () => {
  for (const f of [figure(0), figure(1, { capacity: null }), figure(1, { rows: [] })]) {
    const view = layout(f, 600);
    assert.ok(!/NaN|Infinity|undefined/.test(markup(view, f, C, "t")));
  }
});

test("arrow keys walk along a row and between rows, over every part that is drawn", () => {
  const view = layout(figure(), 900);
  let at = moved(view, null, "ArrowRight");
  const seen = [];
  for (let i = 0; i < 9; i += 1) { seen.push(at.i); at = moved(view, at, "ArrowRight"); }
  assert.deepEqual([...new Set(seen)], [0, 1, 2, 4, 5, 6]);
  const below = moved(view, at, "ArrowDown");
  assert.equal(below.row, 1);
  assert.ok(view.rows[1].segments.some((s) => s.i === below.i));
  assert.equal(moved(layout(figure(0), 900), null, "ArrowRight"), null);
});

test("on its way every part has a value in between, and ends where it should", () => {
  const mid = between(figure(1), figure(3), 0.5);
  assert.equal(mid.rows[0].segments[0].value, 32e9);
  assert.deepEqual(between(figure(1), figure(3), 1), figure(3));
  const other = { ...figure(), rows: [{ name: "other", segments: [segment("x", 5)], note: "" }] };
  assert.deepEqual(between(figure(), other, 0.3), other);
});

test("names are text, and the table holds every part, each sum, and the capacity", () => {
  const evil = figure(1, { rows: [{ name: '"><img src=x>', note: "<b>", segments: [segment("<i>x", 5e9)] }], capacity: { at: 1e9, label: "<u>" } });
  const view = layout(evil, 900);
  for (const text of [markup(view, evil, C, "t", { row: 0, i: 0 }), tableMarkup(evil)]) assert.ok(!/<img|<b>|<i>|<u>/.test(text));
  assert.equal(tableMarkup(figure()).match(/<tr>/g).length - 1, 7 + 3 + 2 + 1);
  assert.ok(defaults.tiers >= 2);
});
