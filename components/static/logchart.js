// A chart of values against a size, drawn as SVG: lines, points, stacks, reference lines, one measure.
//
// Predicted is dashed or hollow, measured solid or filled, what was never measured hatched. The whole
// picture is a function of the message, the width, and which series are shown; what is pointed at is
// drawn over it, so that a moving pointer redraws nothing else.

import { mounted, planted } from "./mount.js";
import { palette, reducedMotion } from "./player.js";
import { between, defaults as place, labelled, layout, moved, nearest, reading, readings, referenceAt, stops, told } from "./logchart_layout.js";
import { exactly, readable, tickText } from "./logchart_scale.js";

export const defaults = { tween: 220, many: 40 };

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
export const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => escapes[c]);
const at = (v) => Math.round(v * 10) / 10;

// -- drawing --------------------------------------------------------------------------------------

/** A path through places; where one is missing it begins anew. */
const line = (points) => points.map((p, i) => (p ? `${i && points[i - 1] ? "L" : "M"}${p[0]} ${p[1]}` : "")).join("");

/** Symbols as paths around a place, so that colour is never the only cue. */
export function symbol(kind, x, y, r) {
  if (kind === "square") return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  if (kind === "diamond") return `M${x} ${y - r * 1.25}L${x + r * 1.25} ${y}L${x} ${y + r * 1.25}L${x - r * 1.25} ${y}z`;
  if (kind === "triangle") return `M${x} ${y - r * 1.2}L${x + r * 1.15} ${y + r}L${x - r * 1.15} ${y + r}z`;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
}

const TILES = {
  hatched: '<path d="M-2 8L8 -2M2 12L12 2M-6 4L4 -6" stroke="#fff" stroke-opacity=".5" stroke-width="1.7"/>',
  dotted: '<circle cx="4" cy="4" r="1.35" fill="#fff" fill-opacity=".6"/>',
  thin: '<path d="M0 4H8" stroke="#fff" stroke-opacity=".45" stroke-width="1"/>',
};

/** How a part is filled: its colour, or the pattern of it that `patternDefs` defines. */
export const fillOf = (pattern, colour, id) => (pattern ? `url(#${id}-${pattern}-${colour.slice(1)})` : colour);

/** Patterns that are used: pairs of a pattern (or "beyond": hatching on nothing) and a colour. */
export function patternDefs(pairs, id) {
  const kinds = new Map(pairs.filter(([pattern]) => pattern).map((pair) => [pair.join("-"), pair]));
  return [...kinds.values()].map(([pattern, colour]) => {
    const name = `${id}-${pattern}-${colour.slice(1)}`;
    if (pattern === "beyond") return `<pattern id="${name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0 0V6" stroke="${colour}" stroke-width="2.2"/></pattern>`;
    return `<pattern id="${name}" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" fill="${colour}"/>${TILES[pattern] ?? ""}</pattern>`;
  }).join("");
}

function patternsOf(figure, c) {
  const pairs = [["beyond", c.ink]];
  for (const s of figure.series) {
    if (s.band) pairs.push(["beyond", c[s.colour] ?? c.ink]);
    for (const l of s.layers ?? []) pairs.push([l.pattern, c[l.colour] ?? c.ink]);
  }
  return pairs;
}

function seriesMarkup(s, d, c, id) {
  const colour = c[s.colour] ?? c.ink;
  if (s.kind === "stack") {
    return d.areas.map((area, i) => `<path d="${line(area)}z" fill="${fillOf(s.layers[i].pattern, c[s.layers[i].colour] ?? c.ink, id)}" fill-opacity=".92" stroke="${c.background}" stroke-width=".8"/>`).join("");
  }
  if (s.kind === "points") {
    const r = s.filled ? 4.8 : s.items.length > defaults.many ? 3.5 : 4.2;
    const look = s.filled ? `fill="${colour}" stroke="${c.background}" stroke-width="1.2"` : `fill="${c.background}" stroke="${colour}" stroke-width="1.6"`;
    return `<path d="${d.dots.map((dot) => (dot ? symbol(s.symbol, dot[0], dot[1], r) : "")).join("")}" ${look}/>`;
  }
  const edge = d.band ? d.band.slice(0, d.band.length / 2) : [];
  const band = d.band ? `<path d="${line(d.band)}z" fill="url(#${id}-beyond-${colour.slice(1)})" fill-opacity=".38"/><path d="${line(edge)}${line(d.band.slice(edge.length))}" fill="none" stroke="${colour}" stroke-width=".8" stroke-opacity=".55"/>` : "";
  const dash = s.dashed ? ' stroke-dasharray="7 4"' : "";
  return `${band}<path d="${line(d.path)}" fill="none" stroke="${colour}" stroke-width="2.2" stroke-linejoin="round" stroke-linecap="${s.dashed ? "butt" : "round"}"${dash}/>`;
}

function axesMarkup(view) {
  const { x, y, figure, height, width, left, right } = view;
  const bottom = height - place.bottom;
  let out = "";
  for (const tick of y.ticks) {
    const py = at(y.to(tick));
    out += `<path d="M${left} ${py}H${width - right}" stroke="var(--line)"/><text class="muted" x="${left - 9}" y="${at(py + 4)}" text-anchor="end">${escaped(tickText(tick, figure.y.unit))}</text>`;
  }
  for (const tick of x.ticks) {
    const px = at(x.to(tick));
    const text = tickText(tick, figure.x.unit);
    const over = px + text.length * place.letter / 2 > width - 2;
    out += `<path d="M${px} ${place.top}V${bottom}" stroke="var(--line)" stroke-opacity=".55"/><text class="muted" x="${over ? width - 2 : px}" y="${bottom + 19}" text-anchor="${over ? "end" : "middle"}">${escaped(text)}</text>`;
  }
  out += `<text class="muted" x="${at((left + width - right) / 2)}" y="${height - 6}" text-anchor="middle">${escaped(figure.x.title)}</text>`;
  return `${out}<text class="muted" x="2" y="11">${escaped(figure.y.title)}</text>`;
}

const words = (label, more = "") => `<text class="${more}" x="${at(label.x)}" y="${at(label.y)}" text-anchor="${label.anchor}">${escaped(label.text)}</text>`;

/** Lines across and along: whole where they are named, else a short mark at the edge, told when it is pointed at. */
function referencesMarkup(view, labels, c) {
  const { width, left, right, height, gutter } = view;
  const end = width - right;
  let lines = "";
  let texts = "";
  for (const l of labels.across) {
    const stroke = `stroke="${l.strong ? c.loss : c.muted}" fill="none"`;
    if (!l.label && !l.strong) { lines += `<path d="M${end - 9} ${l.y}H${end}" ${stroke} stroke-width="1.2" stroke-opacity=".7"/>`; continue; }
    lines += `<path d="M${left} ${l.y}H${end}" ${stroke} stroke-width="${l.strong ? 1.8 : 1}" stroke-dasharray="2 4" stroke-opacity="${l.strong ? 1 : 0.65}"/>`;
    if (!l.label) continue;
    if (gutter) lines += `<path d="M${end} ${l.y}L${end + 12} ${l.label.at}" ${stroke} stroke-width="1" stroke-opacity=".7"/>`;
    texts += words(l.label, `halo ${l.strong ? "strong" : "muted"}`);
  }
  for (const l of labels.along) {
    lines += `<path d="M${l.x} ${place.top}V${height - place.bottom}" stroke="${l.strong ? c.loss : c.muted}" stroke-width="1.2" stroke-dasharray="2 4"/>`;
    if (l.label) texts += words(l.label, `halo ${l.strong ? "strong" : "muted"}`);
  }
  return [lines, texts];
}

function measureMarkup(m, c) {
  if (!m) return "";
  return `<path d="M${m.x} ${m.a}V${m.b}M${m.x - 5} ${m.a}h10M${m.x - 5} ${m.b}h10" stroke="${c.background}" stroke-width="4.5" stroke-opacity=".8" fill="none"/><path d="M${m.x} ${m.a}V${m.b}M${m.x - 5} ${m.a}h10M${m.x - 5} ${m.b}h10" stroke="${c.ink}" stroke-width="1.7" fill="none"/>${m.texts.map((t, i) => words(t, i ? "halo" : "halo strong")).join("")}`;
}

/** The picture as markup; `places`: the series' places where they are on their way to those of the view. */
export function markup(view, c, id, places = view.drawn) {
  const { left, right, width, height } = view;
  const labels = (view.labels ??= labelled(view)); // the same while places are on their way
  const [lines, texts] = referencesMarkup(view, labels, c);
  const inside = `<clipPath id="${id}-in"><rect x="${left - 1}" y="${place.top - 8}" width="${width - left - right + 8}" height="${height - place.top - place.bottom + 16}"/></clipPath>`;
  const order = view.shown.map((s, i) => [rank(s), seriesMarkup(s, places[i], c, id)]).sort((a, b) => a[0] - b[0]);
  const group = (wanted) => `<g clip-path="url(#${id}-in)">${order.filter(([r]) => (r === 0) === wanted).map(([, text]) => text).join("")}</g>`;
  return `<defs>${patternDefs(patternsOf(view.figure, c), id)}${inside}</defs>${axesMarkup(view)}${group(true)}${lines}${group(false)}${texts}`
    + labels.names.map((n) => words(n, "halo muted")).join("") + measureMarkup(labels.measure, c);
}

const rank = (s) => ({ stack: 0, line: 1 }[s.kind] ?? (s.filled ? 3 : 2));

/** What is pointed at, over the picture: {cross: an x in pixels, focus: a stop, reference: a line across}. */
export function overlay(view, c, { cross, focus, reference }) {
  let out = "";
  const bottom = view.height - place.bottom;
  if (reference) {
    const py = at(view.y.to(reference.at));
    out += `<path d="M${view.left} ${py}H${view.width - view.right}" stroke="${c.ink}" stroke-width="1.4" stroke-dasharray="2 4"/>`;
  }
  if (cross !== undefined) {
    out += `<path d="M${at(cross)} ${place.top}V${bottom}" stroke="${c.muted}"/>`;
    for (const r of readings(view, view.x.from(cross))) {
      const py = view.y.to(r.value);
      if (view.shown.some((s) => s.kind === "line" && s.name === r.name) && py >= place.top - 1 && py <= bottom + 1) out += `<circle cx="${at(cross)}" cy="${at(py)}" r="4" fill="${c[r.colour] ?? c.ink}" stroke="${c.background}" stroke-width="1.5"/>`;
    }
  }
  if (focus) out += `<circle cx="${focus.place[0]}" cy="${focus.place[1]}" r="9.5" fill="none" stroke="${c.ink}" stroke-width="1.8"/>`;
  return out;
}

/** The legend as markup: each series and layer can be hidden; what hatching means stands at its end. */
export function legendMarkup(figure, hidden, c, id) {
  const button = (name, mark) => `<button type="button" aria-pressed="${!hidden.has(name)}" data-name="${escaped(name)}">${mark}<span>${escaped(name)}</span></button>`;
  const box = (fill, more = "") => `<svg width="16" height="12" aria-hidden="true"><rect width="16" height="12" rx="2" fill="${fill}"${more}/></svg>`;
  const entries = figure.series.flatMap((s) => (s.kind === "stack"
    ? [...s.layers].reverse().map((l) => button(l.name, box(fillOf(l.pattern, c[l.colour] ?? c.ink, id))))
    : [button(s.name, swatch(s, c))]));
  if (figure.series.some((s) => s.band)) entries.push(`<span>${box(`url(#${id}-beyond-${c.ink.slice(1)})`, ' fill-opacity=".45"')}${escaped(figure.beyond)}</span>`);
  return entries.join("");
}

function swatch(s, c) {
  const colour = c[s.colour] ?? c.ink;
  if (s.kind === "points") return `<svg width="16" height="14" aria-hidden="true"><path d="${symbol(s.symbol, 8, 7, 4.4)}" fill="${s.filled ? colour : "none"}" stroke="${colour}" stroke-width="1.6"/></svg>`;
  return `<svg width="24" height="14" aria-hidden="true"><path d="M1 7H23" stroke="${colour}" stroke-width="2.4"${s.dashed ? ' stroke-dasharray="6 3"' : ""}/></svg>`;
}

/** Every number of a figure, as a table. */
export function tableMarkup(figure) {
  const { x, y } = figure;
  const cell = (v) => `<td>${escaped(v)}</td>`;
  const rows = [];
  for (const s of figure.series) {
    if (s.kind === "points") for (const p of s.items) rows.push([s.name, p[2], exactly(p[0], x.unit), exactly(p[1], y.unit), (p[4] ?? []).map(([k, v]) => `${k} ${v}`).join(", ")]);
    else if (s.kind === "line") {
      const spans = new Map((s.band ?? []).map((b) => [b[0], `${readable(b[1], y.unit)} to ${readable(b[2], y.unit)}`]));
      for (const p of s.points) rows.push([s.name, "", readable(p[0], x.unit), readable(p[1], y.unit), spans.get(p[0]) ?? ""]);
    } else s.xs.forEach((v, i) => { for (const l of s.layers) rows.push([s.name, l.name, readable(v, x.unit), readable(l.values[i], y.unit), ""]); });
  }
  for (const l of figure.lines ?? []) rows.push(["line", l.label, l.axis === "x" ? exactly(l.at, x.unit) : "", l.axis === "x" ? "" : exactly(l.at, y.unit), ""]);
  const head = ["series", "name", x.title, y.title, "more"].map((h) => `<th scope="col">${escaped(h)}</th>`).join("");
  return `<table><thead><tr>${head}</tr></thead><tbody>${rows.map((r) => `<tr>${r.map(cell).join("")}</tr>`).join("")}</tbody></table>`;
}

/** A card: title, rows of what and how much, and what a press would do. */
export function cardMarkup({ title, rows }, hint = "") {
  return `<b>${escaped(title)}</b><dl>${rows.map(([k, v]) => `<dt>${escaped(k)}</dt><dd>${escaped(v)}</dd>`).join("")}</dl>${hint ? `<small>${escaped(hint)}</small>` : ""}`;
}

export const spoken = ({ title, rows }) => `${title}: ${rows.map(([k, v]) => `${k} ${v}`).join(", ")}`;

// -- the widget -----------------------------------------------------------------------------------

const MARKUP = `<div class="logchart">
  <svg data-el="svg" role="application" tabindex="0"><g data-el="base" aria-hidden="true"></g><g data-el="over" aria-hidden="true"></g></svg>
  <div class="none" data-el="none" hidden></div>
  <div class="card" data-el="card" hidden></div>
  <div class="legend" data-el="legend" role="group" aria-label="Series, shown or hidden"></div>
  <div class="sr" aria-live="polite" data-el="said"></div>
  <details data-el="details"><summary>Show the numbers</summary><div class="table" data-el="table" tabindex="0" role="region" aria-label="Every number of the chart"></div></details>
</div>`;
const KEYS = new Set(["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "Home", "End"]);

const hint = () => (globalThis.matchMedia?.("(pointer: coarse)").matches ? "Tap it again to choose it." : "Click or Enter chooses it.");

let nth = 0;

class Chart {
  constructor(parent) {
    ({ root: this.root, host: this.host, el: this.el } = planted(parent, MARKUP));
    this.id = `lc${nth += 1}`;
    this.hidden = new Set();
    this.sizes = new ResizeObserver(() => this.#draw());
    this.sizes.observe(this.root);
    const { svg, details, legend } = this.el;
    svg.addEventListener("pointermove", (e) => this.#point(e));
    svg.addEventListener("pointerdown", (e) => this.#press(e));
    svg.addEventListener("pointerleave", (e) => { if (e.pointerType !== "touch") this.#leave(); });
    svg.addEventListener("click", (e) => this.#click(e));
    svg.addEventListener("keydown", (e) => this.#key(e));
    svg.addEventListener("blur", () => this.#leave());
    legend.addEventListener("click", (e) => this.#toggle(e.target.closest("button")?.dataset.name));
    details.addEventListener("toggle", () => this.#table());
  }

  receive(figure) {
    this.figure = figure;
    this.c = palette(this.host, figure.colours);
    for (const [name, colour] of [["ink", "ink"], ["muted", "muted"], ["line", "line"], ["paper", "background"]]) this.root.style.setProperty(`--${name}`, this.c[colour]);
    this.el.svg.setAttribute("aria-label", `${figure.summary} Arrow keys move between points${figure.picks ? ", Enter chooses" : ""}.`);
    const names = figure.series.flatMap((s) => [s.name, ...(s.layers ?? []).map((l) => l.name)]);
    this.hidden = new Set([...this.hidden].filter((name) => names.includes(name)));
    const held = this.focus && { ...this.focus, name: this.view.shown[this.focus.series].name };
    this.#leave();
    const before = this.places;
    this.#draw(before && !reducedMotion() ? before : null);
    this.#hold(held);
    this.#table();
  }

  /** The stop that was pointed at before the message came, where it still is one. */
  #hold(held) {
    if (!held || !this.view) return;
    this.focus = stops(this.view).flat().find((stop) => stop.item === held.item && this.view.shown[stop.series].name === held.name) ?? null;
    if (this.focus) this.el.over.innerHTML = overlay(this.view, this.c, { focus: this.focus });
  }

  /** `before`: places to move from; without them the picture is there at once. */
  #draw(before = null) {
    const width = Math.floor(this.root.clientWidth);
    if (!this.figure || width < 40) return;
    cancelAnimationFrame(this.frame);
    const empty = !this.figure.series.some((s) => (s.items ?? s.xs ?? s.points).length);
    const { svg, none, legend, details } = this.el;
    none.hidden = !empty;
    for (const part of [svg, legend, details]) part.toggleAttribute("hidden", empty);
    if (empty) {
      none.textContent = this.figure.empty;
      this.view = this.places = null;
      return;
    }
    const entries = legendMarkup(this.figure, this.hidden, this.c, this.id);
    if (entries !== this.entries) {
      const held = this.root.getRootNode().activeElement?.dataset?.name;
      legend.innerHTML = this.entries = entries;
      if (held) [...legend.querySelectorAll("button")].find((b) => b.dataset.name === held)?.focus();
    }
    this.view = layout(this.figure, width, this.hidden);
    svg.setAttribute("viewBox", `0 0 ${width} ${this.view.height}`);
    svg.setAttribute("height", this.view.height);
    this.#paint(before ?? this.view.drawn, before !== null);
    if (before) this.#tween(before);
  }

  #paint(places, moving = false) {
    this.places = moving ? between(places, this.view.drawn, 0) : places;
    this.el.base.innerHTML = markup(this.view, this.c, this.id, this.places);
  }

  #tween(before) {
    const began = performance.now();
    const step = (now) => {
      const share = Math.min(1, Math.max(0, (now - began) / defaults.tween));
      this.#paint(share < 1 ? between(before, this.view.drawn, 1 - (1 - share) ** 3) : this.view.drawn);
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
    const { view } = this;
    const [px, py] = this.#place(e);
    const hit = nearest(view, px, py);
    if (hit) { this.#show({ focus: { ...hit, place: view.drawn[hit.series].dots[hit.item] } }, told(view, hit)); return; }
    const reference = referenceAt(view, py);
    const inside = px >= view.left && px <= view.width - view.right && py <= view.height - place.bottom;
    if (inside) this.#show({ cross: px, reference }, this.#column(view.x.from(px), reference, py), [px, py]);
    else if (reference && px > view.left) this.#show({ reference }, { title: reference.label, rows: [[view.figure.y.title, exactly(reference.at, view.figure.y.unit)]] }, [px, py]);
    else this.#leave();
  }

  /** What the lines and stacks are at an x, and the line across that the pointer is on. */
  #column(xv, reference, py) {
    const { x, y } = this.figure;
    const rows = readings(this.view, xv).map((r) => [r.name, reading(r, y.unit)]);
    if (reference) rows.push([reference.label, readable(reference.at, y.unit)]);
    if (!rows.length) rows.push([y.title, readable(this.view.y.from(py), y.unit)]);
    return { title: `${readable(xv, x.unit)} ${x.unit === "params" ? "" : `· ${x.title}`}`.trim(), rows };
  }

  #show(state, card, where = state.focus.place) {
    this.focus = state.focus ?? null;
    this.el.svg.classList.toggle("pick", Boolean(this.figure.picks && card.id));
    this.el.over.innerHTML = overlay(this.view, this.c, state);
    const { card: box } = this.el;
    box.innerHTML = cardMarkup(card, this.figure.picks && card.id ? hint() : "");
    box.hidden = false;
    const [px, py] = where;
    const { offsetWidth: w, offsetHeight: h } = box;
    box.style.left = `${px + 16 + w > this.view.width ? Math.max(0, px - w - 14) : px + 16}px`;
    box.style.top = `${Math.max(0, Math.min(py - h / 2, this.view.height - h))}px`;
  }

  #leave() {
    this.focus = null;
    this.shownBefore = null;
    this.el.card.hidden = true;
    this.el.over.innerHTML = "";
  }

  #press(e) {
    this.shownBefore = this.focus; // a finger shows a point first, and chooses it with the next tap
    this.#point(e);
  }

  #click(e) {
    const hit = this.view && nearest(this.view, ...this.#place(e));
    if (!hit) return;
    const seen = this.shownBefore?.series === hit.series && this.shownBefore?.item === hit.item;
    if (e.pointerType !== "touch" || seen) this.#pick(hit);
  }

  #pick({ series, item }) {
    const id = this.view.shown[series].items?.[item][3];
    if (id && this.figure.picks) this.tell?.trigger("picked", id);
  }

  #key(e) {
    if (!this.view || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") { this.#leave(); return; }
    if (e.key === "Enter" && this.focus) { this.#pick(this.focus); e.preventDefault(); return; }
    if (!KEYS.has(e.key)) return;
    e.preventDefault();
    const stop = moved(this.view, this.focus, e.key);
    if (!stop) return;
    const s = this.view.shown[stop.series];
    const xv = s.kind === "points" ? null : s.xs?.[stop.item] ?? s.points[stop.item][0];
    const card = xv === null ? told(this.view, stop) : this.#column(xv, null, stop.place[1]);
    this.#show({ focus: stop, ...(xv === null ? {} : { cross: stop.place[0] }) }, card);
    this.el.said.textContent = spoken(card);
  }

  #toggle(name) {
    if (!name) return;
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.#leave();
    this.#draw();
  }

  #table() {
    if (this.el.details.open && this.figure) this.el.table.innerHTML = tableMarkup(this.figure);
  }

  close() {
    this.sizes.disconnect();
    cancelAnimationFrame(this.frame);
    this.root.remove();
  }
}

export default mounted((parent) => new Chart(parent));
