// A chart's picture is a function of its message and its width: values stand where their axis says, no
// label is on another, and nothing that a page sends becomes markup.

import assert from "node:assert/strict";
import test from "node:test";
import { cardMarkup, escaped, legendMarkup, markup, overlay, symbol, tableMarkup } from "../../components/static/logchart.js";
import { between, defaults, labelled, layout, moved, nearest, readings, referenceAt, stops, told, totals } from "../../components/static/logchart_layout.js";
import { decades, errorText, evenly, exactly, readable, scale, spanned, spread, thinned, tickText } from "../../components/static/logchart_scale.js";

const COLOURS = { ink: "#111111", muted: "#555555", line: "#dddddd", background: "#ffffff", loss: "#d6336c", backward: "#d9641f", forward: "#2f7fdb", weights: "#35404d", optimizer: "#6a35c9" };
const WIDTHS = [330, 390, 700, 1180];

/** Numbers that are the same in every run: a linear congruential generator. */
function chance(seed) {
  let state = seed;
  return () => { state = (state * 1664525 + 1013904223) % 4294967296; return state / 4294967296; };
}

const LADDER = Array.from({ length: 15 }, (_, i) => 10 ** (5 + i * 0.5));
const train = (n) => 16 * n + 4e4 * n ** 0.62;
const answer = (n) => 2 * n;
const item = (x, y, label, id = "", rows = [], named = false) => [x, y, label, id, rows, named];

function figure(more = {}) {
  const sizes = Array.from({ length: 62 }, (_, i) => 10 ** (8 + i / 16));
  return {
    x: { title: "parameters", unit: "params", log: true, low: 6e4, high: 1.6e12 },
    y: { title: "bytes", unit: "B", log: true, low: null, high: null },
    series: [
      { kind: "line", name: "training", colour: "backward", dashed: true, points: LADDER.map((n) => [n, train(n)]), band: LADDER.slice(8).map((n) => [n, train(n) / 1.2, train(n) * 1.2]) },
      { kind: "line", name: "answering", colour: "forward", dashed: true, points: LADDER.map((n) => [n, answer(n)]), band: null },
      { kind: "points", name: "training, published", colour: "backward", symbol: "circle", filled: false, items: sizes.map((n, i) => item(n, train(n), `model ${i}`, `m${i}`, [["peak in", "backward"]], i % 4 === 0)) },
      { kind: "points", name: "answering, published", colour: "forward", symbol: "square", filled: false, items: sizes.map((n, i) => item(n, answer(n), `model ${i}`, `m${i}`)) },
    ],
    lines: Array.from({ length: 64 }, (_, i) => ({ at: 10 ** (9 + i / 20), label: `device ${i}`, axis: "y", strong: i === 40 })),
    measure: { x: 8e9, low: answer(8e9), high: train(8e9), text: "10.8 ×", label: "Llama 3.1 8B" },
    height: 470, summary: "bytes against parameters", beyond: "never measured here", empty: "nothing", picks: true,
    ...more,
  };
}

const stacked = () => figure({
  series: [{ kind: "stack", name: "at the peak", xs: LADDER, layers: [
    { name: "weights", colour: "weights", pattern: "", values: LADDER.map((n) => 2 * n) },
    { name: "optimizer", colour: "optimizer", pattern: "dotted", values: LADDER.map((n) => 12 * n) }] }],
  measure: null,
});

// -- numbers as text ------------------------------------------------------------------------------

test("numbers are read as people write them: decimal units, three digits, a true minus", () => {
  const cases = [
    [0, "B", "0 B"], [999, "B", "999 B"], [1000, "B", "1 kB"], [128_455_000_000, "B", "128 GB"], [999_600, "B", "1 MB"], [3.4e15, "B", "3.4 PB"],
    [100_000, "params", "100 k"], [1e6, "params", "1 M"], [8.03e9, "params", "8.03 B"], [405e9, "params", "405 B"], [1e12, "params", "1 T"],
    [989e12, "FLOP/s", "989 TFLOP/s"], [295, "FLOP/B", "295 FLOP/B"], [41.7, "tokens/s", "41.7 tokens/s"],
    [10.8, "x", "10.8 ×"], [1024, "1", "1,020"], [0.0125, "1", "0.0125"], [-12e9, "B", "−12 GB"], [0, "s", "0 s"], [4.8e-3, "s", "4.80 ms"],
    [2.5e-8, "s", "25 ns"], [90 * 60, "s", "90 min"], [86400 * 30, "s", "30 days"], [Number.NaN, "B", "–"], [null, "s", "–"],
  ];
  for (const [value, unit, text] of cases) assert.equal(readable(value, unit), text, `${value} ${unit}`);
});

test("a readable number is within half a unit of its third digit of the true one", () => {
  const next = chance(7);
  const sizes = { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
  for (let i = 0; i < 500; i += 1) {
    const value = 10 ** (next() * 17);
    const [number, unit] = readable(value, "B").split(" ");
    const read = Number(number.replace(",", "")) * sizes[unit.slice(0, -1)];
    assert.ok(Math.abs(read / value - 1) <= 0.00501 || value < 10, `${value}: ${number} ${unit}`);
  }
});

test("a card tells every digit that counts", () => {
  assert.equal(exactly(178_676_907_119, "B"), "179 GB (178,676,907,119 B)");
  assert.equal(exactly(8_030_261_248, "params"), "8.03 B (8,030,261,248)");
  assert.equal(exactly(999, "B"), "999 B");
});

test("an error is signed, and exact where there is none", () => {
  assert.deepEqual([0, 0.003, -0.12, 1e-8, 2.5, Number.NaN].map(errorText), ["exact", "+0.3 %", "−12 %", "< 0.0001 %", "+250 %", "–"]);
});

test("a tick's text has no zeros that say nothing, yet all that do", () => {
  assert.deepEqual([tickText(2e-3, "s"), tickText(0.5e-3, "s"), tickText(20, "1"), tickText(100e9, "B"), tickText(1500, "s")], ["2 ms", "500 µs", "20", "100 GB", "25 min"]);
});

// -- axes -----------------------------------------------------------------------------------------

test("a scale goes there and back, and its ends are the ends of the axis", () => {
  for (const log of [true, false]) {
    const s = scale({ log, low: 2, high: 5e6 }, 60, 700, 8);
    assert.ok(Math.abs(s.to(2) - 60) < 1e-9 && Math.abs(s.to(5e6) - 700) < 1e-9);
    for (const v of [2, 30, 4e4, 5e6]) assert.ok(Math.abs(s.from(s.to(v)) / v - 1) < 1e-9);
    for (const tick of s.ticks) assert.ok(tick >= 2 && tick <= 5e6);
  }
});

test("ticks are powers of ten, 1-2-5 where the span is short, and never fewer than two", () => {
  assert.deepEqual(decades(5, 8, 9), [1e5, 1e6, 1e7, 1e8]);
  assert.deepEqual(decades(0, 1, 9), [1, 2, 5, 10]);
  const next = chance(3);
  for (let i = 0; i < 300; i += 1) {
    const low = 10 ** (next() * 14 - 6);
    const high = low * 10 ** (0.05 + next() * 12);
    const { ticks } = scale({ log: true, low, high }, 0, 600, 9);
    assert.ok(ticks.length >= 2 && ticks.length <= 13, `${low}..${high}: ${ticks}`);
    for (const tick of ticks) assert.ok(tick >= low * 0.999 && tick <= high * 1.001);
  }
});

test("even ticks are round, in order, inside, and carry no error of adding", () => {
  assert.deepEqual(evenly(0, 1, 5), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  const next = chance(11);
  for (let i = 0; i < 300; i += 1) {
    const high = 10 ** (next() * 12);
    const ticks = evenly(0, high, 7);
    assert.ok(ticks.length >= 3 && ticks.length <= 9, String(high));
    for (const tick of ticks) assert.ok(String(tick).replace(/0+$|[.e]|\+\d+/g, "").length <= 4, String(tick));
  }
});

test("an axis without bounds spans its values; with no value, or one alone, it still is one", () => {
  for (const log of [true, false]) {
    for (const values of [[], [7], [7, 7], [0], [-3, 4], [Number.NaN, null, Infinity, 5], [1, 9e12]]) {
      for (const [low, high] of [[null, null], [1, null], [null, 10]]) {
        const s = spanned({ log, low, high }, values);
        assert.ok(Number.isFinite(s.low) && Number.isFinite(s.high) && s.high > s.low, JSON.stringify([log, values, low, high, s]));
        if (low === null && high === null) for (const v of values) if (Number.isFinite(v) && v !== null && (!log || v > 0)) assert.ok(v >= s.low && v <= s.high);
      }
    }
  }
});

test("ticks that would touch are thinned evenly", () => {
  const ticks = [0, 10, 20, 30, 40, 50, 60];
  assert.deepEqual(thinned(ticks, (v) => v, () => 9), ticks);
  assert.deepEqual(thinned(ticks, (v) => v, () => 15), [0, 20, 40, 60]);
  assert.deepEqual(thinned(ticks, (v) => v, () => 1000), [0]);
});

// -- labels ---------------------------------------------------------------------------------------

test("spread labels never touch, never lean further than they may, and stay inside", () => {
  const next = chance(5);
  for (let run = 0; run < 200; run += 1) {
    const labels = Array.from({ length: 1 + Math.floor(next() * 60) }, (_, i) => ({ i, at: next() * 400, size: 15, weight: next() }));
    const kept = spread(labels, { most: 13, low: 0, high: 400 });
    const heaviest = labels.reduce((a, b) => (b.weight > a.weight ? b : a));
    assert.ok(kept.some((k) => k.i === heaviest.i), "the heaviest has its place");
    kept.forEach((k, n) => {
      assert.ok(Math.abs(k.at - labels[k.i].at) <= 13 + 1e-9);
      assert.ok(k.at >= 7.5 - 1e-9 && k.at <= 392.5 + 1e-9);
      if (n) assert.ok(k.at - kept[n - 1].at >= 15 - 1e-9);
    });
  }
});

const boxOf = (t) => { const w = t.text.length * defaults.letter; return { x: t.x - (t.anchor === "end" ? w : t.anchor === "middle" ? w / 2 : 0), y: t.y - 11, w, h: 14 }; };
const touch = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

test("no label is on another, at any width, with 64 lines across and 16 names; the strong line is named", () => {
  for (const width of WIDTHS) {
    for (const shown of [figure(), figure({ lines: [...figure().lines, { at: 3e8, label: "here", axis: "x" }, { at: 4e8, label: "there", axis: "x", strong: true }] }), stacked()]) {
      const view = layout(shown, width);
      const found = labelled(view);
      const texts = [...found.across.map((l) => l.label), ...found.along.map((l) => l.label), ...found.names, ...(found.measure?.texts ?? [])].filter(Boolean);
      assert.ok(texts.length > 5);
      assert.ok(found.across.find((l) => l.strong).label, `the strong line at ${width}`);
      texts.forEach((a, i) => texts.slice(i + 1).forEach((b) => assert.ok(!touch(boxOf(a), boxOf(b)), `${width}: "${a.text}" on "${b.text}"`)));
      for (const t of texts) assert.ok(boxOf(t).x >= 0 && boxOf(t).x + boxOf(t).w <= width + 1, `${width}: ${t.text} is cut off`);
    }
  }
});

test("a line without room for its name is told when the pointer is on it", () => {
  const view = layout(figure(), 1180);
  const silent = labelled(view).across.filter((l) => !l.label);
  assert.ok(silent.length);
  for (const l of silent) assert.ok(Math.abs(view.y.to(referenceAt(view, view.y.to(l.at)).at) - view.y.to(l.at)) < 1e-6);
  assert.equal(referenceAt(view, view.y.to(1e7)), null);
});

test("a name stands clear of points and lines, and none of another series' points is nearer", () => {
  const view = layout(figure(), 1180);
  for (const name of labelled(view).names) {
    view.drawn.forEach((d) => (d.dots ?? []).forEach((dot) => {
      assert.ok(!touch(boxOf(name), { x: dot[0] - 4, y: dot[1] - 4, w: 8, h: 8 }), name.text);
    }));
  }
});

// -- places ---------------------------------------------------------------------------------------

test("values stand where their axes say, on both kinds of axis", () => {
  for (const width of WIDTHS) {
    for (const f of [figure(), figure({ y: { title: "bytes", unit: "B", log: false, low: null, high: null } })]) {
      const view = layout(f, width);
      view.shown.forEach((s, i) => (s.items ?? []).forEach((p, k) => {
        const [px, py] = view.drawn[i].dots[k];
        assert.ok(Math.abs(px - view.x.to(p[0])) < 0.06 && Math.abs(py - view.y.to(p[1])) < 0.06);
        assert.ok(px >= view.left && px <= width && py >= 0 && py <= view.height);
      }));
      assert.ok(view.left < width / 2.5);
    }
  }
});

test("what has no place on an axis is not drawn as if it had one", () => {
  const bad = { kind: "points", name: "p", colour: "ink", symbol: "circle", items: [item(1e6, 0, "zero"), item(1e6, -5, "negative"), item(1e6, null, "gap"), item(1e15, 1e9, "outside"), item(1e6, 1e9, "fine")] };
  const line = { kind: "line", name: "l", colour: "ink", points: [[1e6, 1e6], [1e7, 0], [1e8, 1e8], [1e9, 1e9]], band: null };
  const view = layout(figure({ series: [bad, line], lines: [{ at: 0, label: "nothing", axis: "y" }, { at: 1e40, label: "far", axis: "y" }], measure: { x: 1e6, low: 0, high: 3, text: "?" } }), 900);
  assert.deepEqual(view.drawn[0].dots.map(Boolean), [false, false, false, false, true]);
  assert.deepEqual(view.drawn[1].path.map(Boolean), [true, false, true, true]);
  const drawn = markup(view, COLOURS, "t");
  assert.ok(!/NaN|undefined|null|Infinity/.test(drawn));
  assert.equal(labelled(view).across.length, 0);
  assert.equal(labelled(view).measure, null);
});

test("a stack's boundaries are cumulative sums, on a logarithmic axis too", () => {
  const view = layout(stacked(), 900);
  const [weights, optimizer] = view.drawn[0].areas;
  LADDER.forEach((n, i) => {
    assert.ok(Math.abs(weights[i][1] - view.y.to(2 * n)) < 0.06);
    assert.ok(Math.abs(optimizer[i][1] - view.y.to(14 * n)) < 0.06);
    assert.deepEqual(optimizer[optimizer.length - 1 - i], weights[i], "what is above begins where what is below ends");
  });
  totals(stacked().series[0]).forEach((sum, i) => assert.ok(Math.abs(sum / (14 * LADDER[i]) - 1) < 1e-12));
});

test("hidden series and layers are left out, the others stand on what is left", () => {
  const view = layout(stacked(), 900, new Set(["weights"]));
  assert.deepEqual(view.shown[0].layers.map((l) => l.name), ["optimizer"]);
  assert.ok(Math.abs(view.drawn[0].areas[0][0][1] - view.y.to(12 * LADDER[0])) < 0.06);
  const none = layout(figure(), 900, new Set(figure().series.map((s) => s.name)));
  assert.equal(none.shown.length, 0);
  assert.ok(!/NaN|Infinity/.test(markup(none, COLOURS, "t")));
});

test("on its way a picture goes from one to the other, by names, whatever else comes or goes", () => {
  const before = layout(figure(), 900);
  const f = figure();
  const other = layout({ ...f, series: [{ kind: "line", name: "new", colour: "ink", points: [[1e6, 1e6]], band: null }, ...f.series.map((s) => (s.items ? { ...s, items: [...s.items].reverse().slice(5).map((p) => item(p[0], p[1] * 2, ...p.slice(2))) } : s))], y: { ...f.y, low: 1e4, high: 1e15 } }, 900);
  assert.deepEqual(between(before.drawn, other.drawn, 1), other.drawn);
  const start = between(before.drawn, other.drawn, 0);
  const [from, to] = [before.drawn[2], start[3]];
  to.keys.forEach((key, i) => assert.deepEqual(to.dots[i], from.dots[from.keys.indexOf(key)]));
  assert.deepEqual(start[1].path, before.drawn[0].path);
  assert.deepEqual(start[0].path, other.drawn[0].path, "what was not there is there at once");
  between(before.drawn, other.drawn, 0.5)[1].path.forEach(([, py], i) => {
    assert.ok(Math.abs(py - (before.drawn[0].path[i][1] + other.drawn[1].path[i][1]) / 2) <= 0.06);
  });
});

// -- what is pointed at ---------------------------------------------------------------------------

test("the nearest point within reach, and none beyond it", () => {
  const view = layout(figure(), 1180);
  const [px, py] = view.drawn[2].dots[30];
  const { series, item: found } = nearest(view, px + 1, py - 1);
  assert.deepEqual([series, found], [2, 30]);
  assert.equal(nearest(view, view.left + 2, 60), null);
});

test("arrow keys visit every point once from left to right, and change series at the same size", () => {
  const view = layout(figure(), 900);
  let stop = moved(view, null, "ArrowRight");
  assert.equal(view.shown[stop.series].kind, "points", "it begins at a point");
  const seen = [stop.item];
  for (let i = 0; i < 100; i += 1) {
    const next = moved(view, stop, "ArrowRight");
    if (next.item === stop.item) break;
    assert.ok(next.place[0] >= stop.place[0]);
    seen.push(next.item);
    stop = next;
  }
  assert.equal(new Set(seen).size, 62);
  const up = moved(view, stop, "ArrowUp");
  assert.notEqual(up.series, stop.series);
  assert.equal(up.place[0], stop.place[0]);
  assert.equal(moved(view, stop, "Home").item, seen[0]);
  const series = new Set();
  for (let i = 0, at = stop; i < 4; i += 1) { at = moved(view, at, "ArrowDown"); series.add(at.series); }
  assert.equal(series.size, 4, "lines can be visited too");
});

test("a chart of lines alone, a stack, and nothing can all be asked for the next stop", () => {
  const lines = layout(figure({ series: figure().series.slice(0, 1) }), 900);
  assert.equal(moved(lines, moved(lines, null, "ArrowRight"), "ArrowRight").item, 1);
  assert.equal(stops(layout(stacked(), 900))[0].length, LADDER.length);
  assert.equal(moved(layout(figure({ series: [] }), 900), null, "ArrowRight"), null);
});

test("a reading between two points lies on the straight line that is drawn between them", () => {
  const two = (log, low, high) => layout(figure({ measure: null, lines: [], x: { unit: "1", title: "x", log, low: 1, high: 100 }, y: { unit: "1", title: "y", log, low: 1, high: 1e4 }, series: [{ kind: "line", name: "l", colour: "ink", points: [[1, low], [100, high]], band: null }] }), 900);
  const [{ value }] = readings(two(true, 1, 1e4), 10);
  assert.ok(Math.abs(value - 100) < 1e-6, "a power law is straight on two logarithmic axes");
  assert.ok(Math.abs(readings(two(false, 1, 1e4), 50.5)[0].value - 5000.5) < 1e-6);
  assert.deepEqual(readings(two(true, 1, 1e4), 0.5), []);
  assert.deepEqual(readings(two(true, 1, 1e4), 101), []);
  const sums = readings(layout(stacked(), 900), LADDER[3]);
  assert.ok(Math.abs(sums.at(-1).value / (14 * LADDER[3]) - 1) < 1e-12);
});

test("a point's card tells what else bears its id, and the error of predicted against measured", () => {
  const f = figure();
  f.series.push({ kind: "points", name: "training, measured", colour: "backward", symbol: "circle", filled: true, items: [item(1e8, train(1e8) / 1.1, "model 0", "m0")] });
  const card = told(layout(f, 900), { series: 2, item: 0 });
  assert.equal(card.title, "model 0");
  const rows = Object.fromEntries(card.rows);
  assert.equal(rows.error, "+10 %");
  assert.equal(rows["answering, published"], exactly(answer(1e8), "B"));
  assert.equal(rows["peak in"], "backward");
  assert.equal(Object.fromEntries(told(layout(f, 900), { series: 4, item: 0 }).rows).error, "+10 %", "from either side");
});

// -- markup ---------------------------------------------------------------------------------------

test("measured is filled, predicted hollow or dashed, and what was never measured hatched", () => {
  const series = [{ kind: "points", name: "m", colour: "backward", filled: true, symbol: "circle", items: [item(1e6, 1e8, "a")] }, { kind: "points", name: "p", colour: "backward", filled: false, symbol: "diamond", items: [item(1e6, 1e9, "a")] }, { kind: "line", name: "d", colour: "forward", dashed: true, points: [[1e6, 1e6], [1e9, 1e9]], band: [[1e8, 1e7, 1e9], [1e9, 1e8, 1e10]] }, { kind: "line", name: "s", colour: "forward", dashed: false, points: [[1e6, 1e7], [1e9, 1e10]], band: null }];
  const drawn = markup(layout(figure({ series, lines: [], measure: null }), 900), COLOURS, "t");
  assert.match(drawn, /fill="#d9641f" stroke="#ffffff"/);
  assert.match(drawn, /fill="#ffffff" stroke="#d9641f"/);
  assert.match(drawn, /url\(#t-beyond-2f7fdb\)/);
  assert.equal(drawn.match(/stroke-dasharray="7 4"/g).length, 1);
  assert.equal(new Set(["circle", "square", "diamond", "triangle"].map((kind) => symbol(kind, 5, 5, 4))).size, 4);
});

test("every pattern that is used is defined, once, in the legend too", () => {
  for (const f of [figure(), stacked()]) {
    const text = markup(layout(f, 900), COLOURS, "t") + legendMarkup(f, new Set(), COLOURS, "t");
    const ids = [...text.matchAll(/ id="([^"]+)"/g)].map((m) => m[1]);
    assert.equal(new Set(ids).size, ids.length);
    for (const [, id] of text.matchAll(/url\(#([^)]+)\)/g)) assert.ok(ids.includes(id), id);
  }
});

test("what a page sends is text, wherever it stands", () => {
  assert.equal(escaped(`<img src=x onerror="alert('1')">&`), "&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;");
  const evil = '<img src=x onerror="1">';
  const f = figure({ x: { title: evil, unit: evil, log: true, low: 1, high: 1e9 }, lines: [{ at: 1e6, label: evil, axis: "y", strong: true }, { at: 1e6, label: evil, axis: "x" }], measure: { x: 1e6, low: 1e6, high: 1e7, text: evil, label: evil }, beyond: evil, series: [{ kind: "points", name: evil, colour: evil, filled: true, symbol: evil, items: [item(1e6, 1e6, evil, evil, [[evil, evil]], true)] }, { kind: "line", name: evil, colour: evil, points: [[1e3, 1e6]], band: [[1e3, 1e5, 1e7]] }] });
  const view = layout(f, 900);
  for (const text of [markup(view, COLOURS, "t"), legendMarkup(f, new Set(), COLOURS, "t"), tableMarkup(f), cardMarkup(told(view, { series: 0, item: 0 }), evil), overlay(view, COLOURS, { cross: 200, reference: f.lines[0] })]) assert.ok(!text.includes("<img"));
});

test("the table holds every point, every place of a line and a stack, and every line across", () => {
  const f = figure();
  const rows = (text) => text.match(/<tr>/g).length - 1;
  assert.equal(rows(tableMarkup(f)), f.series.reduce((n, s) => n + (s.items ?? s.points).length, 0) + f.lines.length);
  assert.equal(rows(tableMarkup(stacked())), 2 * LADDER.length + f.lines.length);
});
