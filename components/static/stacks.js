// Horizontal stacks to scale: one row a thing, one segment a category, and what there is room for.

import { mounted, planted } from "./mount.js";
import { palette, reducedMotion } from "./player.js";
import { cardMarkup, escaped, fillOf, patternDefs, spoken } from "./logchart.js";
import { evenly, exactly, readable, thinned, tickText } from "./logchart_scale.js";

export const defaults = { row: 38, title: 26, tier: 17, gap: 18, top: 4, head: 22, axis: 28, left: 2, right: 14, letter: 6.4, tiers: 3, tween: 220, far: 3 };

const sum = (row) => row.segments.reduce((total, s) => total + s.value, 0);

/** Rows in pixels: each with its segments {x, w, …}, labels {x, y, text, from}, and `over`, what has no room. */
export function layout(figure, width) {
  const d = defaults;
  const most = Math.max(0, ...figure.rows.map(sum));
  const limit = figure.capacity?.at ?? null;
  const near = limit !== null && limit > 0 && (limit <= most * d.far || most === 0); // else the bars would be slivers
  const high = Math.max(most, near ? limit : 0) * 1.04 || 1;
  const x = (v) => d.left + (v / high) * (width - d.left - d.right);
  let y = d.top + (limit !== null ? d.head : 0);
  const rows = figure.rows.map((row) => {
    let total = 0;
    y += d.title;
    const top = y;
    const segments = row.segments.map((s, i) => ({ ...s, i })).filter((s) => s.value > 0).map((s) => {
      const left = x(total);
      total += s.value;
      return { ...s, x: left, w: Math.max(x(total) - left, 0.6) };
    });
    const texts = labels(segments, width, figure.unit, top + d.row);
    y += d.row + d.gap + d.tier * Math.max(0, ...texts.map((t) => t.tier + 1));
    const over = limit !== null && total > limit && near ? { x: x(limit), w: x(total) - x(limit), value: total - limit } : null;
    return { ...row, y: top, segments, sum: total, end: x(total), labels: texts, over };
  });
  const ticks = thinned(evenly(0, high, width < 520 ? 4 : 7), x, (v) => tickText(v, figure.unit).length * d.letter + 18);
  return { rows, x, high, limit, near, width, bottom: y - 4, height: y + d.axis, ticks };
}

/** What the segments are called, beneath them: those that touch stand lower, with a lead. Of several orders to
 * place them in, the one that names most, what is large above all, then the one that needs the fewest tiers.
 */
export function labels(segments, width, unit, top) {
  const byValue = [...segments].sort((a, b) => b.value - a.value);
  const backwards = [...segments].reverse();
  const all = byValue.reduce((total, s) => total + s.value, 0) || 1;
  const [large, small] = [true, false].map((is) => backwards.filter((s) => (s.value > all * 0.02) === is));
  const orders = [byValue, [...large, ...small], backwards, segments].flatMap((order) => [false, true].map((late) => arranged(order, width, unit, top, late)));
  const worth = (found) => found.reduce((total, t) => total + 10 + 200 * t.value / all, 0) - Math.max(0, ...found.map((t) => t.tier));
  return orders.reduce((best, found) => (worth(found) > worth(best) ? found : best));
}

/** One way to place them; `late`: texts of the right half end at their segment instead of beginning there. */
function arranged(order, width, unit, top, late) {
  const d = defaults;
  const taken = [];
  for (const s of order) {
    const text = `${s.name} ${readable(s.value, unit)}`;
    const w = text.length * d.letter;
    const from = s.x + Math.min(s.w / 2, 6);
    const ends = late && from > width / 2;
    const x = ends ? from - w - 4 : Math.max(0, Math.min(s.x, width - w - 2));
    if (x < 0) continue;
    const free = (tier) => taken.every((t) => {
      if (t.tier === tier) return x >= t.x + t.w + 10 || t.x >= x + w + 10;
      const [upper, lower] = t.tier < tier ? [t, { from }] : [{ x, w }, t];
      return lower.from < upper.x - 1 || lower.from > upper.x + upper.w + 3; // a lead passes beside the text above it
    });
    const tier = Array.from({ length: d.tiers }, (_, k) => k).find(free);
    if (tier !== undefined) taken.push({ i: s.i, value: s.value, x, w, text, tier, from, lead: tier > 0 || ends, y: top + 15 + d.tier * tier, ends });
  }
  return taken;
}

/** A figure on its way to another: values in between, where rows and segments have the same names. */
export function between(before, now, share) {
  const rows = now.rows.map((row) => {
    const old = before.rows.find((r) => r.name === row.name);
    const values = new Map((old?.segments ?? []).map((s) => [s.name, s.value]));
    return { ...row, segments: row.segments.map((s) => (values.has(s.name) ? { ...s, value: values.get(s.name) + (s.value - values.get(s.name)) * share } : s)) };
  });
  return { ...now, rows };
}

const colourOf = (s, c) => c[s.colour] ?? c.ink;

export function markup(view, figure, c, id, focus = null) {
  const d = defaults;
  const pairs = figure.rows.flatMap((r) => r.segments.map((s) => [s.pattern, colourOf(s, c)]));
  let out = `<defs>${patternDefs([...pairs, ["beyond", c.ink]], id)}</defs>`;
  const first = d.top + (view.limit !== null ? d.head : 0) + d.title - 4;
  for (const tick of view.ticks) {
    const px = view.x(tick);
    out += `<path d="M${px} ${first}V${view.bottom}" stroke="var(--line)"/><text class="muted" x="${px}" y="${view.bottom + 17}" text-anchor="${tick ? "middle" : "start"}">${escaped(tickText(tick, figure.unit))}</text>`;
  }
  const limit = view.near ? view.x(view.limit) : null;
  if (limit !== null) out += `<path d="M${limit} ${d.top + 17}V${view.bottom}" stroke="${c.loss}" stroke-width="1.6" stroke-dasharray="2 4"/>`;
  view.rows.forEach((row, k) => {
    out += `<text class="halo strong" x="${d.left}" y="${row.y - 9}">${escaped(row.name)}<tspan class="quiet" dx="8">${escaped(`${readable(row.sum, figure.unit)}${row.note ? ` · ${row.note}` : ""}`)}</tspan></text>`;
    for (const s of row.segments) out += `<rect x="${s.x}" y="${row.y}" width="${s.w}" height="${d.row}" fill="${fillOf(s.pattern, colourOf(s, c), id)}" stroke="${c.background}" stroke-width="1.2" rx="${Math.min(3, s.w / 3)}"/>`;
    if (row.over) out += `<rect x="${row.over.x}" y="${row.y - 3}" width="${row.over.w}" height="${d.row + 6}" rx="3" fill="url(#${id}-beyond-${c.ink.slice(1)})" fill-opacity=".28" stroke="${c.loss}" stroke-width="1.4"/>`;
    for (const l of row.labels) {
      if (l.lead) out += `<path d="M${l.from} ${row.y + d.row + 2}V${l.y - (l.ends ? 2 : 11)}" stroke="${c.muted}" stroke-width=".8"/>`;
      out += `<text class="halo muted" x="${l.ends ? l.from - 4 : l.x}" y="${l.y}" text-anchor="${l.ends ? "end" : "start"}">${escaped(l.text)}</text>`;
    }
    const held = focus?.row === k ? row.segments.find((s) => s.i === focus.i) : null;
    if (held) out += `<rect x="${held.x}" y="${row.y}" width="${held.w}" height="${d.row}" fill="none" stroke="${c.ink}" stroke-width="2.2" rx="3"/>`;
  });
  if (view.limit === null) return out;
  const text = `${figure.capacity.label}${view.near ? "" : `: ${readable(view.limit, figure.unit)}, beyond this axis`}`;
  const end = limit === null || limit + text.length * 7 > view.width;
  return `${out}<text class="halo strong" x="${end ? Math.min(limit ?? view.width, view.width - 4) : limit - 4}" y="${d.top + 11}" text-anchor="${end ? "end" : "start"}">${escaped(text)}</text>`;
}

/** Title and rows of a segment's card. */
export function told(figure, row, s) {
  const share = `${Number((100 * s.value / row.sum).toPrecision(2))} %`;
  const rows = [[row.name, exactly(s.value, figure.unit)], ["share", share]];
  if (row.over) rows.push(["over", `${readable(row.over.value, figure.unit)} more than ${figure.capacity.label}`]);
  return { title: s.name, rows };
}

/** Where a key leads from a segment: along its row, or to the segment above or below it. */
export function moved(view, focus, key) {
  const rows = view.rows.map((r, k) => [r, k]).filter(([r]) => r.segments.length);
  if (!rows.length) return null;
  const here = rows.findIndex(([, k]) => k === focus?.row);
  if (here < 0) return { row: rows[0][1], i: rows[0][0].segments[0].i };
  const [row, k] = rows[here];
  const n = row.segments.findIndex((s) => s.i === focus.i);
  if (key === "ArrowRight" || key === "ArrowLeft") return { row: k, i: row.segments[Math.min(Math.max(n + (key === "ArrowRight" ? 1 : -1), 0), row.segments.length - 1)].i };
  const [next, to] = rows[Math.min(Math.max(here + (key === "ArrowDown" ? 1 : -1), 0), rows.length - 1)];
  return { row: to, i: next.segments[Math.min(Math.max(n, 0), next.segments.length - 1)].i };
}

export function tableMarkup(figure) {
  const rows = figure.rows.flatMap((r) => [...r.segments.map((s) => [r.name, s.name, exactly(s.value, figure.unit), s.why ?? ""]), [r.name, "together", exactly(sum(r), figure.unit), r.note ?? ""]]);
  if (figure.capacity) rows.push([figure.capacity.label, "room", exactly(figure.capacity.at, figure.unit), ""]);
  const head = ["bar", "part", figure.unit === "s" ? "time" : "value", "more"].map((h) => `<th scope="col">${h}</th>`).join("");
  return `<table><thead><tr>${head}</tr></thead><tbody>${rows.map((r) => `<tr>${r.map((v) => `<td>${escaped(v)}</td>`).join("")}</tr>`).join("")}</tbody></table>`;
}

const MARKUP = `<div class="logchart stacks">
  <svg data-el="svg" role="application" tabindex="0"></svg>
  <div class="none" data-el="none" hidden>Nothing to show yet.</div>
  <div class="card" data-el="card" hidden></div>
  <div class="sr" aria-live="polite" data-el="said"></div>
  <details data-el="details"><summary>Show the numbers</summary><div class="table" data-el="table" tabindex="0" role="region" aria-label="Every number of the bars"></div></details>
</div>`;

let nth = 0;

class Stacks {
  constructor(parent) {
    ({ root: this.root, host: this.host, el: this.el } = planted(parent, MARKUP));
    this.id = `st${nth += 1}`;
    this.sizes = new ResizeObserver(() => this.#draw());
    this.sizes.observe(this.root);
    const { svg, details } = this.el;
    for (const event of ["pointermove", "pointerdown"]) svg.addEventListener(event, (e) => this.#point(e));
    svg.addEventListener("pointerleave", (e) => { if (e.pointerType !== "touch") this.#look(null); });
    svg.addEventListener("blur", () => this.#look(null));
    svg.addEventListener("keydown", (e) => this.#key(e));
    details.addEventListener("toggle", () => this.#table());
  }

  receive(figure) {
    const before = this.drawn;
    this.figure = figure;
    this.c = palette(this.host, figure.colours);
    for (const [name, colour] of [["ink", "ink"], ["muted", "muted"], ["line", "line"], ["paper", "background"]]) this.root.style.setProperty(`--${name}`, this.c[colour]);
    this.el.svg.setAttribute("aria-label", `${figure.summary} Arrow keys move between parts.`);
    const empty = !figure.rows.some((r) => sum(r) > 0);
    this.el.none.hidden = !empty;
    this.el.svg.toggleAttribute("hidden", empty);
    this.#look(null);
    if (before && !reducedMotion()) this.#tween(before);
    else this.#draw();
    this.#table();
  }

  #draw(figure = this.figure) {
    const width = Math.floor(this.root.clientWidth);
    if (!figure || width < 40) return;
    this.drawn = figure;
    this.view = layout(figure, width);
    this.el.svg.setAttribute("viewBox", `0 0 ${width} ${this.view.height}`);
    this.el.svg.setAttribute("height", this.view.height);
    this.el.svg.innerHTML = markup(this.view, figure, this.c, this.id, this.focus);
  }

  #tween(before) {
    cancelAnimationFrame(this.frame);
    const began = performance.now();
    const step = (now) => {
      const share = Math.min(1, Math.max(0, (now - began) / defaults.tween));
      this.#draw(share < 1 ? between(before, this.figure, 1 - (1 - share) ** 3) : this.figure);
      if (share < 1) this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  #point(e) {
    const box = this.el.svg.getBoundingClientRect();
    const [px, py] = [e.clientX - box.left, e.clientY - box.top];
    const rows = this.view?.rows ?? [];
    const row = rows.findIndex((r) => py >= r.y - 4 && py <= r.y + defaults.row + 4);
    const hit = rows[row]?.segments.reduce((best, s) => {
      const away = Math.max(s.x - px, px - s.x - s.w, 0);
      return away < (best?.away ?? 5) ? { away, i: s.i } : best;
    }, null);
    this.#look(hit ? { row, i: hit.i } : null, px);
  }

  /** Show a segment's card, or none. */
  #look(focus, px = null) {
    const changed = focus?.row !== this.focus?.row || focus?.i !== this.focus?.i;
    this.focus = focus;
    if (changed && this.view) this.el.svg.innerHTML = markup(this.view, this.drawn, this.c, this.id, focus);
    const { card } = this.el;
    card.hidden = !focus;
    if (!focus) return null;
    const row = this.view.rows[focus.row];
    const s = row.segments.find((part) => part.i === focus.i);
    const said = told(this.figure, row, s);
    card.innerHTML = cardMarkup(said, s.why);
    card.style.left = `${Math.max(0, Math.min((px ?? s.x) + 14, this.view.width - card.offsetWidth - 4))}px`;
    card.style.top = `${row.y + defaults.row + 8}px`;
    return said;
  }

  #key(e) {
    if (!this.view || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") { this.#look(null); return; }
    if (!e.key.startsWith("Arrow")) return;
    e.preventDefault();
    const focus = moved(this.view, this.focus, e.key);
    if (focus) this.el.said.textContent = spoken(this.#look(focus));
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

export default mounted((parent) => new Stacks(parent));
