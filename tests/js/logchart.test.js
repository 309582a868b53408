// The chart of values against a size: axes, places, what a pointer finds, what a reader is told.

import assert from "node:assert/strict";
import test from "node:test";
import { decades, evenly, exactly, placed, readable, scale, spanned } from "../../components/static/logchart_scale.js";
import { between, escaped, layout, markup, nearest, pointLabels, readings, symbol, tableMarkup, totals } from "../../components/static/logchart.js";
import { layout as stacked, labels, markup as bars } from "../../components/static/stacks.js";

const COLOURS = { ink: "#1d2733", muted: "#5a6673", line: "#d9d7d0", background: "#ffffff", loss: "#d6336c", backward: "#d9641f", forward: "#2f7fdb", weights: "#35404d" };
const figure = {
  x: { title: "parameters", unit: "params", log: true, low: 1e5, high: 1e12 },
  y: { title: "bytes", unit: "B", log: true, low: null, high: null },
  series: [
    { kind: "line", name: "predicted", colour: "backward", dashed: true, points: [[1e5, 1e6], [1e8, 1e9], [1e12, 1e13]], band: [[1e8, 9e8, 1.1e9], [1e12, 9e12, 1.1e13]] },
    { kind: "points", name: "models", colour: "backward", symbol: "circle", filled: false, items: [[8e9, 8e10, "An 8B", "8b", [["peak in", "loss"]], true], [7e10, 7e11, "A 70B", "70b", [], true]] },
    { kind: "points", name: "measured", colour: "forward", symbol: "square", filled: true, items: [[1e6, 1e7, "here", "", [], false]] },
  ],
  lines: [{ at: 8e10, label: "80 GB <card>", axis: "y", strong: true }, { at: 8.1e10, label: "81 GB", axis: "y", strong: false }],
  measure: { x: 8e9, low: 1.6e10, high: 8e10, text: "5 times", label: "An 8B" },
  height: 400,
  summary: "bytes against parameters",
};

test("numbers have three digits and a decimal unit", () => {
  assert.equal(readable(1.285e11, "B"), "129 GB");
  assert.equal(readable(999.6e9, "B"), "1 TB");
  assert.equal(readable(640, "B"), "640 B");
  assert.equal(readable(8.03e9, "params"), "8.03 B");
  assert.equal(readable(405e9, "params"), "405 B");
  assert.equal(readable(989e12, "FLOP/s"), "989 TFLOP/s");
  assert.equal(readable(295.2, "FLOP/B"), "295 FLOP/B");
  assert.equal(readable(0.0044, "s"), "4.40 ms");
  assert.equal(readable(86400 * 30, "s"), "30 days");
  assert.equal(readable(-2e9, "B"), "−2 GB");
  assert.equal(readable(null, "B"), "–");
  assert.equal(readable(NaN, "s"), "–");
  assert.equal(exactly(1_234_567, "B"), "1.235 MB (1,234,567 B)");
});

test("a scale maps its ends to its pixels, and back", () => {
  for (const log of [true, false]) {
    const s = scale({ log, low: 1, high: 1000 }, 50, 650, 5);
    assert.ok(Math.abs(s.to(1) - 50) < 1e-9 && Math.abs(s.to(1000) - 650) < 1e-9);
    for (const v of [1, 3, 40, 999]) assert.ok(Math.abs(s.from(s.to(v)) - v) < 1e-6 * v);
  }
  assert.equal(scale({ log: true, low: 1, high: 1000 }, 50, 650, 5).to(0), 50);
});

test("decades are no more than asked for, and short spans have ticks too", () => {
  assert.deepEqual(decades(5, 12, 20).length, 8);
  for (const most of [2, 3, 4, 9]) assert.ok(decades(-3, 13, most).length <= most + 1, `${most}`);
  assert.ok(decades(0.1, 0.9, 5).length >= 1);
  assert.deepEqual(evenly(0, 100, 5), [0, 20, 40, 60, 80, 100]);
});

test("a span holds all values, and an axis without any is still one", () => {
  const span = spanned({ log: true, low: null, high: null }, [3, 40, 0, -1, NaN, 5e6]);
  assert.ok(span.low <= 3 && span.high >= 5e6);
  const none = spanned({ log: true, low: null, high: null }, []);
  assert.ok(none.low > 0 && none.high > none.low);
  const flat = spanned({ log: false, low: null, high: null }, [0]);
  assert.ok(flat.high > flat.low);
});

test("labels do not touch, and the heavier ones stay", () => {
  const labels20 = Array.from({ length: 60 }, (_, i) => ({ at: 100 + i, size: 15, weight: i, label: `${i}` }));
  const kept = placed(labels20, 1, 0, 400).sort((a, b) => a.at - b.at);
  assert.ok(kept.some((l) => l.label === "59"));
  for (let i = 1; i < kept.length; i += 1) assert.ok(kept[i].at - kept[i - 1].at >= 15);
});

for (const width of [360, 390, 1100]) {
  test(`at ${width} px everything stands inside`, () => {
    const view = layout(figure, width);
    for (const d of view.drawn) {
      for (const [x, y] of [...(d.path ?? []), ...(d.dots ?? [])]) {
        assert.ok(x >= view.left - 1 && x <= width && y >= 0 && y <= view.height, `${x} ${y}`);
      }
    }
    const svg = markup(view, COLOURS, "a");
    assert.ok(!svg.includes("NaN") && !svg.includes("undefined"));
    assert.ok(svg.includes("80 GB &lt;card&gt;") && !svg.includes("<card>"));
    assert.ok(svg.includes("5 times"));
  });
}

test("text from outside is never markup", () => {
  assert.equal(escaped(`<img src=x onerror="alert('1')">&`), "&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;");
  const evil = { ...figure, series: [{ ...figure.series[1], name: "<b>", items: [[1e9, 1e9, "<script>1</script>", "x", [], true]] }] };
  for (const text of [markup(layout(evil, 900), COLOURS, "a"), tableMarkup(evil)]) assert.ok(!text.includes("<script>"));
});

test("a pointer finds the point that is nearest, and nothing where none is", () => {
  const view = layout(figure, 1100);
  const [x, y] = view.drawn[1].dots[0];
  assert.deepEqual({ ...nearest(view, x + 3, y - 2), distance: 0 }, { series: 1, item: 0, distance: 0 });
  assert.equal(nearest(view, x + 200, 20), null);
});

test("lines are read between their points on the axes' own scales", () => {
  const [found] = readings(layout(figure, 1100), 1e10);
  assert.ok(Math.abs(found.value / 1e11 - 1) < 1e-9);
  assert.deepEqual(readings(layout(figure, 1100), 10), []);
});

test("what is hidden has no place, and tables hold every number", () => {
  const view = layout(figure, 900, new Set(["models"]));
  assert.equal(view.shown.length, 2);
  const table = tableMarkup(figure);
  for (const text of ["An 8B", "8 B", "80 GB", "here", "10 MB (10,000,000 B)"]) assert.ok(table.includes(text), text);
});

test("a stack's layers lie on each other and sum to its top", () => {
  const stack = { kind: "stack", name: "s", xs: [1e6, 1e9], layers: [{ name: "a", colour: "weights", pattern: "", values: [10, 100] }, { name: "b", colour: "forward", pattern: "hatched", values: [5, 1000] }] };
  assert.deepEqual(totals(stack), [15, 1100]);
  const view = layout({ ...figure, lines: [], measure: null, series: [stack] }, 900);
  const [lower, upper] = view.drawn[0].areas;
  assert.deepEqual(lower.slice(0, 2), upper.slice(2).reverse());
  assert.ok(!markup(view, COLOURS, "a").includes("NaN"));
});

test("in between is in between, and another structure is drawn as it is", () => {
  const a = layout(figure, 900).drawn;
  const b = layout({ ...figure, series: figure.series.map((s) => (s.kind === "line" ? { ...s, points: s.points.map(([x, y]) => [x, y * 4]) } : s)) }, 900).drawn;
  const half = between(a, b, 0.5);
  half[0].path.forEach(([, y], i) => assert.ok(Math.abs(y - (a[0].path[i][1] + b[0].path[i][1]) / 2) <= 0.06));
  assert.deepEqual(between([{ path: [[0, 0]] }], b, 0.5)[0].path, b[0].path);
});

test("names beside points do not overlap", () => {
  const items = Array.from({ length: 30 }, (_, i) => [1e9 * 1.02 ** i, 1e9, `model ${i}`, `${i}`, [], true]);
  const found = pointLabels(layout({ ...figure, series: [{ ...figure.series[1], items }] }, 900));
  assert.ok(found.length >= 1 && found.length < 30);
});

test("every symbol is a path of its own", () => {
  const kinds = ["circle", "square", "diamond", "triangle"].map((k) => symbol(k, 5, 5, 4));
  assert.equal(new Set(kinds).size, 4);
});

const STACKS = {
  unit: "B", summary: "s", capacity: { at: 80e9, label: "80 GB" },
  rows: [
    { name: "training", note: "loss", segments: [{ name: "weights", value: 16e9, colour: "weights", pattern: "" }, { name: "optimizer", value: 96e9, colour: "forward", pattern: "dotted" }, { name: "none", value: 0, colour: "loss", pattern: "" }] },
    { name: "answering", note: "", segments: [{ name: "weights", value: 16e9, colour: "weights", pattern: "" }] },
  ],
};

test("bars are to scale on one axis", () => {
  const view = stacked(STACKS, 900);
  const [training, answering] = view.rows;
  assert.equal(training.segments.length, 2);
  assert.ok(Math.abs(training.segments[1].w / training.segments[0].w - 6) < 1e-6);
  assert.equal(training.segments[0].w, answering.segments[0].w);
  assert.ok(training.end <= 900);
  const svg = bars(view, STACKS, COLOURS, "b");
  assert.ok(svg.includes("80 GB") && svg.includes("-beyond-") && !svg.includes("NaN"));
});

test("labels under a bar do not touch", () => {
  for (const width of [340, 900]) {
    for (const row of stacked(STACKS, width).rows) {
      const found = labels(row, width, "B").sort((a, b) => a.x - b.x);
      for (let i = 1; i < found.length; i += 1) assert.ok(found[i].x >= found[i - 1].x + found[i - 1].w);
      for (const l of found) assert.ok(l.x >= 0);
    }
  }
});
