// The network as neurons and links, with the plane it has learned beside it.
// layout(...) says where things stand, cells(...) what each strip holds; draw(...) only paints them.

import { largest, picture } from "./heat.js";
import { diverging, mix } from "./player.js";

export const defaults = {
  tile: 46, strip: 8, gap: 2, between: 14, pad: 14, labels: 40, plot: 300, narrow: 640,
  linkBase: 0.6, linkPerWeight: 1.7, linkMost: 7, extent: 6,
};

const FEATURE_NAMES = { x: "x", y: "y", x2: "x²", y2: "y²", xy: "x·y", sinx: "sin x", siny: "sin y" };
export const featureName = (name) => FEATURE_NAMES[name] ?? name;
export const layerName = (layers, i) => (i === layers.length - 1 ? "output" : `hidden ${i + 1}`);

/** Where everything stands, in CSS pixels. `widths`: neurons of each layer, output last. */
export function layout(features, widths, width) {
  const d = defaults;
  const most = Math.max(features.length, ...widths);
  const narrow = width < d.narrow;
  const strips = 3 * (d.strip + d.gap);
  const plotSize = narrow ? Math.min(width - 2 * d.pad, 300) : Math.max(200, Math.min(d.plot, width * 0.28));
  const left = d.pad + (narrow ? 0 : 40);
  const netRight = narrow ? width - d.pad : width - d.pad - plotSize - 44;
  const n = widths.length + 1;
  const pitch = (netRight - left) / Math.max(n, 2);
  const tile = Math.max(16, Math.min(d.tile, most > 6 ? 34 : most > 4 ? 40 : d.tile, pitch - (narrow ? 9 : 26)));
  const row = tile + strips + d.between;
  const netHeight = Math.max(most * row, narrow ? 0 : plotSize + 16);
  const columns = [features.length, ...widths].map((rows, i) => {
    const x = left + (n === 1 ? 0 : (i * (netRight - left - tile)) / (n - 1));
    const y0 = d.labels + (netHeight - rows * row + d.between) / 2;
    return { x, units: Array.from({ length: rows }, (_, k) => ({ x, y: y0 + k * row, size: tile })) };
  });
  const netBottom = d.labels + netHeight;
  const plot = narrow
    ? { x: (width - plotSize) / 2, y: netBottom + 34, size: plotSize }
    : { x: width - d.pad - plotSize, y: d.labels + (netHeight - plotSize) / 2, size: plotSize };
  const height = narrow ? plot.y + plotSize + 12 : Math.max(netBottom, plot.y + plotSize) + 10;
  return { width, height, narrow, columns, plot, tile };
}

const stripRow = (unit, k) => unit.y + unit.size + defaults.gap + k * (defaults.strip + defaults.gap);

/**
 * Every strip cell of a recorded step at a moment: position, recorded value, and its share of the
 * colour scale. Cells whose value does not exist yet are `empty`; those let go are `released`.
 */
export function cells(place, recorded, state) {
  const list = [];
  const strip = (array, units, row, kind, flags) => {
    const [n, width] = array.shape;
    const scale = kind === "target" || kind === "bounded" ? 1 : largest(array);
    units.forEach((unit, u) => {
      const w = unit.size / n;
      for (let b = 0; b < n; b += 1) {
        const value = array.at(b * width + u);
        list.push({
          x: unit.x + b * w, y: stripRow(unit, row), w, h: defaults.strip, value,
          share: value / scale, kind: kind === "grad" ? "grad" : "value", op: array.op, unit: u, example: b, ...flags,
        });
      }
    });
  };
  const get = (key) => recorded.arrays.get(key);
  strip(get("input activation"), place.columns[0].units, 0, "input", { empty: false, released: false });
  state.columns.forEach((column, i) => {
    const units = place.columns[i + 1].units;
    const head = i === state.columns.length - 1;
    const bounded = head || column.activation === "tanh" || column.activation === "sigmoid";
    strip(get(`${column.output} activation`), units, 0, bounded ? "bounded" : "value",
      { empty: !column.filled, released: column.released });
    if (head) strip(get("target activation"), units, 1, "target", { empty: false, released: false });
    const grad = get(`${column.output} grad`);
    if (grad) strip(grad, units, head ? 2 : 1, "grad", { empty: !column.grad, released: false });
  });
  return list;
}

/** Colour of a cell that has a value. */
export const cellColour = (c, cell) => (cell.kind === "grad"
  ? mix(c.empty, c.backward, 0.12 + 0.88 * Math.min(1, Math.abs(cell.share)))
  : diverging(c, cell.share));

// -- links --------------------------------------------------------------------------------------

const N_POINTS = 24;

function curve(from, to) {
  const [x0, y0] = [from.x + from.size, from.y + from.size / 2];
  const [x1, y1] = [to.x, to.y + to.size / 2];
  const bend = (x1 - x0) / 2;
  return Array.from({ length: N_POINTS + 1 }, (_, i) => {
    const s = i / N_POINTS, r = 1 - s;
    return [
      r * r * r * x0 + 3 * r * r * s * (x0 + bend) + 3 * r * s * s * (x1 - bend) + s * s * s * x1,
      r * r * r * y0 + 3 * r * r * s * y0 + 3 * r * s * s * y1 + s * s * s * y1,
    ];
  });
}

/** Every weight and bias with its place: [{layer, out, in, bias, points | x y}]. */
export function links(place) {
  const list = [];
  for (let layer = 0; layer + 1 < place.columns.length; layer += 1) {
    const [from, to] = [place.columns[layer].units, place.columns[layer + 1].units];
    to.forEach((unit, out) => {
      from.forEach((source, i) => list.push({ layer, out, in: i, bias: false, points: curve(source, unit) }));
      list.push({ layer, out, in: from.length, bias: true, x: unit.x - 5, y: unit.y + unit.size - 4 });
    });
  }
  return list;
}

/** What the pointer is on: {unit: {column, index}} or {link} or null. */
export function hit(place, allLinks, x, y) {
  for (const link of allLinks) {
    if (link.bias && Math.hypot(link.x - x, link.y - y) < 8) return { link };
  }
  for (let column = 0; column < place.columns.length; column += 1) {
    const index = place.columns[column].units.findIndex(
      (u) => x >= u.x && x <= u.x + u.size && y >= u.y && y <= u.y + u.size);
    if (index >= 0) return { unit: { column, index } };
  }
  let best = null, nearest = 6;
  for (const link of allLinks) {
    if (link.bias) continue;
    for (const [px, py] of link.points) {
      const distance = Math.hypot(px - x, py - y);
      if (distance < nearest) [nearest, best] = [distance, { link }];
    }
  }
  return best;
}

// -- painting -----------------------------------------------------------------------------------

/** Centre of an example's dot in the plane's picture. */
export function dotPlace(plot, x, y) {
  const e = defaults.extent;
  return [plot.x + ((x + e) / (2 * e)) * plot.size, plot.y + ((e - y) / (2 * e)) * plot.size];
}

function trace(context, points, from = 0, to = 1) {
  const first = from * N_POINTS, last = to * N_POINTS;
  context.beginPath();
  points.forEach(([x, y], i) => {
    if (i < first || i > last) return;
    context.lineTo(x, y);
  });
  const whole = Math.floor(last);
  if (to < 1 && whole < N_POINTS) {
    const [a, b] = [points[whole], points[whole + 1]];
    const s = last - whole;
    context.lineTo(a[0] + (b[0] - a[0]) * s, a[1] + (b[1] - a[1]) * s);
  }
  context.stroke();
}

/**
 * Paint the scene. `view`: {trace, frame, recorded | null, state | null, selected, hovered}.
 * Without `state` the network is drawn as the frame holds it (a run at one of its epochs).
 */
export function draw(context, place, allLinks, view, c) {
  const { frame, recorded, state, hovered, selected } = view;
  const layerOps = view.layers;
  const weightOf = weights(view);
  const gradient = state ? shares(state, (op) => recorded.arrays.get(`${op} grad_weight`).at) : null;
  const changed = state ? shares(state, (op) => difference(recorded, op)) : null;
  context.lineCap = "round";
  context.textBaseline = "middle";

  const touches = (l) => !hovered || (hovered.unit
    ? (l.layer + 1 === hovered.unit.column && l.out === hovered.unit.index)
      || (l.layer === hovered.unit.column && l.in === hovered.unit.index)
    : hovered.link && l.layer === hovered.link.layer && l.out === hovered.link.out && l.in === hovered.link.in);

  if (selected) haloSelected(context, allLinks, selected, weightOf, c);
  for (const link of allLinks) {
    const w = weightOf(link);
    const column = state?.columns[link.layer];
    context.globalAlpha = touches(link) ? 1 : 0.14;
    if (link.bias) {
      context.fillStyle = diverging(c, w / 1.5);
      context.strokeStyle = column?.updating ? c.update : c.muted;
      context.lineWidth = column?.updating ? 2.5 : 1;
      context.beginPath();
      context.arc(link.x, link.y, 3.5, 0, 7);
      context.fill();
      context.stroke();
      continue;
    }
    const thickness = thicknessOf(w);
    context.lineWidth = thickness;
    context.strokeStyle = mix(c.background, w < 0 ? c.negative : c.positive, 0.22 + 0.5 * Math.min(1, Math.abs(w)));
    context.setLineDash(w < 0 ? [6, 5] : []);
    trace(context, link.points);
    context.setLineDash([]);
    if (column?.weightGrad || column?.linksBackward !== null && column) {
      const g = gradient(link);
      context.strokeStyle = c.backward;
      context.lineWidth = 0.6 + 5 * g;
      context.globalAlpha *= 0.25 + 0.75 * Math.sqrt(g);
      trace(context, link.points, column.weightGrad ? 0 : 1 - column.linksBackward, 1);
      context.globalAlpha = touches(link) ? 1 : 0.14;
    }
    if (column && column.linksForward !== null) {
      context.strokeStyle = c.forward;
      context.lineWidth = Math.max(1.4, thickness);
      trace(context, link.points, 0, column.linksForward);
    }
    if (column?.updating) {
      const change = changed(link);
      context.strokeStyle = c.update;
      context.lineWidth = 1 + 3.5 * change;
      context.globalAlpha *= 0.25 + 0.75 * Math.sqrt(change);
      trace(context, link.points);
    }
  }
  context.globalAlpha = 1;
  drawUnits(context, place, view, c);
  if (state) drawStrips(context, cells(place, recorded, state), c);
  drawLabels(context, place, view, layerOps, c);
  drawPlane(context, place.plot, view, c, frame);
}

const thicknessOf = (w) => Math.min(defaults.linkMost, defaults.linkBase + Math.abs(w) * defaults.linkPerWeight);

/** The followed weight stands out by a halo and a ring, and keeps its own colours. */
function haloSelected(context, allLinks, selected, weightOf, c) {
  const link = allLinks.find((l) => l.layer === selected.layer && l.out === selected.out && l.in === selected.in);
  if (!link) return;
  context.strokeStyle = mix(c.background, c.ink, 0.3);
  context.lineWidth = link.bias ? 2.5 : thicknessOf(weightOf(link)) + 5;
  if (link.bias) {
    context.beginPath();
    context.arc(link.x, link.y, 7.5, 0, 7);
    context.stroke();
  } else trace(context, link.points);
}

function weights({ frame, recorded, state, layers }) {
  return (link) => {
    const op = layers[link.layer].linear;
    const column = state?.columns[link.layer];
    const array = state
      ? recorded.arrays.get(`${op} ${column.updated ? "weight_after" : "weight"}`)
      : frame.arrays.get(`${op} frame_weight`);
    return array.at(link.out * array.shape[1] + link.in);
  };
}

/** Magnitude of a number of each weight as a share of the network's largest. */
function shares(state, read) {
  const layers = state.columns.map((column, i) => {
    const values = read(column.linear);
    const n = state.widths[i + 1] * (state.widths[i] + 1);
    return Array.from({ length: n }, (_, k) => Math.abs(values(k)));
  });
  const top = Math.max(...layers.flat()) || 1;
  return (link) => layers[link.layer][link.out * (state.widths[link.layer] + 1) + link.in] / top;
}

function difference(recorded, op) {
  const [before, after] = ["weight", "weight_after"].map((role) => recorded.arrays.get(`${op} ${role}`));
  return (k) => after.at(k) - before.at(k);
}

function drawUnits(context, place, { trace: run, frame, state, layers, features, hovered }, c) {
  context.imageSmoothingEnabled = false;
  place.columns.forEach((column, i) => column.units.forEach((unit, k) => {
    const array = i === 0
      ? run.constants.get(`input.${features[k]} boundary`)
      : frame.arrays.get(`${layers[i - 1].name} boundary`);
    if (array) context.drawImage(picture(array, i === 0 ? 0 : k, "signed", c), unit.x, unit.y, unit.size, unit.size);
    const active = state?.columns[i - 1];
    const receiving = state?.columns[i - 1]?.receiving || (active && active.linksBackward !== null);
    const isHovered = hovered?.unit?.column === i && hovered.unit.index === k;
    context.strokeStyle = isHovered ? c.ink : active?.computing ? c.forward : receiving ? c.backward
      : i === place.columns.length - 1 && state?.losing ? c.loss : c.line;
    context.lineWidth = isHovered || active?.computing || receiving || (i === place.columns.length - 1 && state?.losing) ? 3 : 1;
    context.strokeRect(unit.x - 0.5, unit.y - 0.5, unit.size + 1, unit.size + 1);
  }));
}

function drawStrips(context, list, c) {
  for (const cell of list) {
    if (cell.empty || cell.released) continue;
    context.fillStyle = cellColour(c, cell);
    context.fillRect(cell.x, cell.y, cell.w, cell.h);
  }
  // An outline says that a strip exists even while it holds nothing.
  context.strokeStyle = c.line;
  context.lineWidth = 1;
  const outlined = new Set();
  for (const cell of list) {
    const key = `${cell.op} ${cell.unit} ${cell.y}`;
    if (cell.example !== 0 || outlined.has(key)) continue;
    outlined.add(key);
    const n = list.filter((o) => o.op === cell.op && o.unit === cell.unit && o.y === cell.y).length;
    context.setLineDash(cell.released ? [2, 2] : []);
    context.strokeRect(cell.x - 0.5, cell.y - 0.5, cell.w * n + 1, cell.h + 1);
  }
  context.setLineDash([]);
}

function drawLabels(context, place, { state, features }, layers, c) {
  context.fillStyle = c.muted;
  context.font = `${place.narrow ? 10 : 12}px ${c.font}`;
  context.textAlign = "center";
  place.columns.forEach((column, i) => {
    const text = i === 0 ? "inputs" : place.narrow && i < place.columns.length - 1 ? String(i) : layerName(layers, i - 1);
    context.fillText(text, column.x + place.tile / 2, 12);
  });
  context.textAlign = "right";
  if (!place.narrow) {
    place.columns[0].units.forEach((unit, k) => context.fillText(featureName(features[k]), unit.x - 8, unit.y + unit.size / 2));
  } else {
    context.textAlign = "left";
    context.font = `9px ${c.font}`;
    place.columns[0].units.forEach((unit, k) => {
      context.fillText(featureName(features[k]), unit.x, stripRow(unit, 1) + 5);
    });
  }
  if (!state) return;
  const lines = { forward: [c.forward, "forward →"], loss: [c.loss, "loss"], backward: [c.backward, "← gradient"], update: [c.update, "update"] };
  const [colour, text] = lines[state.phase];
  const active = state.columns.findIndex((x) => x.computing || x.linksBackward !== null || (state.phase === "backward" && x.receiving));
  context.textAlign = "center";
  context.font = `600 ${place.narrow ? 10 : 12}px ${c.font}`;
  const out = place.columns.at(-1);
  if (state.loss !== null) {
    context.fillStyle = c.ink;
    const y = stripRow(out.units[0], 3) + 8;
    context.fillText(`loss ${state.loss.toFixed(4)}`, Math.min(out.x + place.tile / 2, place.width - 34), y);
  }
  const x = active >= 0 ? place.columns[active + 1].x + place.tile / 2 : state.phase === "update"
    ? (place.columns[0].x + out.x + place.tile) / 2 : out.x + place.tile / 2;
  if (state.finished || state.t === 0) return;
  const middle = Math.max(34, Math.min(x, place.width - 34));
  const half = context.measureText(text).width / 2;
  context.fillStyle = c.ink;
  context.fillText(text, middle, 26);
  context.fillStyle = colour;
  context.fillRect(middle - half, 33, 2 * half, 3);
}

function drawPlaneTitle(context, plot, hovered, c) {
  context.fillStyle = c.muted;
  context.font = `12px ${c.font}`;
  context.textAlign = "center";
  const text = hovered?.unit && hovered.unit.column > 0 ? "what this neuron has learned" : "what it has learned so far";
  context.fillText(text, plot.x + plot.size / 2, plot.y - 12);
}

function drawPlane(context, plot, { trace: run, recorded, state, layers, hovered }, c, frame) {
  const showing = hovered?.unit && hovered.unit.column > 0
    ? { array: frame.arrays.get(`${layers[hovered.unit.column - 1].name} boundary`), unit: hovered.unit.index }
    : { array: frame.arrays.get("head boundary"), unit: 0 };
  context.imageSmoothingEnabled = false;
  context.drawImage(picture(showing.array, showing.unit, "signed", c), plot.x, plot.y, plot.size, plot.size);
  drawPlaneTitle(context, plot, hovered, c);
  context.strokeStyle = c.line;
  context.lineWidth = 1;
  context.strokeRect(plot.x - 0.5, plot.y - 0.5, plot.size + 1, plot.size + 1);
  const points = run.constants.get("data points"), labels = run.constants.get("data labels");
  if (!points || !labels) return;
  context.save();
  context.beginPath();
  context.rect(plot.x, plot.y, plot.size, plot.size);
  context.clip();
  const inStep = new Set(state ? recorded.arrays.get("data batch").values : []);
  for (let i = 0; i < run.nTrain; i += 1) dot(context, plot, points, labels, i, inStep.has(i), c);
  for (const i of inStep) dot(context, plot, points, labels, i, true, c);
  context.restore();
}

function dot(context, plot, points, labels, i, large, c) {
  const [x, y] = dotPlace(plot, points.at(2 * i), points.at(2 * i + 1));
  const positive = labels.at(i) > 0;
  const r = large ? 5 : 2.9;
  context.fillStyle = positive ? c.positive : c.negative;
  context.strokeStyle = large ? c.ink : c.dotEdge;
  context.lineWidth = large ? 2 : 1;
  context.beginPath();
  if (positive) context.arc(x, y, r, 0, 7);
  else context.rect(x - r * 0.88, y - r * 0.88, r * 1.76, r * 1.76);
  context.fill();
  context.stroke();
}
