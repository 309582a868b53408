// The player kit: time, keys, colours, and numbers as text.

import assert from "node:assert/strict";
import test from "node:test";
import {
  Clock, bytes, count, defaults, diverging, exact, keyAction, mix, palette, reducedMotion, rgb, seconds, sharpen, signed,
} from "../../components/static/player.js";

/** A display whose frames come when asked: `frame(ms)` shows the next one, so long after the last. */
function display() {
  let waiting = null, now = 1000;
  globalThis.requestAnimationFrame = (callback) => {
    assert.equal(waiting, null, "one frame is asked for at a time");
    waiting = callback;
    return 1;
  };
  return {
    frame(ms) {
      now += ms;
      const callback = waiting;
      waiting = null;
      callback?.(now);
      return Boolean(callback);
    },
    get asked() { return waiting !== null; },
  };
}

/** A clock of one second that tells when it ticks. */
function clock({ end = 1, rate = 1 } = {}) {
  const ticks = [];
  const made = new Clock((t) => ticks.push(t));
  made.load(end, rate);
  ticks.length = 0;
  return { made, ticks };
}

const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-9, `${a} is not ${b}`);

// -- the clock --------------------------------------------------------------------------------------

test("playing moves time by what passed on the wall, from the first frame on", () => {
  const screen = display(), { made } = clock();
  made.play();
  screen.frame(500); // how long the first frame took to come is no time of the step
  near(made.t, 0);
  for (const ms of [16, 17, 50]) screen.frame(ms);
  near(made.t, 0.083);
});

test("rate and speed multiply", () => {
  const screen = display(), { made } = clock({ rate: 1e-3 });
  made.speed = 4;
  made.play();
  screen.frame(16);
  screen.frame(50);
  near(made.t, 0.05 * 1e-3 * 4);
});

test("a display that was away for a while skips no more than a tenth of a second", () => {
  const screen = display(), { made } = clock();
  made.play();
  screen.frame(16);
  screen.frame(60_000);
  near(made.t, 0.1);
});

test("pausing stops time where it is, and asks for no more frames", () => {
  const screen = display(), { made } = clock();
  made.play();
  screen.frame(16);
  screen.frame(40);
  made.pause();
  screen.frame(40);
  near(made.t, 0.04);
  assert.equal(screen.asked, false);
  assert.equal(made.playing, false);
});

test("pausing and playing again before the next frame goes on without a jump", () => {
  const screen = display(), { made } = clock();
  made.play();
  screen.frame(16);
  screen.frame(40);
  made.pause();
  made.play();
  screen.frame(5000);
  screen.frame(10);
  near(made.t, 0.05);
});

test("toggle plays what is paused and pauses what plays", () => {
  display();
  const { made } = clock();
  made.toggle();
  assert.equal(made.playing, true);
  made.toggle();
  assert.equal(made.playing, false);
});

test("at its end a clock stops; playing again begins anew", () => {
  const screen = display(), { made } = clock({ end: 0.05 });
  made.play();
  screen.frame(16);
  screen.frame(90);
  assert.deepEqual([made.t, made.playing, screen.asked], [0.05, false, false]);
  made.play();
  assert.deepEqual([made.t, made.playing], [0, true]);
});

test("a loop goes on from the beginning with what is left over", () => {
  const screen = display(), { made } = clock({ end: 0.05 });
  made.loop = true;
  made.play();
  screen.frame(16);
  screen.frame(70);
  near(made.t, 0.02);
  assert.equal(made.playing, true);
  assert.equal(screen.asked, true);
});

test("seeking stays within the step", () => {
  display();
  const { made } = clock();
  for (const [asked, got] of [[0.3, 0.3], [-1, 0], [7, 1]]) {
    made.seek(asked);
    assert.equal(made.t, got);
  }
});

test("every change of time is told", () => {
  const screen = display(), { made, ticks } = clock();
  made.seek(0.5);
  made.play();
  screen.frame(16);
  screen.frame(50);
  made.pause();
  assert.equal(ticks[0], 0.5);
  assert.equal(ticks.at(-1), made.t);
  assert.ok(ticks.length >= 4);
});

test("loading another step begins at its beginning, paused", () => {
  const screen = display(), { made } = clock();
  made.play();
  screen.frame(16);
  screen.frame(50);
  made.load(3, 0.5);
  assert.deepEqual([made.t, made.end, made.rate, made.playing], [0, 3, 0.5, false]);
});

test("stepping on goes from stop to stop, and to the end after the last", () => {
  display();
  const { made } = clock();
  const stops = [0, 0.25, 0.5, 0.75];
  const seen = [];
  for (let i = 0; i < 5; i += 1) {
    made.stepTo(stops, 1);
    seen.push(made.t);
  }
  assert.deepEqual(seen, [0.25, 0.5, 0.75, 1, 1]);
});

test("stepping back goes from stop to stop, and to the beginning before the first", () => {
  display();
  const { made } = clock();
  made.seek(0.6);
  const seen = [];
  for (let i = 0; i < 4; i += 1) {
    made.stepTo([0, 0.25, 0.5, 0.75], -1);
    seen.push(made.t);
  }
  assert.deepEqual(seen, [0.5, 0.25, 0, 0]);
});

test("on and back again is where it was, at every stop of a step of microseconds", () => {
  display();
  const { made } = clock({ end: 3e-4 });
  const stops = Array.from({ length: 12 }, (_, i) => (i * 3e-4) / 12);
  for (const stop of stops.slice(1)) {
    made.seek(stop);
    made.stepTo(stops, 1);
    made.stepTo(stops, -1);
    assert.equal(made.t, stop);
  }
});

test("a step button pauses what plays", () => {
  display();
  const { made } = clock();
  made.play();
  made.stepTo([0.5], 1);
  assert.equal(made.playing, false);
});

test("while it cannot be seen a clock asks for no frames, and loses no time by it", () => {
  const screen = display(), { made } = clock();
  made.play();
  screen.frame(16);
  made.show(false);
  screen.frame(16);
  assert.equal(screen.asked, false);
  made.show(true);
  screen.frame(9000);
  screen.frame(10);
  near(made.t, 0.01);
});

test("a paused clock that comes into view stays paused", () => {
  const screen = display(), { made } = clock();
  made.show(false);
  made.show(true);
  assert.deepEqual([made.playing, screen.asked], [false, false]);
});

test("the speeds are in order, with normal speed among them", () => {
  assert.deepEqual(defaults.speeds, [...defaults.speeds].sort((a, b) => a - b));
  assert.ok(defaults.speeds.includes(1));
});

// -- keys -------------------------------------------------------------------------------------------

test("each key of the player asks for one thing, and no other key for any", () => {
  const table = [
    [" ", false, "toggle"], ["ArrowRight", false, "next op"], ["ArrowRight", true, "next phase"],
    ["ArrowLeft", false, "previous op"], ["ArrowLeft", true, "previous phase"], ["Home", false, "start"], ["End", false, "end"],
    ["?", true, "help"], ["a", false, null], ["Enter", false, null], ["Tab", false, null], ["ArrowUp", false, null], ["Escape", false, null],
  ];
  for (const [key, shift, action] of table) assert.equal(keyAction(key, shift), action, key);
});

// -- colours ----------------------------------------------------------------------------------------

test("a colour may be written in any of the ways a browser writes it", () => {
  for (const text of ["#336699", "#369", "rgb(51, 102, 153)", "rgba(51, 102, 153, 0.5)", " #336699 ", "#336699ff", "rgb(51 102 153 / 50%)"]) {
    assert.deepEqual(rgb(text), [51, 102, 153], text);
  }
});

test("a mixture goes straight from one colour to the other", () => {
  assert.equal(mix("#000000", "#ffffff", 0), "rgb(0, 0, 0)");
  assert.equal(mix("#000000", "#ffffff", 1), "rgb(255, 255, 255)");
  assert.deepEqual(rgb(mix("#102030", "#306090", 0.5)), [0x20, 0x40, 0x60]);
});

test("signed values go from negative through neutral to positive, and no further", () => {
  const c = { negative: "#800080", neutral: "#f0f0f0", positive: "#008000" };
  for (const [value, colour] of [[-1, c.negative], [0, c.neutral], [1, c.positive], [-9, c.negative], [9, c.positive]]) {
    assert.deepEqual(rgb(diverging(c, value)), rgb(colour), String(value));
  }
  assert.notEqual(diverging(c, 0.5), diverging(c, -0.5));
});

test("the theme is told by the background that the page paints", () => {
  const colours = { light: "light", dark: "dark" };
  for (const [background, theme] of [["#fbfaf7", "light"], ["#12161c", "dark"], ["rgb(14, 17, 23)", "dark"], [" white ".replace("white", "#fff"), "light"], ["", "light"]]) {
    globalThis.getComputedStyle = () => ({ getPropertyValue: (name) => (name === "--st-background-color" ? background : "") });
    assert.equal(palette(null, colours), theme, background);
  }
});

// -- sharp canvases -----------------------------------------------------------------------------------

/** A canvas that notes what is done to it. */
function canvas() {
  const done = [];
  const context = { setTransform: (...a) => done.push(["setTransform", ...a]), clearRect: (...a) => done.push(["clearRect", ...a]) };
  return { done, context, style: {}, width: 0, height: 0, getContext: () => context };
}

test("a canvas has a dot for every dot of the display, up to three a pixel", () => {
  for (const [density, ratio] of [[undefined, 1], [1, 1], [1.5, 1.5], [4, 3]]) {
    globalThis.devicePixelRatio = density;
    const c = canvas();
    assert.equal(sharpen(c, 300, 100), c.context);
    assert.deepEqual([c.width, c.height, c.style.height], [300 * ratio, 100 * ratio, "100px"]);
    assert.deepEqual(c.done, [["setTransform", ratio, 0, 0, ratio, 0, 0], ["clearRect", 0, 0, 300, 100]]);
  }
  delete globalThis.devicePixelRatio;
});

test("motion is reduced where the reader asks for it, and not where nobody can be asked", () => {
  assert.equal(reducedMotion(), false);
  globalThis.matchMedia = (query) => ({ matches: query === "(prefers-reduced-motion: reduce)" });
  assert.equal(reducedMotion(), true);
  delete globalThis.matchMedia;
});

// -- numbers as text ----------------------------------------------------------------------------------

test("an exact number keeps its value to the digits asked for, whatever its size", () => {
  const small = (text) => [...text].map((d) => "-0123456789"["⁻⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(d)]).join("");
  const number = (text) => Number(text.replace("−", "-").replace(/·10(.+)/, (_, e) => `e${small(e)}`));
  for (const mantissa of [1, 1.2, 1.5, 2, 9.87654321, 9.9999999, 1.000004, 3.25]) {
    for (let power = -30; power <= 30; power += 1) {
      for (const digits of [3, 4, 6, 9, 17]) {
        const v = Number(`${mantissa}e${power}`);
        const text = exact(v, digits);
        const read = number(text);
        assert.ok(Math.abs(read - v) <= 0.5000001 * 10 ** (Math.floor(Math.log10(v)) + 1 - digits) + v * 1e-15, `${v} to ${digits} digits: ${text}`);
        assert.equal(exact(-v, digits), `−${text}`);
        assert.doesNotMatch(text, /e/, "powers of ten are written as such");
      }
    }
  }
});

test("whole numbers keep their zeros", () => {
  for (const [v, digits, text] of [[100, 6, "100"], [100, 3, "100"], [1230, 4, "1230"], [250000, 6, "250000"], [10, 2, "10"]]) {
    assert.equal(exact(v, digits), text);
  }
});

test("zeros behind the point are left away", () => {
  for (const [v, text] of [[0.5, "0.5"], [-0.25, "−0.25"], [1, "1"], [0.1, "0.1"], [2.5e-7, "2.5·10⁻⁷"], [-3e-12, "−3·10⁻¹²"], [4e20, "4·10²⁰"]]) {
    assert.equal(exact(v), text);
  }
});

test("nothing is 0, whatever its sign; what is no number is named", () => {
  assert.deepEqual([0, -0, NaN, Infinity, -Infinity].map((v) => exact(v)), ["0", "0", "NaN", "Infinity", "-Infinity"]);
});

test("counts are grouped by thousands", () => {
  assert.deepEqual([0, 25, 12475, 1e6].map(count), ["0", "25", "12,475", "1,000,000"]);
});

test("bytes are exact while they can be read at a glance, then in decimal units, as on the page", () => {
  const table = [[0, "0 B"], [100, "100 B"], [9999, "9,999 B"], [12_345, "12.35 kB"], [999_000, "999 kB"], [1_234_000, "1.234 MB"], [2.5e9, "2.5 GB"]];
  for (const [n, text] of table) assert.equal(bytes(n), text);
});

test("a time has three digits, in s, ms or µs", () => {
  const table = [[1.2345, "1.23 s"], [0.275078, "275 ms"], [0.0123, "12.3 ms"], [2.75e-4, "275 µs"], [4e-6, "4.0 µs"], [0.9996, "1.00 s"], [0, "0.0 µs"]];
  for (const [s, text] of table) assert.equal(seconds(s), text);
});

test("a signed number has a true minus sign", () => {
  assert.deepEqual([signed(-0.5), signed(0.5), signed(-1.23456, 2)], ["−0.5000", "0.5000", "−1.23"]);
});
