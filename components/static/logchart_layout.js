// Where everything of a chart stands: margins, series in pixels, and labels that do not touch.

import { errorText, exactly, readable, scale, spanned, spread, thinned, tickText } from "./logchart_scale.js";

export const defaults = { right: 18, top: 24, bottom: 46, narrow: 520, near: 22, letter: 6.1, row: 15, lean: 13, gutter: 172 };

const at = (v) => Math.round(v * 10) / 10;
const sizeOf = (text) => String(text).length * defaults.letter;

/** A figure at a width, without the series and layers that are hidden by name: scales, places, labels. */
export function layout(figure, width, hidden = new Set()) {
  const d = defaults;
  const narrow = width < d.narrow;
  const height = figure.height ?? 420;
  const shown = figure.series
    .filter((s) => !hidden.has(s.name))
    .map((s) => (s.kind === "stack" ? { ...s, layers: s.layers.filter((l) => !hidden.has(l.name)) } : s))
    .filter((s) => s.kind !== "stack" || s.layers.length);
  const y = scale(spanned(figure.y, shown.flatMap(valuesOf(1))), height - d.bottom, d.top, narrow ? 6 : 9);
  const left = Math.ceil(Math.max(22, ...y.ticks.map((v) => sizeOf(tickText(v, figure.y.unit)))) + 14);
  const across = (figure.lines ?? []).filter((l) => l.axis !== "x" && within(y, l.at));
  const gutter = !narrow && across.length > 0;
  const right = gutter ? Math.min(d.gutter, width * 0.2, Math.max(...across.map((l) => sizeOf(l.label))) + 24) : d.right;
  const x = scale(spanned(figure.x, shown.flatMap(valuesOf(0))), left, width - right, Math.max(3, Math.floor((width - left - right) / 74)));
  x.ticks = thinned(x.ticks, (v) => x.to(v), (v) => sizeOf(tickText(v, figure.x.unit)) + 14);
  const view = { figure, width, height, left, right, narrow, gutter, x, y, shown, hidden, across };
  view.drawn = shown.map((s) => drawn(s, x, y));
  return view;
}

const valuesOf = (i) => (s) => {
  if (s.kind === "points") return s.items.map((p) => p[i]);
  if (s.kind === "stack") return i ? totals(s).concat(s.layers[0].values) : s.xs;
  return s.points.map((p) => p[i]).concat((s.band ?? []).flatMap((b) => (i ? [b[1], b[2]] : [b[0]])));
};

/** Sums of a stack's layers at each x. */
export const totals = (stack) => stack.xs.map((_, i) => stack.layers.reduce((sum, l) => sum + l.values[i], 0));

/** Whether an axis has a place for a value: none for what is no number, nor for nothing on a logarithmic one. */
const placeable = (axis, v) => typeof v === "number" && Number.isFinite(v) && (!axis.log || v > 0);
const within = (axis, v) => placeable(axis, v) && v >= axis.low * (1 - 1e-9) && v <= axis.high * (1 + 1e-9);

function drawn(s, x, y) {
  const to = ([px, py]) => (placeable(x, px) && placeable(y, py) ? [at(x.to(px)), at(y.to(py))] : null);
  const own = { name: s.name, kind: s.kind };
  if (s.kind === "points") {
    return {
      ...own,
      keys: s.items.map((p) => p[3] || `${p[2]} ${p[0]}`),
      dots: s.items.map((p) => (within(x, p[0]) && within(y, p[1]) ? to(p) : null)),
    };
  }
  if (s.kind === "stack") {
    let below = s.xs.map(() => 0);
    return {
      ...own,
      areas: s.layers.map((layer) => {
        const above = below.map((v, i) => v + layer.values[i]);
        const edge = (values) => s.xs.map((v, i) => to([v, Math.max(values[i], y.low)]));
        const area = edge(above).concat(edge(below).reverse());
        below = above;
        return area;
      }),
    };
  }
  const band = (s.band ?? []).filter((b) => placeable(x, b[0]) && placeable(y, b[1]) && placeable(y, b[2]));
  return {
    ...own,
    path: s.points.map(to),
    band: band.length ? band.map((b) => to([b[0], b[2]])).concat(band.map((b) => to([b[0], b[1]])).reverse()) : null,
  };
}

/** Places on their way from one layout to another: series meet by name, points by what they stand for. */
export function between(before, now, share) {
  const mid = (p, q) => (p && q ? [at(p[0] + (q[0] - p[0]) * share), at(p[1] + (q[1] - p[1]) * share)] : q);
  const list = (p, q) => (p && q && p.length === q.length ? q.map((point, i) => mid(p[i], point)) : q);
  return now.map((to) => {
    const from = before.find((b) => b.name === to.name && b.kind === to.kind);
    if (!from) return to;
    if (to.kind === "points") {
      const old = new Map(from.keys.map((key, i) => [key, from.dots[i]]));
      return { ...to, dots: to.dots.map((dot, i) => mid(old.get(to.keys[i]), dot)) };
    }
    if (to.kind === "stack") return { ...to, areas: to.areas.map((area, i) => list(from.areas.length === to.areas.length && from.areas[i], area)) };
    return { ...to, path: list(from.path, to.path), band: list(from.band, to.band) };
  });
}

// -- what is pointed at ---------------------------------------------------------------------------

/** The point within reach of a place, or null. */
export function nearest(view, px, py, reach = defaults.near) {
  let best = null;
  view.shown.forEach((s, series) => {
    if (s.kind !== "points") return;
    view.drawn[series].dots.forEach((dot, item) => {
      if (!dot) return;
      const distance = Math.hypot(dot[0] - px, dot[1] - py);
      if (distance <= (best?.distance ?? reach)) best = { series, item, distance };
    });
  });
  return best;
}

/** Places that the arrow keys go to, series by series, from small to large. */
export function stops(view) {
  return view.shown.map((s, series) => {
    const d = view.drawn[series];
    const places = d.dots ?? d.path ?? d.areas.at(-1).slice(0, s.xs.length);
    const row = places.map((place, item) => ({ series, item, place }));
    return row.filter((stop) => stop.place && stop.place[0] >= view.left - 0.5 && stop.place[0] <= view.width - view.right + 0.5)
      .sort((a, b) => a.place[0] - b.place[0]);
  }).filter((row) => row.length);
}

/** Where a key leads from a stop (or from nowhere): along its series, or to the nearest stop of the next one. */
export function moved(view, from, key) {
  const rows = stops(view);
  if (!rows.length) return null;
  const here = rows.findIndex((row) => row[0].series === from?.series);
  if (here < 0) return rows.find((row) => view.shown[row[0].series].kind === "points")?.[0] ?? rows[0][0];
  const row = rows[here];
  const i = Math.max(0, row.findIndex((stop) => stop.item === from.item));
  if (key === "Home") return row[0];
  if (key === "End") return row.at(-1);
  if (key === "ArrowRight" || key === "ArrowLeft") return row[Math.min(Math.max(i + (key === "ArrowRight" ? 1 : -1), 0), row.length - 1)];
  const next = rows[(here + (key === "ArrowUp" ? 1 : -1) + rows.length) % rows.length];
  const away = (stop) => Math.abs(stop.place[0] - row[i].place[0]);
  return next.reduce((a, b) => (away(b) < away(a) ? b : a));
}

/** The line across the chart that a height is on, or null. */
export function referenceAt(view, py) {
  const gap = (l) => Math.abs(view.y.to(l.at) - py);
  const close = view.across.filter((l) => gap(l) < 6).sort((a, b) => gap(a) - gap(b));
  return close[0] ?? null;
}

/** Each line's and stack's value at an x, between its points on the axes' own scales. */
export function readings(view, xv) {
  const f = view.x.log ? Math.log : (v) => v;
  const valueOf = (points) => {
    const i = points.findIndex((p) => p[0] >= xv * (1 - 1e-12));
    if (i < 0) return null;
    if (Math.abs(points[i][0] - xv) <= Math.abs(xv) * 1e-12) return points[i][1];
    if (i === 0) return null;
    const [a, b] = [points[i - 1], points[i]];
    if (a[1] === null || b[1] === null) return null;
    const share = (f(xv) - f(a[0])) / (f(b[0]) - f(a[0]) || 1);
    if (!view.y.log || a[1] <= 0 || b[1] <= 0) return a[1] + share * (b[1] - a[1]);
    return Math.exp(Math.log(a[1]) + share * (Math.log(b[1]) - Math.log(a[1])));
  };
  const found = [];
  for (const s of view.shown) {
    if (s.kind === "line") found.push({ name: s.name, value: valueOf(s.points), colour: s.colour, low: s.band && valueOf(s.band.map((b) => [b[0], b[1]])), high: s.band && valueOf(s.band.map((b) => [b[0], b[2]])) });
    if (s.kind === "stack") {
      for (const l of [...s.layers].reverse()) found.push({ name: l.name, value: valueOf(s.xs.map((v, i) => [v, l.values[i]])), colour: l.colour });
      const sums = totals(s);
      found.push({ name: "together", value: valueOf(s.xs.map((v, i) => [v, sums[i]])) });
    }
  }
  return found.filter((r) => r.value !== null);
}

/** A reading as text, with what it may be where it was never measured. */
export function reading(r, unit) {
  const span = r.low != null && r.high != null ? ` (${readable(r.low, unit)} to ${readable(r.high, unit)})` : "";
  return readable(r.value, unit) + span;
}

/** Title and rows of a point's card: itself, what else bears its id, and the error between predicted and measured. */
export function told(view, { series, item }) {
  const { x, y } = view.figure;
  const s = view.shown[series];
  const [px, py, label, id, rows] = s.items[item];
  const lines = [[x.title, exactly(px, x.unit)], [s.name, exactly(py, y.unit)]];
  if (id) {
    for (const other of view.shown) {
      const twin = other !== s && other.kind === "points" ? other.items.find((p) => p[3] === id) : null;
      if (!twin) continue;
      lines.push([other.name, exactly(twin[1], y.unit)]);
      if (other.colour === s.colour && other.filled !== s.filled) {
        const [predicted, measured] = s.filled ? [twin[1], py] : [py, twin[1]];
        lines.push(["error", errorText(predicted / measured - 1)]);
      }
    }
  }
  return { title: label, rows: lines.concat(rows ?? []), id };
}

// -- labels ---------------------------------------------------------------------------------------

const touches = (a, b) => a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h;

/** A name stands clearly nearer to its own point than to what is drawn in another colour. */
const widened = (m) => ({ x: m.x - 8, y: m.y - 8, w: m.w + 16, h: m.h + 16 });

/** A text's box from where it is anchored; y is its baseline. */
function boxed(text, x, y, anchor = "start") {
  const w = sizeOf(text);
  return { x: x - (anchor === "end" ? w : anchor === "middle" ? w / 2 : 0), y: y - 11, w, h: 14 };
}

/** Boxes that a label must keep clear of: points, and lines every few pixels. */
function obstacles(view) {
  const found = [];
  view.drawn.forEach((d, series) => {
    for (const dot of d.dots ?? []) if (dot) found.push({ x: dot[0] - 5, y: dot[1] - 5, w: 10, h: 10, series, dot });
    const path = d.path ?? [];
    path.forEach((q, i) => {
      const p = path[i - 1];
      if (!p || !q) return;
      const n = Math.min(80, Math.max(1, Math.ceil(Math.hypot(q[0] - p[0], q[1] - p[1]) / 7)));
      for (let k = 0; k <= n; k += 1) found.push({ x: p[0] + (q[0] - p[0]) * k / n - 1.5, y: p[1] + (q[1] - p[1]) * k / n - 1.5, w: 3, h: 3, series });
    });
  });
  return found;
}

/** All labels: {measure, across, along, names}, none on another; lines without room for theirs have `label` null. */
export function labelled(view) {
  const marks = obstacles(view);
  const texts = [];
  const clear = (box, others = texts) => box.x >= view.left - 2 && box.x + box.w <= view.width - 2 && box.y >= 0
    && !others.some((o) => touches({ x: box.x - 3, y: box.y - 1, w: box.w + 6, h: box.h + 2 }, o));
  const measure = measured(view, marks);
  for (const t of measure?.texts ?? []) texts.push(boxed(t.text, t.x, t.y, t.anchor));
  if (measure) texts.push({ x: measure.x - 4, y: Math.min(measure.a, measure.b), w: 8, h: Math.abs(measure.a - measure.b) });
  const across = acrossLabels(view, texts, marks, clear);
  const along = alongLabels(view, texts, clear);
  const names = [];
  view.shown.forEach((s, series) => (s.items ?? []).forEach((item, k) => {
    const dot = item[5] ? view.drawn[series].dots[k] : null;
    if (!dot) return;
    const [px, py] = dot;
    const choices = [[px - 8, py - 8, "end"], [px, py - 11, "middle"], [px + 9, py + 16, "start"], [px + 9, py - 7, "start"], [px + 11, py + 4, "start"], [px - 11, py + 4, "end"], [px, py + 20, "middle"], [px - 9, py + 16, "end"], [px - 14, py - 17, "end"], [px + 14, py + 25, "start"]];
    const own = marks.filter((m) => m.dot !== dot);
    const beside = new Set(own.filter((m) => Math.abs(m.x + m.w / 2 - px) < 8 && Math.abs(m.y + m.h / 2 - py) < 8).map((m) => m.series)); // the point stands on these
    const others = marks.filter((m) => !beside.has(m.series) && view.shown[m.series].colour !== s.colour).map(widened);
    const free = choices.find((choice) => {
      const box = boxed(item[2], ...choice);
      return box.x + box.w <= view.width - view.right + 8 && clear(box) && clear(box, own) && clear(box, others);
    });
    if (!free) return;
    texts.push(boxed(item[2], ...free));
    names.push({ text: item[2], x: free[0], y: free[1], anchor: free[2] });
  }));
  return { measure, across, along, names };
}

function measured(view, marks) {
  const m = view.figure.measure;
  if (!m || !within(view.x, m.x) || !placeable(view.y, m.low) || !placeable(view.y, m.high)) return null;
  const [x, a, b] = [view.x.to(m.x), view.y.to(m.low), view.y.to(m.high)].map(at);
  const sides = [0.5, 0.4, 0.6, 0.3, 0.7].flatMap((share) => [{ x: x + 9, anchor: "start" }, { x: x - 9, anchor: "end" }].map((side) => ({ text: m.text, y: at(a + (b - a) * share + 4), ...side })));
  const inside = (t) => { const box = boxed(t.text, t.x, t.y, t.anchor); return box.x >= view.left && box.x + box.w * 1.1 <= view.width - view.right + 8; };
  const free = (t) => !marks.some((mark) => touches(boxed(t.text, t.x, t.y, t.anchor), mark));
  const texts = [sides.find((t) => inside(t) && free(t)) ?? sides.find(inside) ?? sides[0]];
  if (m.label) {
    const ends = x - sizeOf(m.label) - 9 > view.left;
    texts.push({ text: m.label, x: ends ? x - 9 : x + 9, y: Math.max(12, Math.min(a, b) - 8), anchor: ends ? "end" : "start" });
  }
  return { x, a, b, texts };
}

function acrossLabels(view, texts, marks, clear) {
  const d = defaults;
  const { across, gutter } = view;
  const wanted = across.map((l, i) => ({ i, at: view.y.to(l.at), size: d.row, weight: (l.strong ? 1e6 : 0) - i }));
  const kept = spread(wanted, { most: gutter ? d.lean : 4, low: d.top - 8, high: view.height - d.bottom + 4 });
  const found = across.map((l) => ({ ...l, name: l.label, y: at(view.y.to(l.at)), label: null }));
  const [left, right] = [view.left + 6, view.width - view.right];
  for (const k of [...kept].sort((a, b) => b.weight - a.weight)) {
    const line = found[k.i];
    const text = fitted(line.name, view);
    const choices = gutter ? [[right + 16, k.at + 4, "start"]] : [[left, k.at - 4, "start"], [right - 2, k.at - 4, "end"]];
    const boxes = choices.map((choice) => boxed(text, ...choice));
    const free = boxes.findIndex((box) => gutter || (clear(box) && (line.strong || clear(box, marks))));
    if (free < 0) continue;
    const [x, y, anchor] = choices[free];
    texts.push(boxes[free]);
    line.label = { text, x, y: at(y), anchor, at: at(k.at) };
  }
  return found;
}

/** A label cut to the room beside the chart; its whole text is in the card. */
function fitted(text, view) {
  const most = Math.floor((view.gutter ? view.right - 18 : view.width * 0.7) / defaults.letter);
  return text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text;
}

function alongLabels(view, texts, clear) {
  const lines = (view.figure.lines ?? []).filter((l) => l.axis === "x" && within(view.x, l.at));
  return [...lines].sort((a, b) => Number(b.strong) - Number(a.strong)).map((l) => {
    const x = at(view.x.to(l.at));
    const choices = [0, 1, 2, 3].flatMap((row) => [[x + 6, defaults.top + 10 + 16 * row, "start"], [x - 6, defaults.top + 10 + 16 * row, "end"]]);
    const free = choices.find(([lx, ly, anchor]) => {
      const box = boxed(l.label, lx, ly, anchor);
      return box.x + box.w <= view.width - view.right + 4 && clear(box);
    });
    if (free) texts.push(boxed(l.label, ...free));
    return { ...l, x, name: l.label, label: free ? { text: l.label, x: free[0], y: free[1], anchor: free[2] } : null };
  });
}
