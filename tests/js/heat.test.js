// A small picture's pixels are the recorded numbers, in the colours of the theme.

import assert from "node:assert/strict";
import test from "node:test";
import { largest, picture, scales } from "../../components/static/heat.js";
import { mix, rgb } from "../../components/static/player.js";
import * as made from "./runs/made.js";
import { recorded } from "./runs/recorded.js";

const LIGHT = {
  background: "#ffffff", ink: "#1b1f24", empty: "#f6f4ee", neutral: "#f4f2ec", negative: "#8e3b8f", positive: "#2f8f4e",
  backward: "#d9641f", forward: "#2b6cb0",
};
const DARK = { ...LIGHT, background: "#12161c", ink: "#e8e6e0", neutral: "#222831", empty: "#1a1f26" };

/** The part of a page that a picture asks for: a canvas that keeps the pixels it is given. */
globalThis.document = {
  createElement: (name) => {
    assert.equal(name, "canvas");
    const context = {
      createImageData: (width, height) => ({ width, height, data: new Uint8ClampedArray(4 * width * height) }),
      putImageData: (image, x, y) => { assert.deepEqual([x, y], [0, 0]); context.image = image; },
    };
    return { getContext: () => context, context };
  },
};

/** Colours of a picture, [r, g, b] for each cell; every cell is opaque. */
function pixels(canvas) {
  const { data, width, height } = canvas.context.image;
  assert.deepEqual([canvas.width, canvas.height], [width, height]);
  return Array.from({ length: width * height }, (_, i) => {
    assert.equal(data[4 * i + 3], 255);
    return [...data.subarray(4 * i, 4 * i + 3)];
  });
}

/** An array as the trace gives it. */
const array = (shape, values, more = {}) => made.run([
  { ...made.array(0, "a", "activation", shape, values, more.low === undefined ? "f8" : "u1"), ...more }, made.scalar(0, "recorded_step_s", 1),
]).recorded[0].arrays.get("a activation");
const close = (seen, expected) => assert.ok(seen.every((v, i) => Math.abs(v - rgb(expected)[i]) <= 1), `${seen} is not ${expected}`);

test("a cell of an exact array has the colour of its number, full at the largest magnitude", () => {
  const seen = pixels(picture(array([2, 2], [0, 3, -3, 1.5]), 0, "signed", LIGHT));
  close(seen[0], LIGHT.neutral);
  close(seen[1], LIGHT.positive);
  close(seen[2], LIGHT.negative);
  close(seen[3], mix(LIGHT.neutral, LIGHT.positive, 0.5));
});

test("a cell of a quantised array has the colour of the number its shade stands for", () => {
  const a = array([1, 256], Array.from({ length: 256 }, (_, v) => v), { low: -2, high: 2 });
  const seen = pixels(picture(a, 0, "signed", LIGHT));
  seen.forEach((colour, v) => {
    const share = -1 + (2 * v) / 255;
    close(colour, mix(LIGHT.neutral, share < 0 ? LIGHT.negative : LIGHT.positive, Math.abs(share)));
  });
});

test("a gradient shows its size whatever its sign, and a small one is not nothing", () => {
  const seen = pixels(picture(array([1, 4], [-2, 2, 0.5, 0]), 0, "gradient", LIGHT));
  assert.deepEqual(seen[0], seen[1]);
  close(seen[0], LIGHT.backward);
  close(seen[2], mix(LIGHT.empty, LIGHT.backward, 0.1 + 0.9 * 0.25));
});

test("probabilities go from empty to the colour of forward", () => {
  const seen = pixels(picture(array([1, 3], [0, 51, 255], { low: 0, high: 1 }), 0, "probability", LIGHT));
  close(seen[0], LIGHT.empty);
  close(seen[1], mix(LIGHT.empty, LIGHT.forward, 0.2));
  close(seen[2], LIGHT.forward);
});

test("a digit is drawn in ink on paper, its scale being the sixteen greys of the scan", () => {
  const a = array([1, 1, 3], [0, 8, 16]);
  const seen = pixels(picture(a, 0, "ink", LIGHT, 16));
  close(seen[0], LIGHT.background);
  close(seen[1], mix(LIGHT.background, LIGHT.ink, 0.5));
  close(seen[2], LIGHT.ink);
});

test("a part is that part: the second head, the third digit", () => {
  const a = array([3, 1, 2], [0, 0, 0, 1, 1, 0]);
  assert.deepEqual(pixels(picture(a, 1, "signed", LIGHT)), pixels(picture(array([1, 2], [0, 1]), 0, "signed", LIGHT)));
  assert.deepEqual(pixels(picture(a, 2, "signed", LIGHT)), pixels(picture(array([1, 2], [1, 0]), 0, "signed", LIGHT)));
});

test("rows stay rows: a wide array makes a wide picture", () => {
  const { width, height } = picture(array([2, 5], Array(10).fill(1)), 0, "signed", LIGHT);
  assert.deepEqual([width, height], [5, 2]);
});

test("a picture is made once for each theme, and anew for another", () => {
  const a = array([1, 1], [-1]);
  assert.equal(picture(a, 0, "signed", LIGHT), picture(a, 0, "signed", LIGHT));
  const dark = picture(a, 0, "signed", DARK);
  assert.notEqual(dark, picture(a, 0, "signed", LIGHT));
  assert.notEqual(picture(a, 0, "gradient", LIGHT), picture(a, 0, "signed", LIGHT));
});

test("an array of nothing but zeros has a picture", () => {
  for (const colour of pixels(picture(array([1, 2], [0, 0]), 0, "signed", LIGHT))) close(colour, LIGHT.neutral);
});

test("no number is outside its scale, however large", () => {
  for (const [kind, scale] of Object.entries(scales)) {
    for (const share of [-9, -1, 0, 1, 9]) {
      assert.ok(rgb(scale(LIGHT, share)).every((v) => v >= 0 && v <= 255), `${kind} ${share}`);
    }
    assert.equal(scale(LIGHT, 9), scale(LIGHT, 1), kind);
  }
});

test("the largest magnitude is that of any sign", () => {
  assert.equal(largest(array([1, 3], [1, -4, 2])), 4);
});

test("every array of a recorded step that is drawn has a picture of its own size", () => {
  for (const name of ["addition", "digits"]) {
    const { step } = recorded(name);
    for (const [key, a] of step.arrays) {
      if (!/ (activation|grad|attention)$/.test(key)) continue;
      const kind = key.endsWith("grad") ? "gradient" : key.endsWith("attention") ? "probability" : "signed";
      for (let part = 0; part < (a.shape.length > 2 ? a.shape[0] : 1); part += 1) {
        const canvas = picture(a, part, kind, LIGHT);
        assert.deepEqual([canvas.height, canvas.width], a.shape.slice(-2), key);
        assert.equal(pixels(canvas).length, a.shape.at(-1) * a.shape.at(-2));
      }
    }
  }
});
