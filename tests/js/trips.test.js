// An answer's trips on one clock: what runs when, what has come, what the cache holds.

import assert from "node:assert/strict";
import test from "node:test";
import { CHOOSING, cachedAt, defaults, medianDecode, opAt, opStops, passed, playS, tokenStops, tokensOf, tripsOf } from "../../components/static/trips.js";
import { NAMES, OPS, WRITERS, answer, shipped, writersOf } from "./runs/answers.js";

const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);
const settings = (more = {}) => ({ nPrompt: 3, cache: true, writers: WRITERS, ...more });

test("before the first token there are no trips", () => {
  assert.equal(tripsOf(answer({ starts: [] })), null);
});

for (const name of NAMES) {
  const { trace, records, spec } = shipped(name);
  const lane = tripsOf(trace);
  const tokens = records.filter((r) => r.type === "Token" && r.phase !== "prompt");

  test(`${name}: a trip for each token, from when to when it was timed`, () => {
    assert.deepEqual(lane.trips.map(({ start, end, phase }) => [start, end, phase]), tokens.map((r) => [r.start_s, r.end_s, r.phase]));
    assert.equal(lane.end, tokens.at(-1).end_s);
    assert.equal(lane.pausedS, 0);
  });

  test(`${name}: every op of every trip runs when it was timed, and nothing between two trips`, () => {
    for (const trip of lane.trips) {
      let begin = 0;
      for (const [i, { id }] of lane.ops.entries()) {
        const end = trip.opEnds.at(i);
        if (end > begin) {
          const found = opAt(lane, trip, trip.start + (begin + end) / 2);
          assert.equal(found.id, id);
          near(found.start, trip.start + begin);
          near(found.end, trip.start + end);
        }
        begin = end;
      }
      assert.equal(opAt(lane, trip, (trip.start + begin + trip.end) / 2).id, CHOOSING);
      assert.equal(opAt(lane, trip, trip.end), null);
    }
  });

  test(`${name}: at its end the cache holds every token but the newest, and as many bytes as were measured`, () => {
    const held = cachedAt(lane, { nPrompt: trace.prompt.length, cache: spec.cache, writers: writersOf(trace) }, lane.end);
    assert.deepEqual(held, { whole: trace.prompt.length + tokens.length - 1, writing: 0, share: 0 });
    assert.equal((held.whole * trace.scalars.get("kv_cache_bytes")) / spec.context, trace.scalars.get("kv_filled_bytes"));
  });

  test(`${name}: the middle of all decodes is the recorded one`, () => {
    near(medianDecode(lane, Infinity), trace.scalars.get("tpot_s"));
  });
}

test("the prefill writes all tokens of the prompt at once, layer by layer", () => {
  const lane = tripsOf(answer());
  assert.deepEqual(cachedAt(lane, settings(), 0), { whole: 0, writing: 3, share: 0 });
  assert.deepEqual(cachedAt(lane, settings(), 0.31), { whole: 0, writing: 3, share: 0.5 });
  assert.deepEqual(cachedAt(lane, settings(), 0.61), { whole: 3, writing: 0, share: 0 });
  assert.deepEqual(cachedAt(lane, settings(), 0.999), { whole: 3, writing: 0, share: 0 });
});

test("a decode writes the token that it reads", () => {
  const lane = tripsOf(answer());
  assert.deepEqual(cachedAt(lane, settings(), 1), { whole: 3, writing: 1, share: 0 });
  assert.deepEqual(cachedAt(lane, settings(), 1.31), { whole: 3, writing: 1, share: 0.5 });
  assert.deepEqual(cachedAt(lane, settings(), 2), { whole: 4, writing: 1, share: 0 });
  assert.deepEqual(cachedAt(lane, settings(), 9), { whole: 5, writing: 0, share: 0 });
});

test("without a cache every trip begins with nothing and reads the whole text", () => {
  const lane = tripsOf(answer());
  const none = settings({ cache: false });
  assert.deepEqual(cachedAt(lane, none, 2), { whole: 0, writing: 5, share: 0 });
  assert.deepEqual(cachedAt(lane, none, 9), { whole: 5, writing: 0, share: 0 });
  assert.deepEqual(lane.trips.map((trip) => tokensOf(trip, none)), [3, 4, 5]);
  assert.deepEqual(lane.trips.map((trip) => tokensOf(trip, settings())), [3, 1, 1]);
});

test("of a trip that nobody timed op by op, no op is said to run, and none of its tokens to be written", () => {
  const lane = tripsOf(answer({ times: false }));
  assert.equal(opAt(lane, lane.trips[0], 0.5), null);
  assert.deepEqual(cachedAt(lane, settings(), 0.5), { whole: 0, writing: 3, share: 0 });
  assert.equal(passed(lane, lane.trips[0], OPS[0], 0.5), false);
  assert.equal(passed(lane, lane.trips[0], OPS[0], 1), true);
  assert.deepEqual(opStops(lane, 0.5), [0, 1, 1, 2]);
});

test("an op is passed once it has ended", () => {
  const lane = tripsOf(answer());
  assert.equal(passed(lane, lane.trips[0], OPS[1], 0.29), false);
  assert.equal(passed(lane, lane.trips[0], OPS[1], 0.31), true);
});

test("a batch has one trip for the tokens of all its sequences", () => {
  const lane = tripsOf(answer({ rows: 3 }));
  assert.deepEqual(lane.trips.map((trip) => trip.step), [0, 1, 2]);
});

test("what somebody held a run for is no time of the answer", () => {
  const lane = tripsOf(answer({ starts: [0, 1.01, 60, 61] }));
  near(lane.pausedS, 60 - 2.01);
  near(lane.trips[2].start, 2.01);
  near(lane.end, 4.01);
  assert.equal(tripsOf(answer({ starts: [0, 1.2, 2.4] })).pausedS, 0);
});

test("a step of one token goes to where it came, and one of an op to where each begins", () => {
  const lane = tripsOf(answer());
  assert.deepEqual(tokenStops(lane), [0, 1, 2, 3]);
  const stops = opStops(lane, 1.5);
  for (const trip of lane.trips) {
    assert.ok(stops.includes(trip.start) && stops.includes(trip.end));
    for (let i = 1; i < OPS.length; i += 1) assert.ok(stops.some((t) => opAt(lane, trip, t + 1e-9)?.id === OPS[i]), OPS[i]);
  }
  assert.deepEqual(stops, [...stops].sort((a, b) => a - b));
});

test("stepping op by op from anywhere reaches the next trip", () => {
  const lane = tripsOf(answer({ starts: [0, 1.1, 2.2, 3.3] }));
  let t = 0;
  for (let i = 0; i < 200 && t < lane.end; i += 1) t = opStops(lane, t).find((stop) => stop > t + 1e-9) ?? lane.end;
  assert.equal(t, lane.end);
});

test("a longer answer plays longer, within bounds", () => {
  const times = [1, 20, 40, 1000].map((n) => playS({ trips: Array(n) }));
  assert.deepEqual(times, [...times].sort((a, b) => a - b));
  assert.equal(times[0], defaults.leastPlayS);
  assert.equal(times.at(-1), defaults.mostPlayS);
});
