// Attention: the recorded numbers, where each stands, and which token a row belongs to.

import assert from "node:assert/strict";
import test from "node:test";
import { MEAN, evenly, heightOf, hit, layersOf, lookedAt, place, rowOf, weightsOf } from "../../components/static/attention.js";
import { tripsOf } from "../../components/static/trips.js";
import { NAMES, answer, shipped } from "./runs/answers.js";

for (const name of NAMES) {
  const { trace, records } = shipped(name);
  const lane = tripsOf(trace);
  const nPrompt = trace.prompt.length;

  test(`${name}: the trips that were looked into have attention, in recorded layers, and no other`, () => {
    const steps = [...new Set(records.filter((r) => r.role === "attention").map((r) => r.step))];
    assert.deepEqual(lookedAt(trace, lane), steps);
    for (const trip of lane.trips) {
      const ops = records.filter((r) => r.role === "attention" && r.step === trip.step).map((r) => r.op);
      assert.deepEqual(layersOf(trace, trip.step).map(({ op }) => op), ops);
    }
  });

  test(`${name}: what a token gives out sums to 1 in every head, and in their mean; none looks ahead`, () => {
    for (const step of lookedAt(trace, lane)) {
      const nNew = step ? 1 : nPrompt;
      for (const { array } of layersOf(trace, step)) {
        for (const head of [MEAN, ...Array(array.shape[0]).keys()]) {
          const weights = weightsOf(array, head, nPrompt + step, nNew);
          for (let r = 0; r < weights.rows; r += 1) {
            let sum = 0;
            for (let c = 0; c < weights.cols; c += 1) {
              sum += weights.at(r, c);
              if (weights.keys[c] > weights.queries[r]) assert.equal(weights.at(r, c), 0);
              assert.ok(weights.at(r, c) <= weights.top);
            }
            assert.ok(Math.abs(sum - 1) < weights.cols / 255, `${sum}`);
          }
        }
      }
    }
  });
}

test("an answer of which no trip was looked into has none", () => {
  const trace = answer();
  assert.deepEqual(lookedAt(trace, tripsOf(trace)), []);
});

const square = (n, heads = 2) => ({ shape: [heads, n, n], values: new Float32Array(heads * n * n), quantised: false, at: (i) => i });

test("a head is its own part of the array", () => {
  const array = square(3);
  assert.equal(weightsOf(array, 1, 3, 3).at(2, 1), 9 + 7);
  assert.equal(weightsOf(array, MEAN, 3, 3).at(2, 1), (7 + 16) / 2);
});

test("rows are the tokens of the trip, columns all so far", () => {
  const { queries, keys } = weightsOf({ ...square(7), shape: [1, 1, 7] }, 0, 7, 1);
  assert.deepEqual(queries, [6]);
  assert.deepEqual(keys, [0, 1, 2, 3, 4, 5, 6]);
});

test("of many tokens evenly spaced ones are there, the first and the last among them", () => {
  for (const n of [1, 31, 32, 33, 64, 500]) {
    const list = evenly(n);
    assert.equal(list.length, Math.min(n, 32));
    assert.equal(list[0], 0);
    assert.equal(list.at(-1), n - 1);
    assert.deepEqual(list, [...new Set(list)].sort((a, b) => a - b));
  }
});

test("a token's row is its own, or the last recorded one before it", () => {
  const weights = { queries: [0, 3, 6] };
  assert.deepEqual([0, 1, 3, 5, 6, 9].map((at) => rowOf(weights, at)), [0, 0, 1, 1, 2, 2]);
});

test("a cell is found where it stands, and nothing beside the matrix", () => {
  for (const width of [260, 480]) {
    const weights = weightsOf(square(9), 0, 9, 9);
    const { x, y, size } = place(weights, width);
    for (const [r, c] of [[0, 0], [3, 8], [8, 2]]) assert.deepEqual(hit(weights, width, x + (c + 0.5) * size, y + (r + 0.5) * size), { r, c });
    for (const [px, py] of [[x - 4, y + 4], [x + 4, y - 4], [x + 9.5 * size, y + 4]]) assert.equal(hit(weights, width, px, py), null);
    assert.ok(y + 9 * size <= heightOf(weights, width));
    assert.ok(x + 9 * size <= width);
  }
});

test("a single row is bars over the whole width", () => {
  const weights = weightsOf({ ...square(8), shape: [1, 1, 8] }, 0, 8, 1);
  assert.deepEqual(hit(weights, 400, 5, 50), { r: 0, c: 0 });
  assert.deepEqual(hit(weights, 400, 399, 50), { r: 0, c: 7 });
});
