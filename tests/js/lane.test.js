// A lane's columns are the model's parts, its cells recorded values, and nothing is drawn twice.

import assert from "node:assert/strict";
import test from "node:test";
import { cellsOf, columnOf, columnsOf, defaults, drawLane, evenly, hit, place, room, standIn } from "../../components/static/lane.js";

const ops = (n) => [
  "embed.tokens", "rope",
  ...Array.from({ length: n }, (_, i) => [`blocks.${i}.attn.qkv`, `blocks.${i}.mlp.add`]).flat(),
  "norm", "head", "loss",
].map((id) => ({ id }));

/** Tokens × channels, exact numbers. */
const array = (rows) => ({ shape: [rows.length, rows[0].length], at: (i) => rows.flat()[i] });

test("every op stands in one column, in the model's order", () => {
  const columns = columnsOf(ops(3));
  assert.deepEqual(columns.map((c) => c.label), ["embed", "block 1", "block 2", "block 3", "head"]);
  assert.deepEqual(columns.flatMap((c) => c.ops), ops(3).map(({ id }) => id));
  for (const column of columns) for (const id of column.ops) assert.equal(columnOf(id), column.id);
});

test("a perceptron's layers are columns too", () => {
  assert.deepEqual(columnsOf([{ id: "layers.0.linear" }, { id: "layers.0.act" }, { id: "head.linear" }, { id: "loss" }]).map((c) => c.label), ["layer 1", "head"]);
});

test("of many columns some are chosen evenly, the first and the last among them, each once", () => {
  const columns = columnsOf(ops(30));
  for (const n of [2, 3, 7, 11, 31, 32, 50]) {
    const shown = evenly(columns, n);
    assert.equal(shown.length, Math.min(n, 32));
    assert.equal(new Set(shown).size, shown.length);
    assert.equal(shown[0], columns[0]);
    assert.equal(shown.at(-1), columns.at(-1));
    const gaps = shown.slice(1).map((c, i) => columns.indexOf(c) - columns.indexOf(shown[i]));
    assert.ok(Math.max(...gaps) - Math.min(...gaps) <= 1);
  }
});

test("a column that is not shown is stood for by the last one before it", () => {
  const columns = columnsOf(ops(30));
  const shown = evenly(columns, 5);
  columns.forEach((column, i) => {
    const at = standIn(shown, columns, column.id);
    assert.ok(columns.indexOf(shown[at]) <= i);
    assert.ok(at + 1 === shown.length || columns.indexOf(shown[at + 1]) > i);
  });
});

test("a wider lane has room for more columns, a narrow one for three at least", () => {
  const rooms = [60, 200, 330, 480, 900, 1600].map(room);
  assert.ok(rooms[0] >= 3);
  rooms.slice(1).forEach((n, i) => assert.ok(n >= rooms[i]));
});

test("cards stand side by side within the lane", () => {
  for (const width of [300, 480, 1200]) {
    const boxes = place(9, width, 178);
    assert.ok(boxes[0].x >= 0 && boxes.at(-1).x + boxes.at(-1).w <= width);
    boxes.slice(1).forEach((box, i) => assert.ok(box.x > boxes[i].x + boxes[i].w));
    boxes.forEach((box, i) => assert.equal(hit(boxes, box.x + box.w / 2, box.y + box.h / 2), i));
    assert.equal(hit(boxes, boxes[0].x, 2), -1);
  }
});

test("cells show evenly spaced channels down and tokens across, the newest last", () => {
  const rows = Array.from({ length: 9 }, (_, token) => Array.from({ length: 24 }, (_, channel) => 100 * token + channel));
  const cells = cellsOf(array(rows), 12, 3);
  assert.deepEqual([cells.rows, cells.cols], [12, 3]);
  assert.deepEqual([0, 1, 2].map((j) => Math.floor(cells.value(0, j) / 100)), [2, 5, 8]);
  assert.deepEqual([cells.value(0, 2), cells.value(11, 2)], [800, 823]);
});

test("a single token has a single strip of cells", () => {
  const cells = cellsOf(array([[1, -2, 3]]), 12, 3);
  assert.deepEqual([cells.rows, cells.cols], [3, 1]);
  assert.deepEqual([0, 1, 2].map((i) => cells.value(i, 0)), [1, -2, 3]);
});

test("shades lie in [-1, 1], keep the sign, grow with the size, and are not lost to a few large values", () => {
  const values = Array.from({ length: 20 }, (_, i) => (i % 2 ? -1 : 1) * (i + 1));
  values[19] = -1e6;
  const cells = cellsOf(array([values]), 20, 1);
  const shades = values.map((_, i) => cells.at(i, 0));
  shades.forEach((shade, i) => {
    assert.ok(Math.abs(shade) <= 1);
    assert.equal(Math.sign(shade), Math.sign(values[i]));
    if (i) assert.ok(Math.abs(shade) >= Math.abs(shades[i - 1]));
  });
  assert.ok(shades[9] > 0.5 || shades[9] < -0.5);
});

test("what quantising could not tell from zero is zero", () => {
  const [low, high] = [-255, 255]; // a shade is 2, and 0 lies between two of them
  const shade = { shape: [1, 4], quantised: true, low, high, at: (i) => [-1, 1, 3, 200][i] };
  assert.deepEqual([0, 1, 2, 3].map((i) => cellsOf(shade, 4, 1).value(i, 0)), [0, 0, 3, 200]);
});

test("nothing but zeros has a colour all the same", () => {
  const cells = cellsOf(array([[0, 0, 0]]), 3, 1);
  assert.deepEqual([0, 1, 2].map((i) => cells.at(i, 0)), [0, 0, 0]);
});

// -- drawing -------------------------------------------------------------------------------------

/** A context that keeps what was filled, stroked and written, in which colour. */
function sheet() {
  const said = { fills: [], strokes: [], texts: [] };
  return {
    said, beginPath() {}, moveTo() {}, lineTo() {}, roundRect(...box) { this.box = box; },
    fill() { said.fills.push(this.fillStyle); }, stroke() { said.strokes.push(this.strokeStyle); },
    fillText(text) { said.texts.push(text); }, measureText: (text) => ({ width: 6 * text.length }),
  };
}

const COLOURS = {
  font: "sans", ink: "#000000", muted: "#777777", line: "#cccccc", empty: "#eeeeee", background: "#ffffff",
  forward: "#0000ff", backward: "#ff8800", update: "#ccaa00",
};
const column = (label, more = {}) => ({ label, cells: cellsOf(array([[1, 2, 3]]), 3, 1), role: "activation", state: "done", ...more });

test("columns that the wave has not reached show no values", () => {
  const { said, ...context } = sheet();
  drawLane(Object.assign(context, { said }), 300, 178, { columns: [column("embed"), column("head", { state: "todo" })] }, COLOURS);
  const drawn = said.fills.filter((colour) => colour !== COLOURS.background);
  assert.equal(drawn.length, 6);
  assert.ok(drawn.slice(0, 3).every((colour) => colour !== COLOURS.empty));
  assert.deepEqual(drawn.slice(3), [COLOURS.empty, COLOURS.empty, COLOURS.empty]);
});

test("the wave is framed in the colour of its direction and named", () => {
  for (const [direction, colour, text] of [[1, COLOURS.forward, "token here ▸"], [-1, COLOURS.backward, "◂ token here"]]) {
    const context = sheet();
    drawLane(context, 300, 178, { columns: [column("embed"), column("head", { state: "now" })], direction, note: "token here" }, COLOURS);
    assert.ok(context.said.strokes.includes(colour));
    assert.ok(context.said.texts.includes(text));
  }
});

test("dashes have the colour of what came through them", () => {
  const context = sheet();
  drawLane(context, 400, 178, { columns: [column("a"), column("b"), column("c", { role: "grad" }), column("d", { state: "todo" })] }, COLOURS);
  assert.deepEqual(context.said.strokes.slice(0, 3), [COLOURS.forward, COLOURS.backward, COLOURS.line]);
});

test("every column is named where there is room, and no two names touch", () => {
  const context = sheet();
  const columns = columnsOf(ops(4)).map(({ label }) => column(label));
  drawLane(context, 600, 178, { columns }, COLOURS);
  assert.deepEqual(context.said.texts, columns.map((c) => c.label));
  const narrow = sheet();
  drawLane(narrow, 6 * defaults.narrowPitch, 178, { columns }, COLOURS);
  assert.deepEqual(narrow.said.texts.slice(1, 4), ["1", "2", "3"]);
});
