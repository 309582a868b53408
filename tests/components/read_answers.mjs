// Reads answers with the widget's own code and prints what it makes of them, for Python to compare.
// Arguments: JSON {messages: [files that hold a message], lengths: [n], draws: [{spec, top}]}.

import { readFileSync } from "node:fs";
import { evenly, layersOf, lookedAt, weightsOf } from "../../components/static/attention.js";
import { cellsOfTrip } from "../../components/static/answer_lane.js";
import { odds } from "../../components/static/odds.js";
import { answerTimeline } from "../../components/static/pair.js";
import { Trace, unpack } from "../../components/static/trace.js";
import { cachedAt, tokensOf, tripsOf } from "../../components/static/trips.js";

const asked = JSON.parse(process.argv[2]);

const messages = asked.messages.map((file) => {
  const { header, events, arrays } = unpack(new Uint8Array(readFileSync(file)));
  const trace = new Trace().append(events, arrays, 0);
  const lane = tripsOf(trace);
  const settings = {
    nPrompt: trace.prompt.length, cache: header.spec.cache,
    writers: new Set(header.ops.filter((op) => op.cache_bytes).map((op) => op.id)),
  };
  const perToken = header.ops.reduce((sum, op) => sum + op.cache_bytes, 0) / header.spec.context;
  return {
    n_trips: lane.trips.length,
    ops: lane.ops.map(({ id }) => id),
    filled_bytes: lane.trips.map((trip) => perToken * cachedAt(lane, settings, trip.end).whole),
    peaks: lookedAt(trace, lane).map((step) => Math.max(...answerTimeline(lane).filter((p) => p.t >= lane.trips[step].start && p.t < lane.trips[step].end).map((p) => p.total))),
    attention: lookedAt(trace, lane).map((step) => layersOf(trace, step).map(({ array }) => {
      const weights = weightsOf(array, array.shape[0] - 1, settings.nPrompt + step, tokensOf(lane.trips[step], settings));
      return Array.from({ length: weights.rows }, (_, r) => Array.from({ length: weights.cols }, (_, c) => weights.at(r, c)));
    })),
    // Of the newest token, in the last trip: what the picture shows of each part of the model.
    parts: lane.columns.map((column) => {
      const cells = cellsOfTrip(trace, lane.columns, column, lane.trips.at(-1));
      return cells && Array.from({ length: cells.rows }, (_, i) => cells.value(i, cells.cols - 1));
    }),
  };
});

const kept = asked.draws.map(({ spec, top }) => odds({ id: 0, top }, spec).rows.filter((row) => row.allowed).length);
console.log(JSON.stringify({ messages, evenly: asked.lengths.map((n) => evenly(n)), kept }));
