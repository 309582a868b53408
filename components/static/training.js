// The training widget: a run as it goes, and one of its steps played back.
// Everything drawn is a function of (trace, view); the server is not asked while scrubbing.

import {
  Clock, bytes, count, defaults as kit, diverging, exact, keyAction, palette, reducedMotion, seconds, sharpen,
} from "./player.js";
import * as inspector from "./inspector.js";
import * as lossChart from "./loss.js";
import * as ribbon from "./ribbon.js";
import * as scene from "./scene.js";
import { CATEGORIES, duration, frame as frameOf, layersOf, peak, phaseStops, slowDown, stops, timeline } from "./step.js";
import { Trace, unpack } from "./trace.js";

export const defaults = { holdMs: 2600, arriveMs: 350 };

const ICONS = {
  start: "M5 4v12M16 4 8 10l8 6z", back: "M14 4 6 10l8 6z", play: "M6 3.5v13L16.5 10z", pause: "M6 4v12M14 4v12",
  next: "M6 4l8 6-8 6z", end: "M15 4v12M4 4l8 6-8 6z",
};
const icon = (name) => `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;

// Static markup of our own: no recorded or typed text passes through it.
const MARKUP = `
<div class="bw">
  <div class="status"><span data-el="counts" role="status"></span><span data-el="origin" class="quiet"></span></div>
  <div class="player" tabindex="0" role="group" aria-label="Step player: space plays, arrows step" data-el="player">
    <div class="stage"><canvas data-el="scene" role="img"></canvas><div class="tip" data-el="tip" hidden></div></div>
    <div class="legend" data-el="signs">
      <span><i class="ramp" data-el="ramp"></i>negative … 0 … positive: weights (dashed when negative), outputs, classes</span>
      <span class="stepOnly"><i data-el="gradKey"></i>size of a gradient</span>
      <span class="stepOnly"><b class="strips"></b>one cell for each example of the step</span>
    </div>
    <div class="transport">
      <button data-act="start" title="To the beginning (Home)" aria-label="To the beginning">${icon("start")}</button>
      <button data-act="previous op" title="Back one op (←), one phase (Shift ←)" aria-label="Back one op">${icon("back")}</button>
      <button data-act="toggle" class="main" data-el="play" title="Play or pause (Space)"></button>
      <button data-act="next op" title="On one op (→), one phase (Shift →)" aria-label="On one op">${icon("next")}</button>
      <button data-act="end" title="To the end (End)" aria-label="To the end">${icon("end")}</button>
      <label>step <select data-el="steps" aria-label="Recorded step"></select></label>
      <label>speed <select data-el="speed" aria-label="Speed"></select></label>
      <label class="check"><input type="checkbox" data-el="loop">loop</label>
      <button data-act="help" class="small" aria-label="Keys" title="Keys (?)">?</button>
      <output data-el="where"></output>
    </div>
    <p class="help" data-el="help" hidden>Space plays and pauses. ← → one op, Shift ← → one phase, Home and End the ends. Click a line or a bias dot to follow one weight; point at a neuron to see what it has learned on the large plane.</p>
    <input class="scrub" type="range" min="0" max="2000" value="0" data-el="scrub" aria-label="Moment of the step">
    <canvas data-el="ribbon" role="img"></canvas>
    <div class="legend" data-el="categories"></div>
    <p class="takeaway" data-el="takeaway"></p>
  </div>
  <div class="two">
    <section class="card">
      <div class="head"><h3>Loss</h3><span class="quiet" data-el="lossRead"></span></div>
      <canvas data-el="loss" role="img" tabindex="0"></canvas>
      <div class="legend"><span><i data-el="trainKey"></i>training examples</span><span><i data-el="heldKey" class="dashed"></i>held out</span><span><i data-el="stepKey"></i>recorded step (click to open)</span></div>
    </section>
    <section class="card" data-el="weightCard">
      <div class="head"><h3>One weight, this step</h3><span class="quiet" data-el="w-step"></span></div>
      <label class="pick">weight <select data-el="weights" aria-label="Weight"></select></label>
      <div class="numbers">
        <div><b data-el="w-before"></b><span>before, w</span></div>
        <div><b data-el="w-grad" class="backward"></b><span>gradient g, by autograd</span><span class="check">finite difference <em data-el="w-difference"></em>, <em data-el="w-gap"></em></span></div>
        <div><b data-el="w-after"></b><span>after, w′</span><span data-el="w-delta"></span></div>
      </div>
      <p class="working"><span data-el="w-formula"></span><span data-el="w-rate" class="quiet"></span><span data-el="w-substituted"></span><span data-el="w-extra" class="quiet"></span></p>
    </section>
  </div>
</div>`;

const mounts = new WeakMap();

export default function training({ data, parentElement, setStateValue, setTriggerValue }) {
  let mount = mounts.get(parentElement);
  if (!mount) {
    mount = new Mount(parentElement);
    mounts.set(parentElement, mount);
  }
  mount.tell = { state: setStateValue, trigger: setTriggerValue };
  mount.receive(data);
  return () => { mount.close(); mounts.delete(parentElement); };
}

class Mount {
  constructor(parent) {
    const box = document.createElement("div");
    box.innerHTML = MARKUP;
    this.root = box.firstElementChild;
    parent.appendChild(this.root);
    this.host = parent.host ?? parent;
    this.el = Object.fromEntries([...this.root.querySelectorAll("[data-el]")].map((e) => [e.dataset.el, e]));
    this.clock = new Clock((t) => this.#ticked(t));
    this.view = { mode: "run", step: null, epochStep: null }; // step: recorded step; epochStep: frame pinned
    this.selection = { layer: 0, out: 0, in: 0 };
    this.hovered = null;
    this.lossHover = null;
    this.root.bothways = this; // for tests and the console: the trace and the view behind the picture
    this.#listen();
  }

  // -- what comes in -----------------------------------------------------------------------------

  receive(message) {
    this.colours = null; // the theme may have changed
    const { header, events, arrays } = unpack(message);
    const same = this.header?.run === header.run;
    this.header = header;
    if (!same) {
      this.#disconnect();
      this.#forget();
    }
    if (header.stream) this.#connect(header.stream, !same);
    else if (!same || !this.trace.ended || !this.everStreamed) {
      this.#disconnect();
      const known = same ? this.trace.recorded.length : 0;
      this.trace = new Trace().append(events, arrays, 0);
      this.#arrived(known, !same);
    }
    this.#paint();
  }

  #forget() {
    this.trace = new Trace();
    this.everStreamed = false;
    this.told = null;
    clearTimeout(this.hold);
    this.view = { mode: "run", step: null, epochStep: null };
    this.place = null;
    this.selection = { layer: this.#layers().length - 1, out: 0, in: 0 };
    this.clock.pause();
  }

  #connect(url, fresh) {
    if (this.source && this.sourceUrl === url) return;
    this.#disconnect();
    if (!fresh && this.trace.ended) return;
    this.sourceUrl = url;
    this.everStreamed = true;
    this.trace = new Trace();
    const source = new EventSource(new URL(url, document.baseURI));
    this.source = source;
    source.onmessage = ({ data }) => {
      const part = JSON.parse(data);
      const known = this.trace.recorded.length;
      const raw = atob(part.arrays);
      this.trace.append(part.events, Uint8Array.from(raw, (ch) => ch.charCodeAt(0)), part.arrays_from);
      this.lost = false;
      this.#arrived(known, known === 0 && this.trace.frames.length < 3);
      this.#tellPage();
      this.#paint();
      if (this.trace.ended) this.#disconnect();
    };
    source.onerror = () => {
      if (source !== this.source) return;
      if (source.readyState === EventSource.CLOSED) {
        this.#disconnect();
        this.tell.state("transport", "poll");
      }
      this.lost = true;
      this.#paint();
    };
  }

  #disconnect() {
    this.source?.close();
    this.source = this.sourceUrl = null;
  }

  /** Decide what to look at when a recorded step came in or a run was opened. */
  #arrived(known, opened) {
    const { trace } = this;
    if (!trace.recorded.length) return;
    const grown = trace.recorded.length > known;
    const running = this.header.stream && !trace.paused && !trace.ended;
    if (running && !opened) {
      if (this.view.mode === "step" && !grown) this.#follow();
    } else if (grown || this.view.step === null) {
      const first = opened && this.header.show_step !== null ? this.header.show_step : trace.recorded.at(-1).step;
      this.#openStep(trace.recordedAt(first).step);
      this.#playSoon(this.header.stream ? defaults.arriveMs : defaults.holdMs);
    }
    if (running) this.#follow();
  }

  /** The page learns what changed: a state, a recorded step, an end. Once for each change. */
  #tellPage() {
    const { trace, header } = this;
    const known = header.known;
    const now = `${trace.nStates} ${trace.recorded.length} ${trace.ended?.status ?? ""}`;
    const news = trace.recorded.length > known.n_recorded || trace.nStates > known.n_states
      || (trace.ended && !known.ended);
    if (news && now !== this.told) {
      this.told = now;
      this.tell.trigger("changed", now);
    }
  }

  // -- where the view is -------------------------------------------------------------------------

  #follow() {
    clearTimeout(this.hold);
    this.clock.pause();
    this.view = { mode: "run", step: this.view.step, epochStep: null };
  }

  #openStep(step) {
    const recorded = this.trace.recordedAt(step);
    if (!recorded) return;
    this.view = { mode: "step", step: recorded.step, epochStep: null };
    this.clock.load(duration(recorded), 1 / slowDown(recorded));
  }

  #playSoon(wait) {
    clearTimeout(this.hold);
    if (reducedMotion() || this.header.still) return;
    this.hold = setTimeout(() => this.view.mode === "step" && this.clock.play(), wait);
  }

  get recorded() {
    return this.view.step === null ? null : this.trace.recordedAt(this.view.step);
  }

  #act(action) {
    clearTimeout(this.hold);
    if (action === "help") {
      this.el.help.hidden = !this.el.help.hidden;
      return;
    }
    if (!this.trace.recorded.length) return;
    if (this.view.mode !== "step") this.#openStep(this.view.step ?? this.trace.recorded.at(-1).step);
    const { clock, recorded } = this;
    if (action === "toggle") clock.toggle();
    else if (action === "start" || action === "end") { clock.pause(); clock.seek(action === "start" ? 0 : clock.end); }
    else clock.stepTo(action.endsWith("phase") ? phaseStops(recorded) : stops(recorded), action.startsWith("next") ? 1 : -1);
  }

  // -- listening ---------------------------------------------------------------------------------

  #listen() {
    const { el } = this;
    this.root.querySelectorAll("[data-act]").forEach((b) => b.addEventListener("click", () => this.#act(b.dataset.act)));
    el.player.addEventListener("keydown", (event) => {
      if (event.target.matches("select, input[type=checkbox]")) return;
      if (event.key === " " && event.target.matches("button")) return;
      const action = event.ctrlKey || event.metaKey || event.altKey ? null : keyAction(event.key, event.shiftKey);
      if (!action) return;
      event.preventDefault();
      event.stopPropagation();
      this.#act(action);
    });
    for (const speed of kit.speeds) el.speed.add(new Option(`${speed}×`, speed, speed === 1, speed === 1));
    el.speed.addEventListener("change", () => { this.clock.speed = Number(el.speed.value); });
    el.loop.addEventListener("change", () => { this.clock.loop = el.loop.checked; });
    el.steps.addEventListener("change", () => { clearTimeout(this.hold); this.#openStep(Number(el.steps.value)); this.#paint(); });
    el.scrub.addEventListener("input", () => this.#scrub(Number(el.scrub.value) / 2000));
    el.weights.addEventListener("change", () => { this.selection = inspector.parse(el.weights.value); this.#paint(); });
    this.#listenScene();
    this.#listenRibbon();
    this.#listenLoss();
    this.resized = new ResizeObserver(() => { this.place = null; this.#paint(); });
    this.resized.observe(this.root);
    this.seen = new IntersectionObserver((entries) => this.clock.show(entries[0].isIntersecting));
    this.seen.observe(el.player);
  }

  #scrub(share) {
    this.#act("start");
    this.clock.seek(share * this.clock.end);
  }

  #listenScene() {
    const { el } = this;
    el.scene.addEventListener("pointermove", (event) => {
      if (!this.place) return;
      this.hovered = scene.hit(this.place, this.links, event.offsetX, event.offsetY);
      this.#tip(event.offsetX, event.offsetY);
      this.#paint();
    });
    el.scene.addEventListener("pointerleave", () => { this.hovered = null; el.tip.hidden = true; this.#paint(); });
    el.scene.addEventListener("click", (event) => {
      if (!this.place) return;
      const found = scene.hit(this.place, this.links, event.offsetX, event.offsetY);
      if (found?.link) { this.selection = { layer: found.link.layer, out: found.link.out, in: found.link.in }; this.#paint(); }
    });
  }

  #listenRibbon() {
    const { el } = this;
    const go = (event) => {
      const { recorded } = this;
      if (!recorded) return;
      this.#scrub(ribbon.scales(recorded, el.ribbon.clientWidth).t(event.offsetX) / duration(recorded));
    };
    el.ribbon.addEventListener("pointerdown", (event) => { el.ribbon.setPointerCapture(event.pointerId); go(event); });
    el.ribbon.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  }

  #listenLoss() {
    const { el } = this;
    const at = (x) => {
      const list = lossChart.points(this.trace);
      return list.length ? lossChart.nearest(list, lossChart.scales(list, el.loss.clientWidth).epoch(x)) : null;
    };
    const open = (point) => {
      if (!point) return;
      clearTimeout(this.hold);
      this.clock.pause();
      this.view = { mode: "run", step: this.view.step, epochStep: point.step };
      const near = this.trace.recorded.find((r) => this.trace.frameAt(r.step)?.epoch === point.epoch);
      if (near) this.#openStep(near.step);
      this.#paint();
    };
    el.loss.addEventListener("pointermove", (event) => { this.lossHover = at(event.offsetX); if (event.buttons) open(this.lossHover); this.#paint(); });
    el.loss.addEventListener("pointerleave", () => { this.lossHover = null; this.#paint(); });
    el.loss.addEventListener("pointerdown", (event) => open(at(event.offsetX)));
    el.loss.addEventListener("keydown", (event) => {
      const list = lossChart.points(this.trace);
      const i = list.findIndex((p) => p.step === this.#frame()?.step);
      const next = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: list.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      open(list[Math.min(Math.max(next, 0), list.length - 1)]);
    });
  }

  // -- drawing -----------------------------------------------------------------------------------

  #ticked() {
    this.#paint();
  }

  #paint() {
    if (this.painting || this.closed) return;
    this.painting = requestAnimationFrame(() => { this.painting = null; this.paint(); });
  }

  #layers() { return layersOf(this.header.ops); }

  #frame() {
    const { view, trace } = this;
    if (view.mode === "step") return trace.frameAt(view.step);
    return view.epochStep === null ? trace.frameAt(Infinity) : trace.frameAt(view.epochStep);
  }

  /** What the picture shows now; a pure reading of the trace at the view's moment. */
  get state() {
    return this.view.mode === "step" && this.recorded ? frameOf(this.recorded, this.header.ops, this.clock.t) : null;
  }

  paint() {
    if (this.closed || !this.header || !this.root.isConnected) return;
    const width = this.root.clientWidth;
    if (!width) return;
    const frame = this.#frame();
    this.root.classList.toggle("empty", !frame);
    this.root.classList.toggle("stepping", this.view.mode === "step");
    this.colours ??= { ...palette(this.host, this.header.colours), font: getComputedStyle(this.root).fontFamily };
    this.#paintStatus(frame);
    if (!frame || !frame.arrays.has("head boundary")) return;
    this.#paintScene(frame);
    this.#paintStep();
    this.#paintLoss(frame);
    this.#paintKeys();
  }

  #paintScene(frame) {
    const { el, header, trace } = this;
    const layers = this.#layers();
    const widths = [...header.spec.hidden, 1];
    const width = el.player.clientWidth;
    if (!this.place || this.place.width !== width) {
      this.place = scene.layout(header.spec.features, widths, width);
      this.links = scene.links(this.place);
    }
    const { state, recorded } = this;
    const context = sharpen(el.scene, width, this.place.height);
    scene.draw(context, this.place, this.links, {
      trace, frame, recorded, state, layers, features: header.spec.features, hovered: this.hovered, selected: this.selection,
    }, this.colours);
    const doing = state ? `${state.phase}, ${state.op}, ${seconds(state.t)} of ${seconds(state.end)}` : "as trained so far";
    el.scene.setAttribute("aria-label", `Network of ${widths.length} layers on the ${header.spec.problem} problem: ${doing}. `
      + `Loss on training examples ${exact(frame.train_loss, 4)}, held out ${exact(frame.held_out_loss, 4)}.`);
  }

  #paintStep() {
    const { el, recorded, clock } = this;
    const present = Boolean(recorded);
    el.ribbon.hidden = el.scrub.hidden = el.takeaway.hidden = !present;
    for (const b of this.root.querySelectorAll(".transport button[data-act]:not([data-act=help])")) b.disabled = !present;
    el.play.innerHTML = `${icon(clock.playing ? "pause" : "play")}<span>${clock.playing ? "Pause" : "Play this step"}</span>`;
    this.#paintSteps();
    el.weightCard.hidden = !present;
    if (!present) { el.where.textContent = "no step recorded yet"; return; }
    const slow = slowDown(recorded);
    const state = frameOf(recorded, this.header.ops, clock.t);
    el.where.textContent = this.view.mode === "step"
      ? `${state.phase} · ${state.op} · ${seconds(state.t)} of ${seconds(state.end)} · slowed ${count(slow / clock.speed)}×`
      : `step ${count(recorded.step)} took ${seconds(state.end)} · play it slowed ${count(slow)}×`;
    el.where.setAttribute("aria-live", clock.playing ? "off" : "polite");
    if (el.scrub !== document.activeElement || clock.playing) el.scrub.value = Math.round((clock.t / clock.end) * 2000);
    el.scrub.setAttribute("aria-valuetext", el.where.textContent);
    const width = el.player.clientWidth;
    ribbon.draw(sharpen(el.ribbon, width, ribbon.defaults.height), recorded, clock.t, width, this.colours);
    const points = timeline(recorded), top = peak(points);
    el.ribbon.setAttribute("aria-label", `Bytes held during the step, by category. Now ${bytes(state.sample.total)}; peak ${bytes(top.total)} in ${top.phase}, ${top.op}.`);
    el.takeaway.textContent = this.#takeaway(points, top);
    this.#paintWeight(recorded);
  }

  #takeaway(points, top) {
    const kept = Math.max(...points.map((p) => p.held_bytes.activations));
    return `Forward fills up to ${bytes(kept)} of activations, and backward lets them go one by one: every one is needed to find its layer's share of the error. The most held at once is ${bytes(top.total)}, in ${top.phase}.`;
  }

  #paintSteps() {
    const { el, trace } = this;
    const key = trace.recorded.map((r) => r.step).join();
    if (el.steps.dataset.key !== key) {
      el.steps.dataset.key = key;
      el.steps.replaceChildren(...trace.recorded.map((r) => new Option(`${count(r.step)} (epoch ${trace.frameAt(r.step)?.epoch ?? 0})`, r.step)));
    }
    el.steps.value = String(this.view.step);
  }

  #paintWeight(recorded) {
    const { el, header } = this;
    const layers = this.#layers();
    const key = `${header.run} ${header.spec.features} ${header.spec.hidden}`;
    if (el.weights.dataset.key !== key) {
      el.weights.dataset.key = key;
      el.weights.replaceChildren(...inspector.choices(header.spec.features, layers, [...header.spec.hidden, 1]).map((group) => {
        const box = document.createElement("optgroup");
        box.label = group.label;
        box.append(...group.options.map((o) => new Option(o.label, o.value)));
        return box;
      }));
    }
    el.weights.value = inspector.spell(this.selection);
    const w = inspector.working(recorded, layers, this.selection, header.optimizer);
    inspector.render((name) => el[`w-${name}`], w, header.spec.precision, `step ${count(recorded.step)} · ${layers[this.selection.layer].linear}`);
  }

  #paintLoss(frame) {
    const { el, trace } = this;
    const width = el.loss.clientWidth;
    if (!width) return;
    const list = lossChart.points(trace);
    lossChart.draw(sharpen(el.loss, width, lossChart.defaults.height), trace, frame.epoch, this.lossHover, width, this.colours);
    const read = this.lossHover ?? list.findLast((p) => p.epoch <= frame.epoch);
    if (!read) return;
    el.lossRead.textContent = `epoch ${read.epoch} · train ${exact(read.train, 4)} · held out ${exact(read.held_out, 4)}`;
    el.loss.setAttribute("aria-label", `Loss against epochs, ${list.length} points, from ${exact(list[0].train, 3)} to ${exact(list.at(-1).train, 3)} on training examples. ${el.lossRead.textContent}. Arrow keys move.`);
  }

  #paintStatus(frame) {
    const { el, header, trace } = this;
    const recorded = this.view.mode === "step" ? this.recorded : null;
    const epoch = frame?.epoch ?? 0;
    const step = recorded ? recorded.step : frame?.step ?? 0;
    const right = frame?.held_out_accuracy;
    el.counts.textContent = frame
      ? `epoch ${count(epoch)} · step ${count(step)} · ${count(trace.nTrain)} examples, seen ${count(epoch)} times · ${(right * 100).toFixed(1)} % of held-out right`
      : header.waiting;
    el.origin.textContent = this.lost && this.source ? "connection lost, trying again" : header.origin;
  }

  #paintKeys() {
    const { el, colours: c } = this;
    if (el.ramp.dataset.theme === c.neutral) return;
    el.ramp.dataset.theme = c.neutral;
    el.ramp.style.background = `linear-gradient(90deg, ${[-1, -0.5, 0, 0.5, 1].map((v) => diverging(c, v)).join(", ")})`;
    el.gradKey.style.background = c.backward;
    el.trainKey.style.background = c.loss;
    el.heldKey.style.color = c.weights;
    el.stepKey.style.background = c.update;
    el.categories.replaceChildren(...CATEGORIES.map((category) => {
      const item = document.createElement("span");
      const box = Object.assign(document.createElement("canvas"), { className: "swatch" });
      const context = sharpen(box, 14, 14);
      context.fillStyle = ribbon.fill(context, category, c);
      context.fillRect(0, 0, 14, 14);
      item.append(box, ribbon.categoryName(category));
      return item;
    }));
  }

  #tip(x, y) {
    const { el, hovered } = this;
    const text = hovered ? this.#tipText(hovered) : null;
    el.tip.hidden = !text;
    if (!text) return;
    el.tip.textContent = text;
    el.tip.style.left = `${Math.min(x + 14, el.player.clientWidth - 230)}px`;
    el.tip.style.top = `${y + 14}px`;
  }

  #tipText({ unit, link }) {
    const layers = this.#layers();
    const { features } = this.header.spec;
    if (unit) {
      return unit.column === 0 ? `input ${scene.featureName(features[unit.index])}`
        : `${scene.layerName(layers, unit.column - 1)}, neuron ${unit.index + 1}: what it says across the plane, shown large at the side`;
    }
    const op = layers[link.layer].linear;
    const frame = this.#frame();
    const array = this.state ? this.recorded.arrays.get(`${op} weight`) : frame?.arrays.get(`${op} frame_weight`);
    if (!array) return null;
    const value = array.at(link.out * array.shape[1] + link.in);
    return `${link.bias ? "bias" : "weight"} ${exact(value, 9)}, click to follow it`;
  }

  close() {
    this.closed = true;
    clearTimeout(this.hold);
    this.clock.pause();
    this.#disconnect();
    this.resized.disconnect();
    this.seen.disconnect();
    this.root.remove();
  }
}
