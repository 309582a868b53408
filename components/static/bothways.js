// The widget of the home page: a training step and an answer of one model, under one clock.
// Everything drawn is a function of (two traces, t); the server is not asked while scrubbing.

import { cellsOfTrip } from "./answer_lane.js";
import { Feed } from "./feed.js";
import { cellsOf, columnOf, drawLane, evenly, hit, room, standIn } from "./lane.js";
import { mounted, planted } from "./mount.js";
import { answerAt, answerLane, answerPeak, endOf, phaseStopsOf, stepAt, stepLane, stepPeak, stopsOf } from "./pair.js";
import * as ribbon from "./pair_ribbon.js";
import { Clock, bytes, count, exact, palette, percent, reducedMotion, seconds, sharpen } from "./player.js";
import { fill } from "./ribbon.js";
import { slowed } from "./step.js";
import { unpack } from "./trace.js";
import { answerOps } from "./trips.js";
import { Transport, markup } from "./transport.js";

export const defaults = { holdMs: 2600, arriveMs: 350, lane: 178, playS: 12 };
const LANES = ["step", "answer"];
const PHASES = { step: ["forward", "loss", "backward", "update"], answer: ["prefill", "decode"] };

// Beside the weights' figures: an open and a closed lock.
const lock = (open) => `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="M4.5 9h11v8h-11z"/><path fill="none" d="M7 9V6a3 3 0 0 1 ${open ? "5.8-1.1" : "6 0v3"}"/></svg>`;
const SIGNS = { largest_change: lock(true), answer_change: lock(false) };

const lane = (name, title) => `
<section class="card lane" data-lane="${name}" aria-label="${title}">
  <div class="head"><h2 data-el="${name}Title">${title}</h2><span class="quiet phases" data-el="${name}Phases"></span></div>
  <div class="stage"><canvas data-el="${name}" role="img"></canvas><div class="tip" data-el="${name}Tip" hidden></div></div>
  <ul class="chips" data-el="${name}Chips"></ul>
  <p class="said" data-el="${name}Said"></p>
  <div class="numbers" data-el="${name}Figures"></div>
</section>`;

// Static markup of our own: no recorded or typed text passes through it.
const MARKUP = `
<div class="bw both">
  <div class="status"><span data-el="live" role="status"></span><span data-el="origin" class="quiet"></span></div>
  <div class="lanes">${lane("step", "Training step")}${lane("answer", "Answering")}</div>
  <div class="legend cells" data-el="cells"></div>
  <div class="player" tabindex="0" role="group" aria-label="Player of both lanes: space plays, arrows step" data-el="player">
    ${markup("op", "phase")}
    <canvas data-el="ribbon" role="img"></canvas>
    <div class="legend" data-el="categories"></div>
    <p class="takeaway" data-el="takeaway"></p>
  </div>
</div>`;

/** Message of the page -> {header, files: {step: [events, arrays], answer: [events, arrays]}}. */
export function unpackBoth(message) {
  const { header, arrays: rest } = unpack(message);
  const files = {};
  let at = 0;
  for (const name of LANES) {
    const { events_bytes, arrays_bytes } = header.lanes[name] ?? { events_bytes: 0, arrays_bytes: 0 };
    files[name] = [rest.subarray(at, at + events_bytes), rest.subarray(at + events_bytes, at + events_bytes + arrays_bytes)];
    at += events_bytes + arrays_bytes;
  }
  return { header, files };
}

export default mounted((parent) => new Mount(parent));

class Mount {
  constructor(parent) {
    Object.assign(this, planted(parent, MARKUP)); // root, host, el
    this.clock = new Clock(() => this.repaint());
    this.feeds = Object.fromEntries(LANES.map((name) => [name, new Feed({
      more: () => this.#arrived(),
      lost: () => this.repaint(),
      poll: () => this.tell.state("transport", "poll"),
      gone: (run) => this.tell.trigger("changed", `gone ${run}`),
    })]));
    this.lanes = { step: null, answer: null };
    this.places = { step: null, answer: null }; // where each lane's columns stand
    this.opened = null; // the runs that the clock was set to
    this.known = null; // the model's columns, from whichever lane had them last
    this.transport = new Transport(this.el.player, this.clock, {
      stops: () => stopsOf(this.lanes.step, this.lanes.answer),
      longStops: () => phaseStopsOf(this.lanes.step, this.lanes.answer),
      touched: () => clearTimeout(this.hold),
      words: "Play both",
    });
    this.root.bothways = this; // for tests and the console: the traces and the clock behind the picture
    this.#listen();
  }

  // -- what comes in -----------------------------------------------------------------------------

  receive(message) {
    this.colours = null; // the theme may have changed
    const { header, files } = unpackBoth(message);
    this.header = header;
    this.quiet = true; // until both are in
    for (const name of LANES) this.feeds[name].receive(header.lanes[name], ...files[name]);
    this.quiet = false;
    this.#arrived();
    this.repaint();
  }

  get traces() { return { step: this.feeds.step.trace, answer: this.feeds.answer.trace }; }

  #arrived() {
    if (this.quiet) return;
    const { step, answer } = this.traces;
    const opsOf = { step: stepOps(step), answer: answerOps(answer) };
    this.lanes = { step: stepLane(step, opsOf.step), answer: answerLane(answer, opsOf.answer) };
    for (const name of LANES) {
      const news = this.feeds[name].news(this.header.lanes[name].known);
      if (news) this.tell.trigger("changed", `${name} ${news}`);
    }
    if (this.following) { this.clock.pause(); clearTimeout(this.hold); }
    else this.#open();
    this.repaint();
  }

  /** Whether one of the runs is under way: both lanes show how far they are. */
  get following() {
    return LANES.some((name) => this.header.lanes[name].live && !this.#told(name));
  }

  /** Whether a lane has all that its picture needs. */
  #told(name) {
    const trace = this.traces[name];
    return Boolean(trace.ended || (name === "step" && trace.recorded.length));
  }

  /** Set the clock to two whole runs, once for each pair; it plays by itself, once. */
  #open() {
    const runs = LANES.map((name) => this.header.lanes[name].run).join(" ");
    const end = endOf([this.lanes.step, this.lanes.answer]);
    if (this.opened === runs || !end) return;
    const first = this.opened === null;
    this.opened = runs;
    this.slow = slowed(end, defaults.playS);
    this.clock.load(end, 1 / this.slow);
    clearTimeout(this.hold);
    const { moment, still } = this.header;
    if (first && moment !== null) this.clock.seek(moment);
    else if (reducedMotion() || still) this.clock.seek(this.#telling());
    else this.hold = setTimeout(() => this.clock.play(), first ? defaults.holdMs : defaults.arriveMs);
  }

  /** A moment that shows most in a still: half of backward. */
  #telling() {
    const back = this.lanes.step?.passes.filter((p) => p.phase === "backward") ?? [];
    return back.length ? (back[0].start + back.at(-1).end) / 2 : this.clock.end / 2;
  }

  // -- listening ---------------------------------------------------------------------------------

  #listen() {
    const { el } = this;
    const go = (event) => {
      if (!endOf(Object.values(this.lanes))) return;
      const s = ribbon.scales(this.lanes.step, this.lanes.answer, el.ribbon.clientWidth, this.header.expected);
      this.transport.scrub(s.t(event.offsetX) / s.end);
    };
    el.ribbon.addEventListener("pointerdown", (event) => { el.ribbon.setPointerCapture(event.pointerId); go(event); });
    el.ribbon.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
    for (const name of LANES) {
      el[name].addEventListener("pointermove", (event) => this.#point(name, event.offsetX, event.offsetY));
      el[name].addEventListener("pointerleave", () => { el[`${name}Tip`].hidden = true; });
    }
    this.root.addEventListener("click", (event) => {
      const asked = event.target.closest("button[data-figure]");
      if (asked) this.tell.trigger("asked", asked.dataset.figure);
    });
    this.resized = new ResizeObserver(() => this.repaint());
    this.resized.observe(this.root);
    this.seen = new IntersectionObserver((entries) => this.clock.show(entries.some((e) => e.isIntersecting)));
    this.seen.observe(this.root);
  }

  #point(name, x, y) {
    const tip = this.el[`${name}Tip`];
    const place = this.places[name];
    const i = place ? hit(place.boxes, x, y) : -1;
    const text = i < 0 ? null : place.tips[i];
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(0, Math.min(x + 14, this.el[name].clientWidth - 220))}px`;
    tip.style.top = `${y + 14}px`;
  }

  // -- drawing -----------------------------------------------------------------------------------

  repaint() {
    if (this.painting || this.closed) return;
    this.painting = requestAnimationFrame(() => { this.painting = null; this.paint(); });
  }

  /** The moment that is drawn: while a run is under way, as far as it has come. */
  get t() { return this.following ? Infinity : this.clock.t; }

  /** What is true of both lanes now: {step, answer}, null where nothing is recorded yet. */
  get state() {
    const { step, answer } = this.lanes;
    return { step: step && stepAt(step, this.t), answer: answer && answerAt(answer, this.t) };
  }

  paint() {
    if (this.closed || !this.header || !this.root.clientWidth) return;
    this.colours ??= { ...palette(this.host, this.header.colours), font: getComputedStyle(this.root).fontFamily };
    const state = this.state;
    if (state.step ?? state.answer) this.known = { pair: this.header.pair, columns: (state.step ?? state.answer).columns };
    for (const name of LANES) this.#paintLane(name, state[name]);
    this.#paintStep(state.step);
    this.#paintAnswer(state.answer);
    this.#paintStatus();
    this.#paintFigures();
    this.#paintPlayer(state);
  }

  #paintLane(name, state) {
    const { colours: c } = this;
    const canvas = this.el[name];
    const width = canvas.clientWidth;
    const context = sharpen(canvas, width, defaults.lane);
    const all = state?.columns ?? this.#untouched();
    const shown = evenly(all, room(width));
    const now = all.find((column) => column.state === "now");
    const frames = now && state.phase !== "update" ? standIn(shown, all, now.id) : -1;
    const columns = shown.map((column, i) => ({ ...column, cells: this.#cells(name, column, state), state: i === frames ? "now" : column.state }));
    const boxes = drawLane(context, width, defaults.lane, { columns, direction: state?.direction ?? 1, note: noteOf(name, state) }, c);
    const named = frames >= 0 ? `, at ${shown[frames].label}` : "";
    canvas.setAttribute("aria-label", `${name === "step" ? "The training step" : "The answer"}, ${count(all.length)} parts of the model: ${!state ? "nothing yet" : state.over ? "over" : state.phase}${named}.`);
    this.places[name] = { boxes, columns, tips: shown.map((column) => this.#tipOf(name, column, state)) };
  }

  /** The model before anything has come in: the same columns as in the other lane, or before. */
  #untouched() {
    const { pair } = this.header;
    const found = (this.lanes.step ?? this.lanes.answer)?.columns ?? (this.known?.pair === pair ? this.known.columns : []);
    this.known = { pair, columns: found };
    return found.map((column) => ({ ...column, role: "activation", state: "todo" }));
  }

  #cells(name, column, state) {
    if (!state || column.state === "todo") return null;
    if (column.role === "update") return this.#moved(column);
    const array = name === "step" ? this.#stepArray(column) : null;
    if (name === "step") return array && kept(array, () => cellsOf(array));
    return cellsOfTrip(this.traces.answer, this.lanes.answer.columns, column, state.trip);
  }

  /** What is drawn of a column of the step: what it gave, or the gradient of that. */
  #stepArray(column) {
    const { recorded } = this.lanes.step;
    const has = (id) => recorded.arrays.has(`${id} ${column.role}`);
    // Of thousands of logits nearly all have next to no gradient: the head's is what it hands on.
    const op = column.role === "grad" && has("norm") && column.id === "head" ? "norm" : column.ops.findLast(has);
    return op ? recorded.arrays.get(`${op} ${column.role}`) : null;
  }

  /** How far the update moved each weight of a part, as a share of it: a cell for each. */
  #moved(column) {
    const { recorded } = this.lanes.step;
    const all = kept(recorded.spans, () => movesOf(recorded.scalars));
    const own = all.filter((move) => move.column === column.id);
    if (!own.length) return null;
    const top = Math.max(...all.map((move) => move.share)) || 1;
    return { rows: own.length, cols: 1, wide: true, moves: own, value: (i) => own[i].share, at: (i) => Math.sqrt(own[i].share / top) };
  }

  #tipOf(name, column, state) {
    if (!state || column.state === "todo") return `${column.label}: not reached yet`;
    const cells = this.#cells(name, column, state);
    if (!cells) return `${column.label}: no values recorded here`;
    if (cells.moves) {
      const most = cells.moves.reduce((a, b) => (b.share > a.share ? b : a));
      return `${column.label}: the update moved its weights by up to ${exact(most.share * 100, 2)} % of their size (${most.name})`;
    }
    let top = 0;
    for (let i = 0; i < cells.rows; i += 1) for (let j = 0; j < cells.cols; j += 1) top = Math.max(top, Math.abs(cells.value(i, j)));
    return `${column.label}: ${column.role === "activation" ? "values" : "gradients"} up to ±${exact(top, 3)} shown, ${cells.cols === 1 ? "one token" : `${cells.cols} tokens`} × ${cells.rows} channels`;
  }

  #paintStep(state) {
    const { el } = this;
    const { step: trace } = this.traces;
    const { recorded } = this.lanes.step ?? {};
    el.stepTitle.textContent = recorded && this.header.vocabulary ? `Training step ${count(recorded.step)}` : "Training step";
    this.#paintPhases("step", state?.over ? null : state?.phase, PHASES.step.join(" → "));
    const loss = state?.loss;
    const { pieces, losses } = this.#read(trace);
    const known = loss !== null && loss !== undefined;
    this.#chips("step", pieces, (li, i) => {
      const judged = known && losses && i > 0 && losses.counts(i - 1);
      const share = judged ? Math.min(1, losses(i - 1) / (losses.top || 1)) : 0;
      li.style.setProperty("--tint", judged ? this.colours.loss : this.colours.forward);
      li.style.background = judged ? `color-mix(in srgb, ${this.colours.loss} ${Math.round(6 + 44 * share)}%, transparent)` : "";
      li.title = judged ? `loss here ${exact(losses(i - 1), 3)}` : "";
    });
    el.stepSaid.textContent = !state ? lookedAt(trace)
      : known ? `loss ${exact(loss, 4)}, the mean over what was to be predicted; a darker token was a worse guess`
        : "all of it is read at once; at each place the next token is to be predicted";
  }

  /** The text of a step, piece by piece, and the loss at each place that counts. */
  #read(trace) {
    const recorded = this.lanes.step?.recorded;
    const pieces = trace.texts.get("piece");
    const [inputs, targets, list] = ["input tokens", "target tokens", "loss losses"].map((key) => recorded?.arrays.get(key));
    const losses = list ? Object.assign((i) => list.at(i), {
      top: Math.max(...list.values), counts: (i) => !targets || targets.at(i) >= 0, // the others are not asked for
    }) : null;
    if (pieces) return { pieces, losses };
    const letters = this.header.vocabulary ? [...this.header.vocabulary] : null;
    if (!inputs || !letters) return { pieces: [], losses: null };
    const n = inputs.shape[0];
    return { pieces: [...Array.from({ length: n }, (_, i) => letters[inputs.at(i)]), letters[targets.at(n - 1)] ?? ""], losses };
  }

  #paintAnswer(state) {
    const { el } = this;
    const { answer: trace } = this.traces;
    const n = state?.n ?? 0;
    const tokens = this.lanes.answer?.trips.map((trip) => trip.token) ?? [];
    el.answerTitle.textContent = n ? `Answering, token ${count(n)}` : "Answering";
    this.#paintPhases("answer", state?.over && !this.following ? null : state?.phase, "prefill → decode → decode → …");
    this.#chips("answer", [...trace.prompt.map((p) => p.text), ...tokens.map((token) => token.text)], (li, i) => {
      const k = i - trace.prompt.length;
      li.style.setProperty("--tint", k < 0 ? this.colours.forward : this.colours.cache);
      li.classList.toggle("coming", k >= n);
      li.classList.toggle("newest", k === n - 1 && k >= 0);
    });
    const newest = tokens[n - 1];
    el.answerSaid.textContent = !state ? "waiting for its turn"
      : !newest ? `the prefill reads all ${count(trace.prompt.length)} tokens of the prompt in one trip`
        : `token ${count(n)} was chosen among ${newest.top.slice(0, 3).map(([, text, p]) => `“${text.trim() || "⏎"}” ${percent(p)}`).join(" · ")}`;
  }

  #paintPhases(name, now, rest) {
    const box = this.el[`${name}Phases`];
    const key = `${now} ${rest}`;
    if (box.dataset.key === key) return;
    box.dataset.key = key;
    let marked = false;
    box.replaceChildren(...rest.split(/( → )/).map((part) => {
      const bold = !marked && part === (now === "recompute" ? "backward" : now);
      marked ||= bold;
      return bold ? Object.assign(document.createElement("b"), { textContent: part }) : part;
    }));
  }

  #chips(name, texts, style) {
    const box = this.el[`${name}Chips`];
    const key = texts.join("\u0000");
    if (box.dataset.key !== key) {
      box.dataset.key = key;
      box.replaceChildren(...texts.map((text) => Object.assign(document.createElement("li"), { textContent: text.replace(/^\n+$/, "⏎").replace(/^ /, "") || "·" })));
    }
    [...box.children].forEach(style);
  }

  #paintStatus() {
    const { el, header, feeds } = this;
    const lost = LANES.some((name) => feeds[name].isLost && feeds[name].open);
    el.live.textContent = this.following ? this.#progress() : "";
    el.origin.textContent = lost ? "connection lost, trying again" : this.following ? "" : header.origin;
  }

  #progress() {
    const { step, answer } = this.traces;
    const { lanes } = this.header;
    if (lanes.answer.live && !answer.ended) {
      if (!answer.started) return "Running here: waiting for a free place …";
      const n = this.lanes.answer?.trips.length ?? 0;
      if (!n) return "Running here: the model is being loaded for the answer …";
      return n < lanes.answer.n_tokens ? `Running here: the answer, token ${count(n)} of ${count(lanes.answer.n_tokens)} …` : "Running here: the answer is complete; its memory is looked into …";
    }
    if (this.header.calibrating) return "Running here: what this machine does in a second …";
    return step.started ? `Running here: ${lookedAt(step)}` : "Running here: the model is being loaded for the step …";
  }

  /** Figures and the takeaway are the page's own words. */
  #paintFigures() {
    const { el, header } = this;
    const key = JSON.stringify([header.figures, header.takeaway]);
    if (el.takeaway.dataset.key === key) return;
    el.takeaway.dataset.key = key;
    el.takeaway.textContent = header.takeaway;
    for (const name of LANES) {
      el[`${name}Figures`].replaceChildren(...header.figures[name].map(({ id, value, label, note }) => {
        const button = Object.assign(document.createElement("button"), { type: "button", title: "How this number is made" });
        button.dataset.figure = `${name} ${id}`;
        button.classList.toggle("word", id in SIGNS);
        const part = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
        button.append(part("b", value), part("span", label), part("em", note));
        if (SIGNS[id]) button.firstChild.insertAdjacentHTML("afterbegin", SIGNS[id]);
        return button;
      }));
    }
  }

  #paintPlayer(state) {
    const { el, clock, lanes, colours: c } = this;
    const present = Boolean(endOf(Object.values(lanes))) && !this.following;
    this.transport.paint(this.#where(state, present), present);
    const width = el.ribbon.clientWidth;
    const context = sharpen(el.ribbon, width, ribbon.height());
    const [step, answer] = [lanes.step, lanes.answer];
    context.drawImage(this.#still(width), 0, 0, width, ribbon.height());
    if (present) ribbon.drawPlayhead(context, step, answer, clock.t, width, this.header.expected, c);
    this.#paintKeys();
    const said = [step && `the step at most ${bytes(stepPeak(step).total)}`, answer && answerPeak(answer) && `the answer ${bytes(answerPeak(answer).total)}`];
    el.ribbon.setAttribute("aria-label", `Bytes held on one scale: ${said.filter(Boolean).join(", ")}.`);
  }

  /** The ribbon without its playhead, drawn anew only when it changes. */
  #still(width) {
    const { lanes, colours: c } = this;
    const key = [width, c.neutral, globalThis.devicePixelRatio, ...LANES.map((name) => `${this.feeds[name].run} ${lanes[name]?.end} ${this.traces[name].scalars.size}`)].join();
    if (this.stillKey !== key) {
      this.stillKey = key;
      this.stillCanvas = document.createElement("canvas");
      ribbon.drawStill(sharpen(this.stillCanvas, width, ribbon.height()), lanes.step, lanes.answer, width, this.header.expected, c);
    }
    return this.stillCanvas;
  }

  #where({ step, answer }, present) {
    if (!present) return this.following ? "plays once both are recorded" : "nothing is recorded yet";
    const { clock } = this;
    const parts = [];
    if (step) parts.push(step.over ? "step over" : [step.phase, step.columns.find(({ id }) => id === step.pass?.column)?.label].filter(Boolean).join(" · "));
    if (answer) parts.push(answer.over ? `answer over, ${count(answer.n)} tokens` : `${answer.phase} · token ${count(answer.n + 1)}`);
    return `${parts.join(" | ")} | ${seconds(clock.t)} of ${seconds(clock.end)}, slowed ${count(this.slow / clock.speed)}×`;
  }

  #paintKeys() {
    const { el, colours: c, lanes } = this;
    const list = ribbon.categories(lanes.step, lanes.answer);
    const key = `${c.neutral} ${list.map(([name]) => name)}`;
    if (el.categories.dataset.key === key) return;
    el.categories.dataset.key = key;
    const items = list.map(([category, name]) => {
      const item = document.createElement("span");
      const box = Object.assign(document.createElement("canvas"), { className: "swatch" });
      const context = sharpen(box, 14, 14);
      context.fillStyle = fill(context, category, c);
      context.fillRect(0, 0, 14, 14);
      item.append(box, name);
      return item;
    });
    const dash = Object.assign(document.createElement("i"), { className: "dash" });
    dash.style.color = c.cache;
    const outline = document.createElement("span");
    outline.append(dash, "what the answer holds, in the step's stack");
    el.categories.replaceChildren(...items, outline);
    el.cells.replaceChildren(...[
      [c.forward, "what a part gives: a row of cells each channel, a column each token"], [c.backward, "its gradient"],
      [c.update, "how far the update moved its weights, a cell each"],
    ].map(([colour, text]) => {
      const item = document.createElement("span");
      const box = Object.assign(document.createElement("i"), { className: "ramp" });
      box.style.background = `linear-gradient(90deg, ${c.empty}, ${colour})`;
      item.append(box, text);
      return item;
    }));
  }

  close() {
    this.closed = true;
    clearTimeout(this.hold);
    this.clock.pause();
    for (const name of LANES) this.feeds[name].close();
    this.resized.disconnect();
    this.seen.disconnect();
    this.root.remove();
  }
}

// -- small readings ------------------------------------------------------------------------------

/** Of every weight its column and how far it moved: norm of the change over the norm before. */
export function movesOf(scalars) {
  const list = [];
  for (const [key, change] of Object.entries(scalars)) {
    const [, leaf, name] = key.match(/^norm\.update_(\w+):(.+)$/) ?? [];
    const before = scalars[`norm.${leaf}:${name}`];
    if (before > 0) list.push({ name, column: columnOf(name), share: change / before });
  }
  return list;
}

const made = new WeakMap();

/** Made once for each recorded array. */
function kept(array, make) {
  if (!made.has(array)) made.set(array, make());
  return made.get(array);
}

/** Ops of a step, in the order in which its forward ran them. */
function stepOps(trace) {
  const ids = new Set(trace.recorded.at(-1)?.spans.filter((s) => s.phase === "forward" || s.phase === "loss").map((s) => s.op));
  return [...ids].map((id) => ({ id }));
}

/** What has been looked into of a step so far. */
function lookedAt(trace) {
  const so = trace.at(0);
  if (!trace.started) return "waiting for its turn";
  const looks = [["values", so?.arrays.size], ["memory", so?.memory.length], ["work", so?.scalars.flops_executed], ["time", so?.scalars.recorded_step_s]];
  const done = looks.filter(([, found]) => found).map(([name]) => name);
  const next = looks.find(([, found]) => !found)?.[0];
  return `one step, once for each look: ${done.length ? `${done.join(", ")} done; ` : ""}now its ${next ?? "last look"} …`;
}

/** The word above the wave. */
function noteOf(name, state) {
  if (!state || state.over) return "";
  if (name === "answer") return state.phase === "prefill" ? "prompt here" : "token here";
  return { forward: "activations here", backward: "gradient here", recompute: "computed again", loss: "loss", update: "" }[state.phase];
}
