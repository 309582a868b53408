// The shared player kit: clock, transport, keyboard, sharp canvases, colours of the theme.

export const defaults = { speeds: [0.25, 0.5, 1, 2, 4, 8] };

/** Time that plays, pauses, seeks and loops; tells `onTick(t)` on every change. */
export class Clock {
  constructor(onTick) {
    this.onTick = onTick;
    this.t = 0;
    this.end = 1;
    this.rate = 1; // recorded seconds for each second on the wall
    this.speed = 1;
    this.loop = false;
    this.playing = false;
    this.visible = true;
  }

  load(end, rate) {
    this.pause();
    this.end = end;
    this.rate = rate;
    this.seek(0);
  }

  play() {
    if (this.t >= this.end) this.t = 0;
    this.playing = true;
    this.last = null;
    this.#request();
    this.onTick(this.t);
  }

  pause() {
    this.playing = false;
    this.onTick(this.t);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  seek(t) {
    this.t = Math.min(Math.max(t, 0), this.end);
    this.onTick(this.t);
  }

  /** To the next or previous of some moments. */
  stepTo(moments, direction) {
    this.playing = false;
    const near = this.end * 1e-9;
    const next = direction > 0
      ? moments.find((m) => m > this.t + near)
      : moments.findLast((m) => m < this.t - near);
    this.seek(next ?? (direction > 0 ? this.end : 0));
  }

  #request() {
    if (this.frame || !this.playing || !this.visible) return;
    this.frame = requestAnimationFrame((now) => {
      this.frame = null;
      if (!this.playing) return;
      const passed = this.last === null ? 0 : Math.min(now - this.last, 100) / 1000;
      this.last = now;
      this.t += passed * this.rate * this.speed;
      if (this.t >= this.end) {
        if (this.loop) this.t %= this.end;
        else { this.t = this.end; this.playing = false; }
      }
      this.onTick(this.t);
      this.#request();
    });
  }

  show(visible) {
    this.visible = visible;
    this.last = null;
    this.#request();
  }
}

/** What a key asks of the player, or null. */
export function keyAction(key, shift) {
  if (key === " ") return "toggle";
  if (key === "ArrowRight") return shift ? "next phase" : "next op";
  if (key === "ArrowLeft") return shift ? "previous phase" : "previous op";
  if (key === "Home") return "start";
  if (key === "End") return "end";
  if (key === "?") return "help";
  return null;
}

/** Size a canvas to its box at the display's density; returns a context in CSS pixels. */
export function sharpen(canvas, width, height) {
  const ratio = Math.min(globalThis.devicePixelRatio || 1, 3);
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

export const reducedMotion = () => globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;

/** "#rgb", "#rrggbb" or "rgb(...)" -> [r, g, b]. */
export function rgb(colour) {
  const text = colour.trim();
  if (text.startsWith("#")) {
    const hex = text.length < 6 ? [...text.slice(1, 4)].map((c) => c + c).join("") : text.slice(1, 7);
    return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  }
  return text.match(/[\d.]+/g).slice(0, 3).map(Number);
}

const luminance = (colour) => rgb(colour).reduce((sum, c, i) => sum + c * [0.299, 0.587, 0.114][i], 0);

/** Colours by meaning for the page's present theme, told by the background it paints. */
export function palette(host, colours) {
  const background = getComputedStyle(host).getPropertyValue("--st-background-color") || "#ffffff";
  return luminance(background) < 128 ? colours.dark : colours.light;
}

export const mix = (a, b, share) => {
  const [x, y] = [rgb(a), rgb(b)];
  return `rgb(${x.map((v, i) => Math.round(v + (y[i] - v) * share)).join(", ")})`;
};

/** Signed value in [-1, 1] -> colour: negative, neutral, positive. */
export const diverging = (c, v) => mix(c.neutral, v < 0 ? c.negative : c.positive, Math.min(1, Math.abs(v)));

// -- numbers as text, the one place in the browser that writes units -----------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const count = (n) => whole.format(n);
export function bytes(n) {
  if (n < 10_000) return `${count(n)} B`;
  const [unit, size] = [["kB", 1e3], ["MB", 1e6], ["GB", 1e9]].find(([, one]) => n < 1000 * one) ?? ["TB", 1e12];
  return `${Number((n / size).toPrecision(4))} ${unit}`;
}
export const seconds = (s) => (s < 1e-3 ? `${(s * 1e6).toFixed(s < 1e-5 ? 1 : 0)} µs` : s < 0.9995 ? `${(s * 1e3).toPrecision(3)} ms` : `${s.toPrecision(3)} s`);
/** A share of one: never 0 % of what could happen, nor 100 % of what might not. */
export function percent(p) {
  const v = p * 100;
  if (p === 1) return "100 %";
  if (p > 0 && v < 0.001) return "< 0.001 %";
  if (v > 99.99) return "> 99.99 %";
  return `${v >= 99.95 ? v.toFixed(2) : v >= 10 ? v.toFixed(1) : Number(v.toPrecision(2))} %`;
}
export const signed = (v, digits = 4) => (v < 0 ? "−" : "") + Math.abs(v).toFixed(digits);
/** Enough digits to tell small numbers apart, a true minus sign, ×10 notation when tiny. */
export function exact(v, digits = 6) {
  if (!Number.isFinite(v)) return String(v);
  if (v === 0) return "0";
  const sign = v < 0 ? "−" : "";
  const rounded = Number(Math.abs(v).toPrecision(digits)); // as text it has no needless zeros
  if (rounded >= 1e-4 && rounded < 1e6) return sign + rounded;
  const [m, e] = Math.abs(v).toExponential(digits - 1).split("e");
  const small = String(Number(e)).replace("-", "⁻").replace(/\d/g, (d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);
  return `${sign}${m.replace(/\.?0+$/, "")}·10${small}`;
}
