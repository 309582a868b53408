// An answer's trips through the model on one clock, and what is true of them at a moment t, in
// seconds since the first one began. Nothing else; nothing here draws.

import { answerLane } from "./pair.js";

export const defaults = { leastPauseS: 0.25, leastPlayS: 9, mostPlayS: 30, playTokenS: 0.65 };
export const CHOOSING = "choosing the token"; // what a trip does after its last op

/** Ops of an answer, in the order in which the decoder ran them: [{id}]. */
export const answerOps = (trace) => (trace.texts.get("ops")?.[0] ?? "").split(" ").filter(Boolean).map((id) => ({ id }));

/**
 * All trips so far: {columns, ops, trips, end, pausedS}, or null before the first. The time in which
 * somebody held the run between two trips is no time of the answer and left out.
 */
export function tripsOf(trace) {
  const ops = answerOps(trace);
  const lane = answerLane(trace, ops);
  if (!lane) return null;
  const longest = Math.max(...lane.trips.map((trip) => trip.end - trip.start));
  const least = Math.max(defaults.leastPauseS, 2 * longest);
  let pausedS = 0;
  const trips = lane.trips.map((trip, i) => {
    const gap = i ? trip.start - lane.trips[i - 1].end : 0;
    if (gap > least) pausedS += gap;
    const opEnds = trace.at(trip.step)?.arrays.get("trip op_ends") ?? null;
    return { ...trip, start: trip.start - pausedS, end: trip.end - pausedS, opEnds };
  });
  return { ...lane, ops, trips, end: trips.at(-1).end, pausedS };
}

/** How long the whole is to take on the wall: so long for a token, within bounds. */
export const playS = (lane) => Math.min(defaults.mostPlayS, Math.max(defaults.leastPlayS, defaults.playTokenS * lane.trips.length));

/** The op that runs at t: {id, index, start, end} in seconds of the clock; null where nothing does or
 * nobody took the time op by op. */
export function opAt(lane, trip, t) {
  if (!trip.opEnds || t < trip.start || t >= trip.end) return null;
  const n = lane.ops.length;
  let index = 0;
  while (index < n && t >= trip.start + trip.opEnds.at(index)) index += 1;
  const start = index ? trip.start + trip.opEnds.at(index - 1) : trip.start;
  if (index === n) return { id: CHOOSING, index, start, end: trip.end };
  return { id: lane.ops[index].id, index, start, end: trip.start + trip.opEnds.at(index) };
}

/** Whether a trip has an op behind it at t. */
export function passed(lane, trip, op, t) {
  if (t >= trip.end) return true;
  const i = lane.ops.findIndex(({ id }) => id === op);
  return Boolean(trip.opEnds) && i >= 0 && t >= trip.start + trip.opEnds.at(i);
}

/** Where a step of one token goes: the beginning, and the moments at which tokens come. */
export const tokenStops = (lane) => [0, ...lane.trips.map((trip) => trip.end)];

/** Where a step of one op goes, near t: beginnings of ops, and ends of trips. */
export function opStops(lane, t) {
  const i = Math.max(0, lane.trips.findLastIndex((trip) => trip.start <= t));
  return lane.trips.slice(Math.max(0, i - 1), i + 2).flatMap((trip) => {
    const inside = trip.opEnds ? lane.ops.map((_, k) => trip.start + trip.opEnds.at(k)).filter((at) => at < trip.end) : [];
    return [trip.start, ...inside, trip.end];
  });
}

/** Seconds of a decode, the middle one of those that are over by t; null before the first. */
export function medianDecode(lane, t) {
  const times = lane.trips.filter((trip) => trip.phase === "decode" && trip.end <= t).map((trip) => trip.end - trip.start).sort((a, b) => a - b);
  if (!times.length) return null;
  const half = times.length >> 1;
  return times.length % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
}

/** How many tokens of a sequence a trip reads: the prompt, the newest, or without a cache all so far. */
export const tokensOf = (trip, { nPrompt, cache }) => (trip.step && cache ? 1 : nPrompt + trip.step);

/**
 * What the KV cache holds at t: `whole` tokens in every layer, and `writing` more in a `share` of the
 * layers. `writers`: ids of the ops after which a layer has them. Without a cache each trip begins
 * with none; the newest token of an answer is in no cache before it is read.
 */
export function cachedAt(lane, { nPrompt, cache, writers }, t) {
  const i = lane.trips.findLastIndex((trip) => trip.start <= t);
  if (i < 0) return { whole: 0, writing: 0, share: 0 };
  const trip = lane.trips[i];
  const after = nPrompt + i;
  if (t >= trip.end) return { whole: after, writing: 0, share: 0 };
  const before = i && cache ? after - 1 : 0;
  const ends = trip.opEnds ? lane.ops.flatMap(({ id }, k) => (writers.has(id) ? [trip.start + trip.opEnds.at(k)] : [])) : [];
  const done = ends.filter((end) => end <= t).length;
  const share = ends.length ? done / ends.length : 0;
  return share === 1 ? { whole: after, writing: 0, share: 0 } : { whole: before, writing: after - before, share };
}
