// The staircase of the KV cache: as high as the bytes that are there.

import assert from "node:assert/strict";
import test from "node:test";
import { defaults, filled, levelAt, scales, slotsOf, sumWords } from "../../components/static/cache.js";

test("each token adds the same to what those before it hold", () => {
  const held = { whole: 5, writing: 0, share: 0 };
  const levels = [0, 1, 2, 3, 4].map((i) => levelAt(held, 100, i));
  assert.deepEqual(levels, [100, 200, 300, 400, 500]);
  assert.equal(filled(held, 100), 500);
});

test("tokens that are being written count for the share of the layers that have them", () => {
  const held = { whole: 2, writing: 2, share: 0.25 };
  assert.deepEqual([0, 1, 2, 3].map((i) => levelAt(held, 100, i)), [100, 200, 225, 250]);
  assert.equal(filled(held, 100), 250);
});

test("no column is higher than what is filled in all", () => {
  for (const held of [{ whole: 0, writing: 0, share: 0 }, { whole: 0, writing: 7, share: 0.5 }, { whole: 6, writing: 1, share: 0.9 }]) {
    assert.equal(levelAt(held, 64, 50), filled(held, 64));
  }
});

test("there are columns for all that is read: the newest token of an answer is not", () => {
  assert.equal(slotsOf({ nPrompt: 5, context: 512, maxNew: 32, nTrips: 32, ended: true }), 36);
  assert.equal(slotsOf({ nPrompt: 5, context: 512, maxNew: 32, nTrips: 3, ended: false }), 36, "what may still come");
  assert.equal(slotsOf({ nPrompt: 5, context: 512, maxNew: 32, nTrips: 10, ended: true }), 14, "it ended early");
  assert.equal(slotsOf({ nPrompt: 6, context: 8, maxNew: 32, nTrips: 3, ended: false }), 8, "no more than there is room for");
  assert.equal(slotsOf({ nPrompt: 1, context: 8, maxNew: 1, nTrips: 0, ended: true }), 1);
});

test("a place is the token whose column it is in", () => {
  for (const slots of [1, 8, 36, 900]) {
    const s = scales(slots, 100, 500);
    for (let i = 0; i < slots; i += 1) assert.equal(s.at((s.x(i) + s.x(i + 1)) / 2), i);
    assert.equal(s.at(-20), 0);
    assert.equal(s.at(9999), slots - 1);
    assert.equal(s.x(0), defaults.left);
    assert.ok(s.y(slots * 100) >= defaults.top && s.y(0) === s.bottom);
  }
});

test("the words are the sum", () => {
  assert.equal(sumWords({ whole: 36, writing: 0, share: 0 }, 46080, 23592960), "36 tokens × 46.08 kB = 1.659 MB of 23.59 MB reserved");
  assert.match(sumWords({ whole: 5, writing: 1, share: 0.5 }, 100, 800), /^5 tokens \+ 1 being written, × 100 B = 550 B of 800 B/);
  assert.match(sumWords({ whole: 0, writing: 5, share: 0 }, 100, 800), /^5 tokens being written × 100 B = 0 B/);
});
