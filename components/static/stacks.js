// Horizontal stacks to scale: one row a thing, one segment a category, and what would still fit.

import { mounted, planted } from "./mount.js";
import { palette } from "./player.js";
import { escaped, patternDefs } from "./logchart.js";
import { evenly, exactly, readable } from "./logchart_scale.js";

export const defaults = { row: 40, gap: 46, top: 26, axis: 30, left: 2, right: 14, least: 34, letter: 6.4 };

/** Rows in pixels: {name, y, note, segments: [{x, w, …}], end}. Capacity is a place on the same axis. */
export function layout(figure, width) {
  const d = defaults;
  const sums = figure.rows.map((r) => r.segments.reduce((sum, s) => sum + s.value, 0));
  const limit = figure.capacity?.at ?? 0;
  const high = Math.max(...sums, limit <= Math.max(...sums) * 3 ? limit : 0) * 1.04 || 1;
  const x = (v) => d.left + (v / high) * (width - d.left - d.right);
  const rows = figure.rows.map((row, i) => {
    let sum = 0;
    const y = d.top + i * (d.row + d.gap);
    const segments = row.segments.filter((s) => s.value > 0).map((s) => {
      const left = x(sum);
      sum += s.value;
      return { ...s, x: left, w: Math.max(x(sum) - left, 0.6) };
    });
    return { ...row, y, segments, sum, end: x(sum) };
  });
  return { rows, x, high, height: d.top + figure.rows.length * (d.row + d.gap) + d.axis - 8, width, ticks: evenly(0, high, width < 520 ? 3 : 7) };
}

/** Labels under a row that do not touch, in the segments' order; larger segments first. */
export function labels(row, width, unit) {
  const d = defaults;
  const taken = [];
  const byValue = [...row.segments].sort((a, b) => b.value - a.value);
  for (const s of byValue) {
    const text = `${s.name} ${readable(s.value, unit)}`;
    const w = text.length * d.letter;
    const x = Math.min(Math.max(s.x, 0), Math.max(0, width - w - 2));
    if (taken.some((t) => x < t.x + t.w + 10 && t.x < x + w + 10)) continue;
    taken.push({ x, w, text });
  }
  return taken;
}

export function markup(view, figure, c, id) {
  const d = defaults;
  const bottom = view.height - d.axis;
  let out = `<defs>${patternDefs(c, id)}</defs>`;
  for (const tick of view.ticks) {
    const px = view.x(tick);
    out += `<path d="M${px} ${d.top - 8}V${bottom}" stroke="var(--line)"/><text class="muted" x="${px}" y="${bottom + 16}" text-anchor="${tick ? "middle" : "start"}">${escaped(readable(tick, figure.unit))}</text>`;
  }
  const limit = figure.capacity?.at;
  for (const row of view.rows) {
    out += `<text class="strong" x="${d.left}" y="${row.y - 8}">${escaped(row.name)}<tspan class="quiet" dx="8">${escaped(`${readable(row.sum, figure.unit)}${row.note ? ` · ${row.note}` : ""}`)}</tspan></text>`;
    row.segments.forEach((s, i) => {
      const own = c[s.colour] ?? c.ink;
      const fill = s.pattern ? `url(#${id}-${s.pattern}-${own.slice(1)})` : own;
      out += `<rect data-row="${row.name}" data-i="${i}" x="${s.x}" y="${row.y}" width="${s.w}" height="${d.row}" fill="${fill}" stroke="${c.background}" stroke-width="1.2" rx="3"/>`;
    });
    if (limit && row.sum > limit) out += `<rect x="${view.x(limit)}" y="${row.y - 2}" width="${row.end - view.x(limit)}" height="${d.row + 4}" fill="url(#${id}-beyond-${c.loss.slice(1)})" fill-opacity=".45" pointer-events="none"/>`;
    for (const l of labels(row, view.width, figure.unit)) out += `<text class="muted" x="${l.x}" y="${row.y + d.row + 15}">${escaped(l.text)}</text>`;
  }
  if (limit && limit <= view.high) {
    const px = view.x(limit);
    const end = px > view.width * 0.7;
    out += `<path d="M${px} ${d.top - 16}V${bottom}" stroke="${c.loss}" stroke-width="1.8" stroke-dasharray="2 4"/><text class="strong halo" x="${px + (end ? -5 : 5)}" y="${bottom - 4}" text-anchor="${end ? "end" : "start"}">${escaped(figure.capacity.label)}</text>`;
  }
  return out;
}

const MARKUP = `<div class="logchart stacks">
  <svg data-el="svg" role="img"></svg>
  <div class="card" data-el="card" hidden></div>
  <details data-el="details"><summary>Show the numbers</summary><div class="table" data-el="table"></div></details>
</div>`;

let nth = 0;

class Stacks {
  constructor(parent) {
    ({ root: this.root, host: this.host, el: this.el } = planted(parent, MARKUP));
    this.id = `st${nth += 1}`;
    this.sizes = new ResizeObserver(() => this.#draw());
    this.sizes.observe(this.root);
    this.el.svg.addEventListener("pointermove", (e) => this.#point(e));
    this.el.svg.addEventListener("pointerleave", () => { this.el.card.hidden = true; });
  }

  receive(figure) {
    this.figure = figure;
    this.c = palette(this.host, figure.colours);
    for (const [name, colour] of [["ink", "ink"], ["muted", "muted"], ["line", "line"], ["paper", "background"]]) this.root.style.setProperty(`--${name}`, this.c[colour]);
    this.el.svg.setAttribute("aria-label", figure.summary);
    const rows = figure.rows.flatMap((r) => r.segments.map((s) => [r.name, s.name, exactly(s.value, figure.unit)]));
    this.el.table.innerHTML = `<table><thead><tr><th></th><th>part</th><th>${escaped(figure.title ?? "")}</th></tr></thead><tbody>${rows.map((r) => `<tr>${r.map((v) => `<td>${escaped(v)}</td>`).join("")}</tr>`).join("")}</tbody></table>`;
    this.#draw();
  }

  #draw() {
    const width = Math.floor(this.root.clientWidth);
    if (!this.figure || width < 40) return;
    this.view = layout(this.figure, width);
    this.el.svg.setAttribute("viewBox", `0 0 ${width} ${this.view.height}`);
    this.el.svg.setAttribute("height", this.view.height);
    this.el.svg.innerHTML = markup(this.view, this.figure, this.c, this.id);
  }

  #point(e) {
    const box = this.el.svg.getBoundingClientRect();
    const [px, py] = [e.clientX - box.left, e.clientY - box.top];
    const row = this.view?.rows.find((r) => py >= r.y && py <= r.y + defaults.row);
    const s = row?.segments.find((part) => px >= part.x && px <= part.x + part.w);
    const { card } = this.el;
    card.hidden = !s;
    if (!s) return;
    const share = `${Number((100 * s.value / row.sum).toPrecision(2))} % of ${row.name}`;
    card.innerHTML = `<b>${escaped(s.name)}</b><dl><dt>${escaped(share)}</dt><dd>${escaped(exactly(s.value, this.figure.unit))}</dd></dl>${s.why ? escaped(s.why) : ""}`;
    card.style.left = `${Math.max(0, Math.min(px + 14, this.view.width - card.offsetWidth - 4))}px`;
    card.style.top = `${row.y + defaults.row + 6}px`;
  }

  close() {
    this.sizes.disconnect();
    this.root.remove();
  }
}

export default mounted((parent) => new Stacks(parent));
