// How a token was chosen: probabilities, the cut of the settings, and what lies beyond.

import assert from "node:assert/strict";
import test from "node:test";
import { cutWords, odds } from "../../components/static/odds.js";
import { percent } from "../../components/static/player.js";
import { NAMES, shipped } from "./runs/answers.js";

const plain = { temperature: 1, top_k: 0, top_p: 1 };
const token = { id: 3, text: " c", prob: 0.125, top: [[1, " a", 0.5], [2, " b", 0.25], [3, " c", 0.125], [4, " d", 0.0625]] };
const allowed = (spec) => odds(token, { ...plain, ...spec }).rows.filter((row) => row.allowed).length;

test("without limits all take part, and nothing is cut", () => {
  const { rows, cut, beyond, tail } = odds(token, plain);
  assert.ok(rows.every((row) => row.allowed));
  assert.deepEqual(rows.map((row) => row.drawn), [false, false, true, false]);
  assert.equal(cut, null);
  assert.equal(beyond, null);
  assert.equal(tail, 0.0625);
  assert.equal(cutWords(plain), null);
});

test("top-k keeps so many", () => {
  for (const top_k of [1, 2, 3]) {
    assert.equal(allowed({ top_k }), top_k);
    assert.equal(odds(token, { ...plain, top_k }).cut, top_k);
  }
  assert.equal(odds(token, { ...plain, top_k: 9 }).cut, null, "the cut is further down");
});

test("top-p keeps the fewest that reach it", () => {
  for (const [top_p, n] of [[0.1, 1], [0.5, 1], [0.51, 2], [0.75, 2], [0.8, 3], [0.9, 4], [0.99, 4]]) assert.equal(allowed({ top_p }), n, String(top_p));
});

test("a token must pass both, and the likeliest always does", () => {
  assert.equal(allowed({ top_k: 3, top_p: 0.6 }), 2);
  assert.equal(allowed({ top_k: 1, top_p: 0.9 }), 1);
  assert.equal(allowed({ top_p: 0.001 }), 1);
});

test("at temperature 0 the likeliest alone is taken, whatever else is set", () => {
  assert.equal(allowed({ temperature: 0, top_k: 3, top_p: 0.9 }), 1);
  assert.match(cutWords({ ...plain, temperature: 0 }), /likeliest/);
});

test("a token from further down is told beside the others, and is none of the tail", () => {
  const { rows, beyond, tail } = odds({ ...token, id: 99, text: " z", prob: 0.01 }, plain);
  assert.ok(rows.every((row) => !row.drawn));
  assert.deepEqual(beyond, { id: 99, text: " z", prob: 0.01 });
  assert.ok(Math.abs(tail - 0.0525) < 1e-12);
});

test("the words name the limits that are set", () => {
  assert.equal(cutWords({ ...plain, top_k: 5 }), "top-k 5: drawn among those above");
  assert.equal(cutWords({ ...plain, top_k: 5, top_p: 0.9 }), "top-k 5 and top-p 0.9: drawn among those above");
});

test("of the shipped answers every token was the likeliest, its row has the token's own probability, and all sums to 1", () => {
  for (const name of NAMES) {
    const { trace, spec } = shipped(name);
    for (const one of trace.tokens) {
      const { rows, tail } = odds(one, spec);
      assert.equal(rows[0].drawn, true);
      assert.ok(Math.abs(rows[0].prob - one.prob) < 1e-6);
      assert.ok(Math.abs(rows.reduce((sum, row) => sum + row.prob, tail) - 1) < 1e-4);
    }
  }
});

test("a probability is never rounded to impossible or certain", () => {
  const table = [[0.5, "50.0 %"], [0.1234, "12.3 %"], [0.0123, "1.2 %"], [0.01, "1 %"], [0.00012, "0.012 %"], [1e-7, "< 0.001 %"], [0.99999, "> 99.99 %"], [0.9996, "99.96 %"], [1, "100 %"], [0, "0 %"]];
  for (const [p, text] of table) assert.equal(percent(p), text);
});
