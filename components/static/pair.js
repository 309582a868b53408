// Two runs of one model on one clock: a training step and an answer, both beginning at t = 0.
// What is true of each at a moment t, in seconds; nothing else.

import { columnOf, columnsOf } from "./lane.js";
import { duration, peak, timeline } from "./step.js";

/** A lane of a training step: what was recorded of it, its columns, and its passes through them. */
export function stepLane(trace, ops) {
  const recorded = trace.recorded.at(-1);
  if (!recorded) return null;
  return { kind: "step", recorded, columns: columnsOf(ops), passes: passesOf(recorded), end: duration(recorded) };
}

/** Stretches in which one column works in one phase: [{phase, column, start, end}]. */
export function passesOf(recorded) {
  const list = [];
  for (const { phase, op, start_s, end_s } of recorded.spans) {
    const column = phase === "update" ? null : columnOf(op);
    if (list.at(-1)?.phase === phase && list.at(-1).column === column) list.at(-1).end = end_s;
    else list.push({ phase, column, start: start_s, end: end_s });
  }
  return list;
}

/** A lane of an answer: its trips, with a token that each gave and the end of each column in it. */
export function answerLane(trace, ops) {
  const rows = trace.tokens.filter((token, i, all) => token.step !== all[i - 1]?.step); // a batch's come together
  if (!rows.length) return null;
  const columns = columnsOf(ops);
  const trips = rows.map((token) => ({
    token, phase: token.phase, step: token.step, start: token.start_s, end: token.end_s,
    ends: columnEnds(columns, ops, trace.at(token.step)?.arrays.get("trip op_ends")),
  }));
  return { kind: "answer", trace, columns, trips, end: trips.at(-1).end };
}

const ended = new WeakMap();

/** When a trip has passed each column, seconds since it began; null where nobody took the time. */
function columnEnds(columns, ops, ends) {
  if (!ends) return null;
  if (!ended.has(ends)) {
    const last = new Map(ops.map(({ id }, i) => [columnOf(id), ends.at(i)]));
    ended.set(ends, columns.map(({ id }) => last.get(id)));
  }
  return ended.get(ends);
}

/** Both lanes end when the longer one does; the shorter holds its end. */
export const endOf = (lanes) => Math.max(0, ...lanes.filter(Boolean).map((lane) => lane.end));

// -- the step at t -------------------------------------------------------------------------------

/** {phase, over, loss, direction, pass, columns: [{id, label, state, role}]}. */
export function stepAt(lane, t) {
  const over = t >= lane.end;
  const at = Math.min(Math.max(t, 0), lane.end);
  const pass = over ? null : lane.passes.find((p) => at < p.end) ?? null;
  const begun = new Set(), reached = new Set();
  for (const { phase, column, start } of lane.passes) {
    if (start > at) break;
    if (phase === "backward") begun.add(column);
    else reached.add(column);
  }
  const { phase } = pass ?? lane.passes.at(-1);
  const updating = phase === "update";
  const columns = lane.columns.map((column) => ({
    ...column,
    role: updating ? "update" : begun.has(column.id) ? "grad" : "activation",
    state: pass?.column === column.id || (updating && !over) ? "now" : reached.has(column.id) ? "done" : "todo",
  }));
  // The mean of all micro-batches: known with the last of them.
  const known = at >= lane.passes.findLast((p) => p.phase === "loss").end;
  return { phase, over, pass, columns, loss: known ? lane.recorded.scalars.loss : null, direction: phase === "backward" ? -1 : 1 };
}

// -- the answer at t -----------------------------------------------------------------------------

/** How many tokens have come by t. */
export const tokensAt = (lane, t) => lane.trips.filter((trip) => trip.end <= t).length;

/**
 * {phase, n, trip, over, columns}: n tokens have come; `trip` is the one under way, or the last.
 * Between two trips the earlier one stands.
 */
export function answerAt(lane, t) {
  const over = t >= lane.end;
  const trip = lane.trips.findLast((one) => one.start <= t) ?? lane.trips[0];
  const share = t - trip.start;
  const { ends } = trip;
  const done = t >= trip.end;
  const now = done || !ends ? -1 : ends.findIndex((end) => share < end);
  const columns = lane.columns.map((column, i) => ({
    ...column,
    role: "activation",
    state: done ? "done" : i === now ? "now" : ends && share >= ends[i] ? "done" : "todo",
  }));
  return { phase: trip.phase, n: tokensAt(lane, t), trip, over, columns, direction: 1 };
}

// -- where a step button stops -------------------------------------------------------------------

const sorted = (moments) => [...new Set(moments)].sort((a, b) => a - b);

/** Beginnings of every pass of the step and of every trip, and the end of both. */
export const stopsOf = (step, answer) => sorted([
  ...(step?.passes.map((p) => p.start) ?? []), ...(answer?.trips.map((trip) => trip.start) ?? []),
  ...[step, answer].filter(Boolean).map((lane) => lane.end),
]);

/** Beginnings of the step's phases and the first decode, and the end of both. */
export function phaseStopsOf(step, answer) {
  const phases = step?.passes.filter((p, i, all) => p.phase !== all[i - 1]?.phase) ?? [];
  return sorted([
    ...phases.map((p) => p.start), ...(answer?.trips.slice(0, 2).map((trip) => trip.start) ?? []),
    ...[step, answer].filter(Boolean).map((lane) => lane.end),
  ]);
}

// -- memory --------------------------------------------------------------------------------------

/** Most bytes that the step held: {total, phase, op, t}. */
export const stepPeak = (lane) => peak(timeline(lane.recorded));

/**
 * Bytes held while answering: [{t, held_bytes, total, looked}]. The trips that were looked into op
 * by op have a point for each sample; of the others only what stays is known, weights and the room
 * for keys and values, which nothing in an answer moves.
 */
export function answerTimeline(lane) {
  const { trace } = lane;
  const stays = { weights: trace.scalars.get("weights_bytes"), cache: trace.scalars.get("kv_cache_bytes") };
  if (stays.weights === undefined) return [];
  const points = [];
  for (const trip of lane.trips) {
    const memory = trace.at(trip.step)?.memory ?? [];
    if (!memory.length) points.push(point(trip.start, stays, false));
    memory.forEach(({ held_bytes }, i) => points.push(
      point(trip.start + ((trip.end - trip.start) * i) / memory.length, held_bytes, true)));
  }
  return points;
}

const point = (t, held_bytes, looked) => (
  { t, held_bytes, looked, total: Object.values(held_bytes).reduce((a, b) => a + b, 0) });

/** Most bytes that the answer held, as it was measured; what stays where no trip was looked into. */
export function answerPeak(lane) {
  const points = answerTimeline(lane);
  return points.length ? points.reduce((a, b) => (b.total > a.total ? b : a)) : null;
}
