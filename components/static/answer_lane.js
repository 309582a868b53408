// What a lane shows of an answer: the values that each part of the model gave in a trip.

import { cellsOf } from "./lane.js";
import { exact, seconds } from "./player.js";

const made = new WeakMap();

/** Made once for each recorded array. */
function kept(array, make) {
  if (!made.has(array)) made.set(array, make());
  return made.get(array);
}

/**
 * Cells of a column in a trip, or null where none were recorded: of one that read several tokens all
 * of them, if it was looked into; else those of the newest token, which every trip tells of each part
 * of the model.
 */
export function cellsOfTrip(trace, columns, column, trip) {
  const arrays = trace.at(trip.step)?.arrays;
  const op = column.ops.findLast((id) => arrays?.has(`${id} activation`));
  const parts = arrays?.get("trip parts");
  const array = op ? arrays.get(`${op} activation`) : null;
  if (array && (!parts || (array.shape[0] > 1 && column.id !== "head"))) {
    return kept(array, () => cellsOf(array));
  }
  if (!parts) return null;
  const i = columns.findIndex(({ id }) => id === column.id);
  const n = parts.shape[1];
  return kept(parts, () => [])[i] ??= cellsOf({ shape: [1, n], at: (k) => parts.at(i * n + k) });
}

/** What a column says when it is pointed at. */
export function tipOf(column, cells, trip) {
  if (column.state === "todo") return `${column.label}: not reached yet in this trip`;
  const took = column.took === null ? "" : `, ${seconds(column.took)} of ${seconds(trip.end - trip.start)}`;
  if (!cells) return `${column.label}${took}: values not recorded in this trip`;
  let top = 0;
  for (let i = 0; i < cells.rows; i += 1) for (let j = 0; j < cells.cols; j += 1) top = Math.max(top, Math.abs(cells.value(i, j)));
  return `${column.label}${took}: values up to ±${exact(top, 3)} shown, ${cells.cols === 1 ? "one token" : `${cells.cols} tokens`} × ${cells.rows} channels`;
}

/** Seconds that a trip spent in each column; null where nobody took the time. */
export const tookOf = (trip, i) => (trip.ends ? trip.ends[i] - (i ? trip.ends[i - 1] : 0) : null);
