// The network stands where it can be seen, its cells hold the recorded numbers, the pointer finds what is drawn.

import assert from "node:assert/strict";
import test from "node:test";
import { cellColour, cells, defaults, dotPlace, featureName, hit, layerName, layout, links } from "../../components/static/scene.js";
import { duration, frame, layersOf } from "../../components/static/step.js";
import { rgb } from "../../components/static/player.js";
import * as made from "./runs/made.js";
import * as shipped from "./runs/shipped.js";

const FEATURES = ["x", "y", "x2", "y2", "xy", "sinx", "siny"];
const COLOURS = {
  background: "#ffffff", empty: "#f6f4ee", neutral: "#f4f2ec", negative: "#8e3b8f", positive: "#2f8f4e", backward: "#d9641f",
};
const ops = made.ops();
const steps = shipped.run().recorded;

/** Every network whose layers are equally wide, from the smallest to the largest allowed, at many widths. */
function* places() {
  for (let depth = 0; depth <= 6; depth += 1) {
    for (let width = 1; width <= 8; width += 1) {
      for (let n = 1; n <= 7; n += 1) {
        for (let size = 320; size <= 1400; size += 40) {
          const widths = [...Array(depth).fill(width), 1];
          yield { place: layout(FEATURES.slice(0, n), widths, size), widths, n, size };
        }
      }
    }
  }
}

/** What a neuron takes up: its tile and the three strips below it. */
const box = (unit) => ({
  left: unit.x, right: unit.x + unit.size, top: unit.y, bottom: unit.y + unit.size + 3 * (defaults.strip + defaults.gap),
});
const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
const plane = ({ x, y, size }) => ({ left: x, right: x + size, top: y, bottom: y + size });
const inside = (b, place) => b.left >= 0 && b.top >= 0 && b.right <= place.width && b.bottom <= place.height;
const name = ({ widths, n, size }) => `${n} inputs, ${widths}, ${size} px`;

test("there is a column for the inputs and one for each layer, with a place for each neuron", () => {
  for (const c of places()) {
    assert.deepEqual(c.place.columns.map((column) => column.units.length), [c.n, ...c.widths], name(c));
  }
});

test("every neuron with its strips, every bias and the plane stand inside the canvas", () => {
  for (const c of places()) {
    for (const column of c.place.columns) for (const unit of column.units) assert.ok(inside(box(unit), c.place), name(c));
    assert.ok(inside(plane(c.place.plot), c.place), name(c));
  }
});

test("no two neurons overlap, nor their strips, nor any of them the plane", () => {
  for (const c of places()) {
    const boxes = c.place.columns.flatMap((column) => column.units.map(box));
    for (const [i, a] of boxes.entries()) {
      assert.ok(apart(a, plane(c.place.plot)), `${name(c)}: a neuron over the plane`);
      for (const b of boxes.slice(i + 1)) if (!apart(a, b)) assert.fail(`${name(c)}: two neurons overlap`);
    }
  }
});

test("columns go left to right with room for links between them", () => {
  for (const c of places()) {
    c.place.columns.slice(1).forEach((column, i) => {
      assert.ok(column.x - (c.place.columns[i].x + c.place.tile) >= 8, name(c));
    });
  }
});

test("on a narrow screen the plane stands below the network, on a wide one beside it", () => {
  for (const c of places()) {
    const units = c.place.columns.flatMap((column) => column.units.map(box));
    if (c.size < defaults.narrow) assert.ok(units.every((u) => u.bottom <= c.place.plot.y), name(c));
    else assert.ok(units.every((u) => u.right <= c.place.plot.x), name(c));
  }
});

test("the plane and the neurons' pictures stay large enough to be seen", () => {
  for (const c of places()) {
    assert.ok(c.place.plot.size >= 200, name(c));
    assert.ok(c.place.tile >= 16, name(c));
  }
});

test("there are as many links and biases as the network has parameters, each once", () => {
  for (const [features, hidden] of [[["x", "y"], [4, 2]], [["x"], []], [FEATURES, [8, 8, 8, 8, 8, 8]], [["x", "xy"], [1, 7, 3]]]) {
    const widths = [features.length, ...hidden, 1];
    const n = widths.slice(1).reduce((sum, out, i) => sum + (widths[i] + 1) * out, 0);
    const list = links(layout(features, [...hidden, 1], 900));
    assert.equal(list.length, n);
    assert.equal(new Set(list.map((l) => `${l.layer}/${l.out}/${l.in}`)).size, n);
    for (const l of list) assert.equal(l.bias, l.in === widths[l.layer], "the bias comes after the weights");
  }
});

test("a link goes from the right edge of its source to the left edge of its neuron", () => {
  const place = layout(["x", "y"], [4, 2, 1], 900);
  for (const l of links(place)) {
    if (l.bias) continue;
    const [from, to] = [place.columns[l.layer].units[l.in], place.columns[l.layer + 1].units[l.out]];
    assert.deepEqual(l.points[0], [from.x + from.size, from.y + from.size / 2]);
    assert.deepEqual(l.points.at(-1), [to.x, to.y + to.size / 2]);
  }
});

// -- what the pointer is on -------------------------------------------------------------------------

const HIT = [320, 390, 640, 900, 1400].flatMap((size) => [
  { features: ["x", "y"], widths: [4, 2, 1], size }, { features: ["x"], widths: [1], size },
  { features: FEATURES, widths: [8, 8, 8, 8, 8, 8, 1], size },
]);

test("in the middle of a neuron the pointer is on that neuron", () => {
  for (const { features, widths, size } of HIT) {
    const place = layout(features, widths, size), all = links(place);
    place.columns.forEach((c, column) => c.units.forEach((u, index) => {
      assert.deepEqual(hit(place, all, u.x + u.size / 2, u.y + u.size / 2), { unit: { column, index } });
    }));
  }
});

test("on a bias dot the pointer is on that bias", () => {
  for (const { features, widths, size } of HIT) {
    const place = layout(features, widths, size), all = links(place);
    for (const link of all.filter((l) => l.bias)) assert.equal(hit(place, all, link.x, link.y).link, link);
  }
});

test("somewhere along every link the pointer is on that link", () => {
  for (const { features, widths, size } of HIT) {
    const place = layout(features, widths, size), all = links(place);
    for (const link of all.filter((l) => !l.bias)) {
      const found = link.points.slice(1, -1).some(([x, y]) => hit(place, all, x, y)?.link === link);
      assert.ok(found, `${widths}, ${size} px: ${link.layer}/${link.out}/${link.in}`);
    }
  }
});

test("along a link the pointer is always on something at most 8 px away", () => {
  const place = layout(["x", "y"], [4, 2, 1], 900), all = links(place);
  for (const link of all.filter((l) => !l.bias)) {
    for (let i = 1; i < link.points.length; i += 1) {
      const [x, y] = [0, 1].map((k) => (link.points[i - 1][k] + link.points[i][k]) / 2); // between two points of it
      assert.ok(hit(place, all, x, y), `${link.layer}/${link.out}/${link.in}`);
    }
  }
});

test("on empty ground the pointer is on nothing", () => {
  const place = layout(["x", "y"], [4, 2, 1], 900);
  assert.equal(hit(place, links(place), 1, 1), null);
  assert.equal(hit(place, links(place), place.plot.x + 50, place.plot.y + 50), null);
});

// -- cells ------------------------------------------------------------------------------------------

const place = layout(shipped.spec.features, [...shipped.spec.hidden, 1], 900);
const allCells = (recorded, t) => cells(place, recorded, frame(recorded, ops, t));
const moments = (recorded) => recorded.spans.flatMap((s) => [s.start_s, (s.start_s + s.end_s) / 2]);

test("every cell that is not empty holds the recorded number of its op, neuron and example", () => {
  for (const recorded of steps) {
    const rows = new Map();
    for (const t of [...moments(recorded), duration(recorded)]) {
      for (const cell of allCells(recorded, t).filter((c) => !c.empty)) {
        const role = cell.kind === "grad" ? "grad" : "activation";
        const key = `${cell.op} ${role}`;
        if (!rows.has(key)) {
          const record = shipped.record(recorded.step, cell.op, role);
          rows.set(key, { width: record.shape[1], numbers: shipped.stored(record) });
        }
        const { width, numbers } = rows.get(key);
        assert.equal(cell.value, numbers[cell.example * width + cell.unit], key);
      }
    }
    const layers = layersOf(ops);
    const drawn = ["input activation", "target activation", ...layers.flatMap((l) => [`${l.output} activation`, `${l.output} grad`])];
    assert.deepEqual([...rows.keys()].sort(), drawn.sort());
  }
});

test("each neuron has one cell for each example in every strip of its own", () => {
  const [recorded] = steps;
  const list = allCells(recorded, 0);
  const strips = new Map();
  for (const c of list) {
    const key = `${c.op} ${c.kind} ${c.unit}`;
    strips.set(key, [...(strips.get(key) ?? []), c.example]);
  }
  for (const examples of strips.values()) assert.deepEqual(examples, Array.from({ length: 10 }, (_, i) => i));
  const neurons = 2 + 4 + 2 + 1; // one strip for each output, one for each gradient but the inputs', one for the target
  assert.equal(strips.size, neurons + (neurons - 2) + 1);
});

test("the cells of a neuron stand below its tile, inside its width, and none on another", () => {
  const list = allCells(steps[0], 0);
  const seen = new Set();
  for (const cell of list) {
    const unit = place.columns.flatMap((c) => c.units).find(
      (u) => cell.x >= u.x - 1e-9 && cell.x + cell.w <= u.x + u.size + 1e-9 && cell.y >= u.y + u.size && cell.y + cell.h <= box(u).bottom);
    assert.ok(unit, `${cell.op} ${cell.unit}`);
    const key = `${cell.x.toFixed(3)} ${cell.y.toFixed(3)}`;
    assert.ok(!seen.has(key), "two cells in one place");
    seen.add(key);
  }
});

test("a value that does not exist yet is empty, one that was let go is released", () => {
  for (const recorded of steps) {
    for (const t of moments(recorded)) {
      const state = frame(recorded, ops, t);
      for (const cell of cells(place, recorded, state)) {
        const column = state.columns.find((c) => c.output === cell.op);
        if (!column) assert.deepEqual([cell.empty, cell.released], [false, false]);
        else if (cell.kind === "grad") assert.equal(cell.empty, !column.grad);
        else assert.deepEqual([cell.empty, cell.released], [!column.filled, column.released]);
      }
    }
  }
});

test("a recorded number that were another would have another colour", () => {
  const [recorded] = shipped.run().recorded.slice(2);
  const colourOf = (key) => {
    const cell = allCells(recorded, duration(recorded)).find((c) => `${c.op} ${c.kind} ${c.unit} ${c.example}` === key);
    return cellColour(COLOURS, cell);
  };
  for (const cell of allCells(recorded, duration(recorded))) {
    const key = `${cell.op} ${cell.kind} ${cell.unit} ${cell.example}`;
    const array = recorded.arrays.get(`${cell.op} ${cell.kind === "grad" ? "grad" : "activation"}`);
    const i = cell.example * array.shape[1] + cell.unit;
    const [before, value] = [colourOf(key), array.values[i]];
    const most = Math.max(...Array.from(array.values, Math.abs));
    // A gradient shows its size, anything else its sign too.
    if (cell.kind === "grad") array.values[i] = Math.abs(value) > most / 2 ? 0 : most;
    else array.values[i] = value < 0 ? most : -most;
    assert.notEqual(colourOf(key), before, key);
    array.values[i] = value;
  }
});

test("a cell's share of the colour scale is within the scale, and keeps the sign", () => {
  for (const recorded of steps) {
    for (const cell of allCells(recorded, duration(recorded))) {
      if (cell.op === "input") continue;
      assert.ok(Math.abs(cell.share) <= 1, `${cell.op} ${cell.share}`);
      assert.equal(Math.sign(cell.share), Math.sign(cell.value));
    }
  }
});

test("outputs of tanh are drawn on the scale from -1 to 1, not on their own", () => {
  for (const cell of allCells(steps[0], duration(steps[0])).filter((c) => c.op.endsWith(".act") && c.kind !== "grad")) {
    assert.equal(cell.share, cell.value);
  }
});

test("a larger gradient is nearer to the colour of backward, whatever its sign", () => {
  const colour = (share) => rgb(cellColour(COLOURS, { kind: "grad", share }));
  assert.deepEqual(colour(1), rgb(COLOURS.backward));
  assert.deepEqual(colour(-0.4), colour(0.4));
  const distance = (share) => Math.hypot(...colour(share).map((v, i) => v - rgb(COLOURS.backward)[i]));
  for (let share = 0; share < 0.95; share += 0.1) assert.ok(distance(share + 0.1) < distance(share));
});

test("a shape of any kind has cells at every moment: no hidden layer, no activation, the largest", () => {
  for (const shape of [{ hidden: [] }, { hidden: [3], activation: "linear" }, { hidden: Array(6).fill(8), features: FEATURES, batch: 30 }]) {
    const recorded = made.step(shape), table = made.ops(shape);
    const features = shape.features ?? ["x", "y"];
    const where = layout(features, [...shape.hidden, 1], 700);
    for (const t of moments(recorded)) {
      for (const cell of cells(where, recorded, frame(recorded, table, t))) assert.ok(Number.isFinite(cell.share));
    }
  }
});

// -- names and places -------------------------------------------------------------------------------

test("every feature has a name to read, and a layer is named by its place", () => {
  assert.deepEqual(FEATURES.map(featureName), ["x", "y", "x²", "y²", "x·y", "sin x", "sin y"]);
  assert.deepEqual([0, 1, 2].map((i) => layerName([0, 0, 0], i)), ["hidden 1", "hidden 2", "output"]);
});

test("an example's dot stands where its coordinates say: x to the right, y upwards", () => {
  const plot = { x: 100, y: 50, size: 240 };
  assert.deepEqual(dotPlace(plot, 0, 0), [220, 170]);
  assert.deepEqual(dotPlace(plot, -6, 6), [100, 50]);
  assert.deepEqual(dotPlace(plot, 6, -6), [340, 290]);
});
