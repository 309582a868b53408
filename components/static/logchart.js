// A chart of values against a size, drawn as SVG: lines, points, stacks, reference lines, one measure.
//
// Predicted is dashed or hollow, measured solid or filled, what was never measured hatched. The whole
// picture is a function of the message, the width, and which series are shown.

import { mounted, planted } from "./mount.js";
import { palette, reducedMotion } from "./player.js";
import { exactly, placed, readable, scale, spanned } from "./logchart_scale.js";

export const defaults = { left: 64, right: 18, top: 18, bottom: 46, narrow: 520, tween: 220, near: 22 };

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
export const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => escapes[c]);
const at = (v) => Math.round(v * 10) / 10;

// -- geometry -------------------------------------------------------------------------------------

/** Everything's place: scales, and each shown series in pixels. */
export function layout(figure, width, hidden = new Set()) {
  const d = defaults;
  const narrow = width < d.narrow;
  const left = narrow ? 50 : d.left;
  const height = figure.height ?? 420;
  const shown = figure.series.filter((s) => !hidden.has(s.name));
  const xs = shown.flatMap(valuesOf(0));
  const ys = shown.flatMap(valuesOf(1));
  const x = scale(spanned(figure.x, xs), left, width - d.right, narrow ? 4 : 9);
  const y = scale(spanned(figure.y, ys), height - d.bottom, d.top, narrow ? 6 : 9);
  return { figure, width, height, left, narrow, x, y, shown, hidden, drawn: shown.map((s) => drawn(s, x, y)) };
}

const valuesOf = (i) => (s) => {
  if (s.kind === "points") return s.items.map((p) => p[i]);
  if (s.kind === "stack") return i ? totals(s).concat(s.layers[0].values.map((v) => v)) : s.xs;
  const points = s.points.map((p) => p[i]);
  return s.band ? points.concat(s.band.flatMap((b) => (i ? [b[1], b[2]] : [b[0]]))) : points;
};

/** Sums of a stack's layers at each x. */
export const totals = (stack) => stack.xs.map((_, i) => stack.layers.reduce((sum, l) => sum + l.values[i], 0));

function drawn(s, x, y) {
  const to = ([px, py]) => [at(x.to(px)), at(y.to(py))];
  if (s.kind === "points") return { dots: s.items.map(to) };
  if (s.kind === "stack") {
    let below = s.xs.map(() => 0);
    return {
      areas: s.layers.map((layer) => {
        const above = below.map((v, i) => v + layer.values[i]);
        const top = s.xs.map((v, i) => to([v, Math.max(above[i], y.low)]));
        const bottom = s.xs.map((v, i) => to([v, Math.max(below[i], y.low)])).reverse();
        below = above;
        return top.concat(bottom);
      }),
    };
  }
  return {
    path: s.points.map(to),
    band: s.band ? s.band.map((b) => to([b[0], b[2]])).concat(s.band.map((b) => to([b[0], b[1]])).reverse()) : null,
  };
}

/** Two layouts of one structure, in between. */
export function between(a, b, share) {
  const mid = (p, q) => p.map((point, i) => [at(point[0] + (q[i][0] - point[0]) * share), at(point[1] + (q[i][1] - point[1]) * share)]);
  const list = (p, q) => (p && q && p.length === q.length ? mid(p, q) : q);
  return b.map((now, i) => {
    const before = a[i] ?? {};
    return {
      dots: list(before.dots, now.dots),
      path: list(before.path, now.path),
      band: list(before.band, now.band),
      areas: now.areas?.map((area, k) => list(before.areas?.[k], area)),
    };
  });
}

/** What stands nearest to a place: a point within reach, else the x of the nearest column. */
export function nearest(view, px, py) {
  let best = null;
  view.shown.forEach((s, i) => {
    if (s.kind !== "points") return;
    view.drawn[i].dots.forEach(([dx, dy], k) => {
      const distance = Math.hypot(dx - px, dy - py);
      if (distance < (best?.distance ?? defaults.near)) best = { series: i, item: k, distance };
    });
  });
  return best;
}

/** Each line's and stack's value at an x, between its points on the axes' own scales. */
export function readings(view, xv) {
  const f = view.x.log ? Math.log : (v) => v;
  const g = view.y.log ? Math.log : (v) => v;
  const back = view.y.log ? Math.exp : (v) => v;
  const between = (points) => {
    const i = points.findIndex((p) => p[0] >= xv);
    if (i < 0 || (i === 0 && points[0][0] > xv)) return null;
    if (i === 0) return points[0][1];
    const [a, b] = [points[i - 1], points[i]];
    const share = (f(xv) - f(a[0])) / (f(b[0]) - f(a[0]) || 1);
    if (a[1] <= 0 || b[1] <= 0) return a[1] + share * (b[1] - a[1]);
    return back(g(a[1]) + share * (g(b[1]) - g(a[1])));
  };
  const found = [];
  for (const s of view.shown) {
    if (s.kind === "line") found.push({ name: s.name, value: between(s.points), colour: s.colour });
    if (s.kind === "stack") {
      for (const l of s.layers) found.push({ name: l.name, value: between(s.xs.map((v, i) => [v, l.values[i]])), colour: l.colour });
      found.push({ name: "together", value: between(s.xs.map((v, i) => [v, totals(s)[i]])) });
    }
  }
  return found.filter((r) => r.value !== null);
}

// -- drawing --------------------------------------------------------------------------------------

const line = (points) => points.map((p, i) => `${i ? "L" : "M"}${p[0]} ${p[1]}`).join("");

/** Symbols as paths around a place, so that colour is never the only cue. */
export function symbol(kind, x, y, r) {
  if (kind === "square") return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  if (kind === "diamond") return `M${x} ${y - r * 1.25}L${x + r * 1.25} ${y}L${x} ${y + r * 1.25}L${x - r * 1.25} ${y}z`;
  if (kind === "triangle") return `M${x} ${y - r * 1.2}L${x + r * 1.15} ${y + r}L${x - r * 1.15} ${y + r}z`;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
}

const PATTERNS = ["hatched", "dotted", "thin"];
export function patternDefs(c, id) {
  const colours = [...new Set(Object.values(c))];
  const tile = {
    hatched: '<path d="M-2 8L8 -2M2 12L12 2M-6 4L4 -6" stroke="#fff" stroke-opacity=".5" stroke-width="1.7"/>',
    dotted: '<circle cx="4" cy="4" r="1.35" fill="#fff" fill-opacity=".6"/>',
    thin: '<path d="M0 4H8" stroke="#fff" stroke-opacity=".45" stroke-width="1"/>',
  };
  return PATTERNS.map((p) => colours.map((colour) => `<pattern id="${id}-${p}-${colour.slice(1)}" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" fill="${colour}"/>${tile[p]}</pattern>`).join("")).join("")
    + colours.map((colour) => `<pattern id="${id}-beyond-${colour.slice(1)}" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V7" stroke="${colour}" stroke-width="2"/></pattern>`).join("");
}

function seriesMarkup(s, d, c, id) {
  const colour = c[s.colour] ?? c.ink;
  if (s.kind === "stack") {
    return d.areas.map((area, i) => {
      const layer = s.layers[i];
      const own = c[layer.colour] ?? c.ink;
      const fill = layer.pattern ? `url(#${id}-${layer.pattern}-${own.slice(1)})` : own;
      return `<path d="${line(area)}z" fill="${fill}" fill-opacity=".9" stroke="${c.background}" stroke-width=".8"/>`;
    }).join("");
  }
  if (s.kind === "points") {
    return d.dots.map(([x, y], i) => {
      const r = s.filled ? 5.2 : 4.2;
      const fill = s.filled ? colour : c.background;
      const id2 = s.items[i][3];
      return `<path d="${symbol(s.symbol, x, y, r)}" fill="${fill}" stroke="${s.filled ? c.background : colour}" stroke-width="${s.filled ? 1.2 : 1.6}"${id2 ? ' class="pick"' : ""}/>`;
    }).join("");
  }
  const band = d.band ? `<path d="${line(d.band)}z" fill="url(#${id}-beyond-${colour.slice(1)})" fill-opacity=".3"/>` : "";
  const dash = s.dashed ? ' stroke-dasharray="7 4"' : "";
  return `${band}<path d="${line(d.path)}" fill="none" stroke="${colour}" stroke-width="2.4" stroke-linejoin="round" stroke-linecap="round"${dash}/>`;
}

function axesMarkup(view) {
  const { x, y, figure, height, width, left } = view;
  const d = defaults;
  const bottom = height - d.bottom;
  let out = "";
  for (const tick of y.ticks) {
    const py = at(y.to(tick));
    out += `<path d="M${left} ${py}H${width - d.right}" stroke="var(--line)" stroke-width="1"/><text class="muted" x="${left - 8}" y="${py + 4}" text-anchor="end">${escaped(readable(tick, figure.y.unit))}</text>`;
  }
  for (const tick of x.ticks) {
    const px = at(x.to(tick));
    out += `<path d="M${px} ${d.top}V${bottom}" stroke="var(--line)" stroke-width="1" stroke-opacity=".55"/><text class="muted" x="${px}" y="${bottom + 18}" text-anchor="middle">${escaped(readable(tick, figure.x.unit))}</text>`;
  }
  out += `<text class="muted" x="${(left + width - d.right) / 2}" y="${height - 6}" text-anchor="middle">${escaped(figure.x.title)}</text>`;
  out += `<text class="muted" x="${left - 8 > 40 ? 4 : 2}" y="11">${escaped(figure.y.title)}</text>`;
  return out;
}

function referencesMarkup(view, c) {
  const d = defaults;
  const { x, y, width, left, height } = view;
  const lines = view.figure.lines ?? [];
  let out = "";
  const across = lines.filter((l) => l.axis !== "x" && l.at > y.low && l.at < y.high);
  for (const l of across) {
    const py = at(y.to(l.at));
    out += `<path d="M${left} ${py}H${width - d.right}" stroke="${l.strong ? c.loss : c.muted}" stroke-width="${l.strong ? 1.8 : 1}" stroke-dasharray="2 4" stroke-opacity="${l.strong ? 1 : 0.7}"/>`;
  }
  const labels = across.map((l, i) => ({ ...l, at: y.to(l.at), size: 15, weight: (l.strong ? 1e6 : 0) + (lines.length - i) }));
  for (const l of placed(labels, 1, d.top, height - d.bottom)) {
    out += `<text class="halo${l.strong ? " strong" : " muted"}" x="${width - d.right - 4}" y="${at(l.at - 4)}" text-anchor="end">${escaped(l.label)}</text>`;
  }
  for (const l of lines.filter((l) => l.axis === "x" && l.at > x.low && l.at < x.high)) {
    const px = at(x.to(l.at));
    out += `<path d="M${px} ${d.top}V${height - d.bottom}" stroke="${l.strong ? c.loss : c.muted}" stroke-width="1.2" stroke-dasharray="2 4"/><text class="halo muted" x="${px + 5}" y="${d.top + 12}">${escaped(l.label)}</text>`;
  }
  return out;
}

function measureMarkup(view, c) {
  const m = view.figure.measure;
  if (!m) return "";
  const [px, a, b] = [view.x.to(m.x), view.y.to(m.low), view.y.to(m.high)].map(at);
  const right = px < view.width * 0.7;
  const text = right ? `x="${px + 9}" text-anchor="start"` : `x="${px - 9}" text-anchor="end"`;
  return `<path d="M${px} ${a}V${b}M${px - 4} ${a}h8M${px - 4} ${b}h8" stroke="${c.ink}" stroke-width="1.6" fill="none"/>`
    + `<text class="halo strong" ${text} y="${(a + b) / 2 + 4}">${escaped(m.text)}</text>`
    + (m.label ? `<text class="halo" ${text} y="${Math.min(a, b) - 9}">${escaped(m.label)}</text>` : "");
}

/** Names beside the points that carry one and have room for it. */
export function pointLabels(view) {
  const taken = [];
  const found = [];
  view.shown.forEach((s, i) => {
    if (s.kind !== "points") return;
    s.items.forEach((item, k) => {
      if (!item[5]) return;
      const [px, py] = view.drawn[i].dots[k];
      const w = String(item[2]).length * 6.6;
      const box = { x: px - w / 2, y: py - 22, w, h: 14 };
      if (box.x < view.left || box.x + w > view.width - 4 || box.y < 14) return;
      if (taken.some((o) => box.x < o.x + o.w + 4 && o.x < box.x + w + 4 && box.y < o.y + o.h + 2 && o.y < box.y + 16)) return;
      taken.push(box);
      found.push({ x: px, y: py - 10, text: item[2] });
    });
  });
  return found;
}

/** The picture as markup. `state`: drawn places (maybe on their way), what is looked at. */
export function markup(view, c, id, state = {}) {
  const places = state.drawn ?? view.drawn;
  const inside = `<clipPath id="${id}-in"><rect x="${view.left}" y="${defaults.top - 8}" width="${view.width - view.left - defaults.right + 8}" height="${view.height - defaults.top - defaults.bottom + 16}"/></clipPath>`;
  const order = view.shown.map((s, i) => [s, i]).sort((a, b) => rank(a[0]) - rank(b[0]));
  let out = `<defs>${patternDefs(c, id)}${inside}</defs>${axesMarkup(view)}`;
  const stacks = order.filter(([s]) => s.kind === "stack");
  const others = order.filter(([s]) => s.kind !== "stack");
  out += `<g clip-path="url(#${id}-in)">${stacks.map(([s, i]) => seriesMarkup(s, places[i], c, id)).join("")}</g>`;
  out += referencesMarkup(view, c);
  out += `<g clip-path="url(#${id}-in)">${others.map(([s, i]) => seriesMarkup(s, places[i], c, id)).join("")}</g>`;
  for (const label of pointLabels(view)) out += `<text class="halo muted" x="${label.x}" y="${label.y}" text-anchor="middle">${escaped(label.text)}</text>`;
  out += measureMarkup(view, c);
  if (state.cross !== undefined) out += `<path d="M${at(state.cross)} ${defaults.top}V${view.height - defaults.bottom}" stroke="${c.muted}" stroke-width="1"/>`;
  if (state.focus) {
    const [px, py] = places[state.focus.series].dots[state.focus.item];
    out += `<circle cx="${px}" cy="${py}" r="9.5" fill="none" stroke="${c.ink}" stroke-width="1.8"/>`;
  }
  return out;
}

const rank = (s) => ({ stack: 0, line: 1 }[s.kind] ?? (s.filled ? 3 : 2));

function swatch(s, c) {
  const colour = c[s.colour] ?? c.ink;
  if (s.kind === "points") return `<svg width="16" height="14" aria-hidden="true"><path d="${symbol(s.symbol, 8, 7, 4.4)}" fill="${s.filled ? colour : "none"}" stroke="${colour}" stroke-width="1.6"/></svg>`;
  return `<svg width="24" height="14" aria-hidden="true"><path d="M1 7H23" stroke="${colour}" stroke-width="2.4"${s.dashed ? ' stroke-dasharray="6 3"' : ""}/></svg>`;
}

// -- the widget -----------------------------------------------------------------------------------

const MARKUP = `<div class="logchart">
  <svg data-el="svg" role="application" tabindex="0"></svg>
  <div class="card" data-el="card" hidden></div>
  <div class="legend" data-el="legend"></div>
  <div class="sr" aria-live="polite" data-el="said"></div>
  <details data-el="details"><summary>Show the numbers</summary><div class="table" data-el="table"></div></details>
</div>`;

let nth = 0;

class Chart {
  constructor(parent) {
    ({ root: this.root, host: this.host, el: this.el } = planted(parent, MARKUP));
    this.id = `lc${nth += 1}`;
    this.hidden = new Set();
    this.focus = null;
    this.sizes = new ResizeObserver(() => this.#draw());
    this.sizes.observe(this.root);
    const { svg, details } = this.el;
    svg.addEventListener("pointermove", (e) => this.#point(e));
    svg.addEventListener("pointerdown", (e) => this.#point(e));
    svg.addEventListener("pointerleave", () => this.#leave());
    svg.addEventListener("click", (e) => this.#click(e));
    svg.addEventListener("keydown", (e) => this.#key(e));
    svg.addEventListener("blur", () => { this.focus = null; this.#leave(); });
    details.addEventListener("toggle", () => this.#table());
  }

  receive(figure) {
    this.figure = figure;
    this.c = palette(this.host, figure.colours);
    for (const [name, colour] of [["ink", "ink"], ["muted", "muted"], ["line", "line"], ["paper", "background"]]) this.root.style.setProperty(`--${name}`, this.c[colour]);
    this.el.svg.setAttribute("aria-label", `${figure.summary} Arrow keys move between points, Enter chooses.`);
    this.hidden = new Set([...this.hidden].filter((name) => figure.series.some((s) => s.name === name)));
    this.#legend();
    const before = this.places;
    this.#draw();
    if (before && this.view && !reducedMotion()) this.#tween(before);
    if (this.el.details.open) this.#table();
  }

  #draw() {
    const width = Math.floor(this.root.clientWidth);
    if (!this.figure || width < 40) return;
    if (!this.figure.series.some((s) => (s.items ?? s.points ?? s.xs).length)) {
      this.el.svg.setAttribute("height", 0);
      this.el.legend.innerHTML = `<div class="none">${escaped(this.figure.empty ?? "Nothing to show yet.")}</div>`;
      return;
    }
    this.view = layout(this.figure, width, this.hidden);
    this.el.svg.setAttribute("viewBox", `0 0 ${width} ${this.view.height}`);
    this.el.svg.setAttribute("height", this.view.height);
    this.places = this.view.drawn;
    this.#paint();
  }

  #paint(places = this.places) {
    this.el.svg.innerHTML = markup(this.view, this.c, this.id, { drawn: places, cross: this.cross, focus: this.focus });
  }

  #tween(before) {
    cancelAnimationFrame(this.frame);
    const began = performance.now();
    const step = (now) => {
      const share = Math.min(1, (now - began) / defaults.tween);
      const eased = 1 - (1 - share) ** 3;
      if (!this.view) return;
      this.#paint(between(before, this.view.drawn, eased));
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  #place(e) {
    const box = this.el.svg.getBoundingClientRect();
    return [e.clientX - box.left, e.clientY - box.top];
  }

  #point(e) {
    if (!this.view) return;
    const [px, py] = this.#place(e);
    const hit = nearest(this.view, px, py);
    this.focus = hit && { series: hit.series, item: hit.item };
    this.cross = hit ? undefined : px > this.view.left && px < this.view.width - defaults.right ? px : undefined;
    this.#paint();
    if (hit) this.#cardOf(hit);
    else if (this.cross !== undefined) this.#cardAt(px, py);
    else this.el.card.hidden = true;
  }

  #leave() {
    this.cross = undefined;
    this.focus = null;
    this.el.card.hidden = true;
    if (this.view) this.#paint();
  }

  #cardOf({ series, item }) {
    const s = this.view.shown[series];
    const [x, y, label, , rows] = s.items[item];
    const { figure } = this;
    const lines = [[figure.x.title, exactly(x, figure.x.unit)], [s.name, exactly(y, figure.y.unit)], ...(rows ?? [])];
    const [px, py] = this.view.drawn[series].dots[item];
    this.#card(label, lines, px, py);
    return `${label}: ${lines.map(([k, v]) => `${k} ${v}`).join(", ")}`;
  }

  #cardAt(px, py) {
    const xv = this.view.x.from(px);
    const { figure } = this;
    const rows = readings(this.view, xv).map((r) => [r.name, readable(r.value, figure.y.unit)]);
    const yv = this.view.y.from(py);
    const lines = (figure.lines ?? []).filter((l) => l.axis !== "x").map((l) => ({ ...l, gap: Math.abs(this.view.y.to(l.at) - py) }));
    const close = lines.sort((a, b) => a.gap - b.gap)[0];
    if (close && close.gap < 7) rows.push([close.label, readable(close.at, figure.y.unit)]);
    if (!rows.length) rows.push([figure.y.title, readable(yv, figure.y.unit)]);
    this.#card(readable(xv, figure.x.unit), rows, px, py);
  }

  #card(title, rows, px, py) {
    const { card } = this.el;
    card.innerHTML = `<b>${escaped(title)}</b><dl>${rows.map(([k, v]) => `<dt>${escaped(k)}</dt><dd>${escaped(v)}</dd>`).join("")}</dl>`;
    card.hidden = false;
    const { offsetWidth: w, offsetHeight: h } = card;
    const left = px + 16 + w > this.view.width ? Math.max(0, px - w - 14) : px + 16;
    card.style.left = `${left}px`;
    card.style.top = `${Math.max(0, Math.min(py - h / 2, this.view.height - h))}px`;
  }

  #click(e) {
    const [px, py] = this.#place(e);
    const hit = nearest(this.view, px, py);
    if (hit) this.#pick(hit);
  }

  #pick({ series, item }) {
    const id = this.view.shown[series].items[item][3];
    if (id) this.tell?.trigger("picked", id);
  }

  #key(e) {
    if (!this.view) return;
    const rows = this.view.shown.map((s, i) => [s, i]).filter(([s]) => s.kind === "points" && s.items.length);
    if (!rows.length) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    const turn = { ArrowUp: 1, ArrowDown: -1 }[e.key];
    if (e.key === "Escape") { this.#leave(); return; }
    if (e.key === "Enter" && this.focus) { this.#pick(this.focus); e.preventDefault(); return; }
    if (!step && !turn) return;
    e.preventDefault();
    const here = rows.findIndex(([, i]) => i === this.focus?.series);
    const [s, series] = rows[this.focus ? (here + (turn ?? 0) + rows.length) % rows.length : 0];
    const order = s.items.map((_, k) => k).sort((a, b) => s.items[a][0] - s.items[b][0]);
    let item = order[0];
    if (this.focus && step) item = order[Math.min(Math.max(order.indexOf(this.focus.item) + step, 0), order.length - 1)];
    if (this.focus && turn) {
      const x = this.view.shown[this.focus.series].items[this.focus.item][0];
      item = order.reduce((a, b) => (Math.abs(Math.log(s.items[b][0] / x)) < Math.abs(Math.log(s.items[a][0] / x)) ? b : a));
    }
    this.focus = { series, item };
    this.cross = undefined;
    this.#paint();
    this.el.said.textContent = this.#cardOf(this.focus);
  }

  #legend() {
    const { figure, c } = this;
    const entries = figure.series.filter((s) => s.kind !== "stack").map((s) => `<button aria-pressed="${!this.hidden.has(s.name)}" data-name="${escaped(s.name)}">${swatch(s, c)}${escaped(s.name)}</button>`);
    for (const s of figure.series.filter((s) => s.kind === "stack")) {
      for (const l of s.layers) {
        const own = c[l.colour] ?? c.ink;
        const fill = l.pattern ? `url(#${this.id}-${l.pattern}-${own.slice(1)})` : own;
        entries.push(`<span><svg width="14" height="12" aria-hidden="true"><rect width="14" height="12" rx="2" fill="${fill}"/></svg>${escaped(l.name)}</span>`);
      }
    }
    if (figure.series.some((s) => s.band)) entries.push(`<span><svg width="20" height="12" aria-hidden="true"><rect width="20" height="12" fill="url(#${this.id}-beyond-${c.ink.slice(1)})" fill-opacity=".35"/></svg>${escaped(figure.beyond ?? "never measured here: the error seen so far")}</span>`);
    this.el.legend.innerHTML = entries.join("");
    for (const button of this.el.legend.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        const { name } = button.dataset;
        if (this.hidden.has(name)) this.hidden.delete(name);
        else this.hidden.add(name);
        button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
        this.focus = null;
        this.#draw();
      });
    }
  }

  #table() {
    if (!this.el.details.open || !this.figure) return;
    this.el.table.innerHTML = tableMarkup(this.figure);
  }

  close() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
    this.root.remove();
  }
}

/** Every number of a figure, as a table. */
export function tableMarkup(figure) {
  const { x, y } = figure;
  const cell = (v) => `<td>${escaped(v)}</td>`;
  const rows = [];
  for (const s of figure.series) {
    if (s.kind === "points") for (const p of s.items) rows.push([s.name, p[2], exactly(p[0], x.unit), exactly(p[1], y.unit)]);
    else if (s.kind === "line") for (const p of s.points) rows.push([s.name, "", readable(p[0], x.unit), readable(p[1], y.unit)]);
    else s.xs.forEach((v, i) => { for (const l of s.layers) rows.push([`${s.name}: ${l.name}`, "", readable(v, x.unit), readable(l.values[i], y.unit)]); });
  }
  for (const l of figure.lines ?? []) rows.push(["line", l.label, l.axis === "x" ? readable(l.at, x.unit) : "", l.axis === "x" ? "" : readable(l.at, y.unit)]);
  return `<table><thead><tr><th>series</th><th>name</th><th>${escaped(x.title)}</th><th>${escaped(y.title)}</th></tr></thead><tbody>${rows.map((r) => `<tr>${r.map(cell).join("")}</tr>`).join("")}</tbody></table>`;
}

export default mounted((parent) => new Chart(parent));
