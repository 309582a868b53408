// Small pictures of recorded arrays, made once for each array and theme.

import { diverging, mix } from "./player.js";

const SHADES = 256;

/** value share in [-1, 1] (or [0, 1]) -> colour, by what the numbers are. */
export const scales = {
  signed: (c, share) => diverging(c, share),
  gradient: (c, share) => mix(c.empty, c.backward, 0.1 + 0.9 * Math.min(1, Math.abs(share))),
  ink: (c, share) => mix(c.background, c.ink, Math.min(1, Math.max(0, share))),
  probability: (c, share) => mix(c.empty, c.forward, Math.min(1, Math.max(0, share))),
};

const made = new WeakMap(); // array -> Map(part, kind, theme -> canvas)

/**
 * Canvas of one (rows, columns) part of an array, a pixel a cell. `top`: the magnitude of a full
 * colour; that of the array's own range where it was quantised.
 */
export function picture(array, part, kind, c, top = null) {
  if (!made.has(array)) made.set(array, new Map());
  const known = made.get(array);
  const key = `${part} ${kind} ${c.neutral}`;
  if (known.has(key)) return known.get(key);
  const [rows, columns] = array.shape.slice(-2);
  const canvas = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const full = top ?? (array.quantised ? Math.max(Math.abs(array.low), Math.abs(array.high)) : largest(array)) ?? 1;
  const shade = array.quantised ? shadesOf(array, full, kind, c) : null;
  const start = part * rows * columns;
  for (let i = 0; i < rows * columns; i += 1) {
    const [r, g, b] = shade ? shade[array.values[start + i]] : numbers(scales[kind](c, array.at(start + i) / full));
    image.data.set([r, g, b, 255], i * 4);
  }
  context.putImageData(image, 0, 0);
  known.set(key, canvas);
  return canvas;
}

const numbers = (colour) => colour.match(/\d+/g).map(Number);

const shadesOf = (array, full, kind, c) => Array.from({ length: SHADES }, (_, v) =>
  numbers(scales[kind](c, (array.low + (v / (SHADES - 1)) * (array.high - array.low)) / full)));

/** Largest magnitude of an array. */
export function largest(array) {
  let top = 0;
  for (let i = 0; i < array.values.length; i += 1) top = Math.max(top, Math.abs(array.at(i)));
  return top || 1;
}
