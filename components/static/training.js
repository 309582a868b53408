// The training widget: a run as it goes, and one of its steps played back.
// Everything drawn is a function of (trace, view); the server is not asked while scrubbing.

import { Feed } from "./feed.js";
import * as lossChart from "./loss.js";
import { mounted, planted } from "./mount.js";
import { NetworkStage } from "./network_stage.js";
import { Clock, bytes, count, exact, palette, reducedMotion, seconds, sharpen } from "./player.js";
import * as ribbon from "./ribbon.js";
import { CATEGORIES, duration, moment, peak, phaseStops, slowDown, stops, timeline } from "./step.js";
import { TilesStage } from "./tiles_stage.js";
import { unpack } from "./trace.js";
import { Transport, markup } from "./transport.js";

export const defaults = { holdMs: 2600, arriveMs: 350 };

// Static markup of our own: no recorded or typed text passes through it.
const MARKUP = `
<div class="bw">
  <div class="status"><span data-el="counts" role="status"></span><span data-el="origin" class="quiet"></span></div>
  <div class="player" tabindex="0" role="group" aria-label="Step player: space plays, arrows step" data-el="player">
    <div class="stage"><canvas data-el="scene" role="img"></canvas><div class="tip" data-el="tip" hidden></div></div>
    <div class="legend" data-el="signs"></div>
    ${markup("op", "phase", {
    more: `<label>step <select data-el="steps" aria-label="Recorded step"></select></label>`,
    help: `<span data-el="stageHelp"></span>`, moment: "Moment of the step",
  })}
    <canvas data-el="ribbon" role="img"></canvas>
    <div class="legend" data-el="categories"></div>
    <p class="takeaway" data-el="takeaway"></p>
  </div>
  <div class="two">
    <section class="card">
      <div class="head"><h2>Loss</h2><span class="quiet" data-el="lossRead"></span></div>
      <canvas data-el="loss" role="img" tabindex="0"></canvas>
      <div class="legend"><span><i data-el="trainKey"></i>training examples</span><span><i data-el="heldKey" class="dashed"></i>held out</span><span><i data-el="stepKey"></i>recorded step (click to open)</span></div>
    </section>
    <section class="card" data-el="aside"></section>
    <section class="card" data-el="answersCard" hidden></section>
  </div>
</div>`;

/** Epochs: whole where they are, else with one digit. */
const passes = (epoch) => (Number.isInteger(epoch) ? count(epoch) : epoch.toFixed(epoch < 10 ? 2 : 1));

export default mounted((parent) => new Mount(parent));

class Mount {
  constructor(parent) {
    Object.assign(this, planted(parent, MARKUP)); // root, host, el
    this.clock = new Clock(() => this.repaint());
    this.feed = new Feed({
      more: (opened) => { this.#arrived(opened); this.#tellPage(); this.repaint(); },
      lost: () => this.repaint(),
      poll: () => this.tell.state("transport", "poll"),
      gone: (run) => this.tell.trigger("changed", `gone ${run}`),
    });
    this.view = { mode: "run", step: null, epochStep: null }; // step: recorded step; epochStep: frame pinned
    this.stage = null; // how the model is drawn: one for each kind of model
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
    if (!same) this.#forget();
    this.feed.receive(header, events, arrays);
    this.repaint();
  }

  get trace() { return this.feed.trace; }

  /** The open stream of a live run. */
  get source() { return this.feed.source; }

  #forget() {
    this.offered = null; // the recorded step that was opened by itself
    clearTimeout(this.hold);
    this.view = { mode: "run", step: null, epochStep: null };
    this.clock.pause();
    const Stage = this.header.spec.specimen === "playground" ? NetworkStage : TilesStage;
    if (!(this.stage instanceof Stage)) {
      this.stage?.close();
      this.stage = new Stage(this);
    }
    this.stage.forget();
  }

  /** Decide what to look at when more came in, or a run was opened. */
  #arrived(opened) {
    const { trace, header } = this;
    if (!trace.recorded.length) return;
    const latest = trace.recorded.at(-1).step;
    if (this.view.step === null) this.view.step = latest;
    if (header.stream && !trace.paused && !trace.ended) {
      this.#follow();
      return;
    }
    if (latest === this.offered) return; // it was opened once: where the visitor went since is theirs
    this.offered = latest;
    this.#openStep(opened && header.show_step !== null ? header.show_step : latest);
    this.#playSoon(header.stream ? defaults.arriveMs : defaults.holdMs);
  }

  /** The page learns what changed: a state, a recorded step, an end. Once for each change. */
  #tellPage() {
    if (!this.header.stream) return; // what comes in a message the page knows
    const news = this.feed.news(this.header.known);
    if (news) this.tell.trigger("changed", news);
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

  /** Whatever a visitor does to the player, it is to a step that is open. */
  #touched() {
    clearTimeout(this.hold);
    if (!this.trace.recorded.length) return false;
    if (this.view.mode !== "step") this.#openStep(this.view.step ?? this.trace.recorded.at(-1).step);
    return true;
  }

  // -- listening ---------------------------------------------------------------------------------

  #listen() {
    const { el } = this;
    this.transport = new Transport(el.player, this.clock, {
      stops: () => stops(this.recorded),
      longStops: () => phaseStops(this.recorded),
      touched: () => this.#touched(),
      words: "Play this step",
    });
    el.steps.addEventListener("change", () => { clearTimeout(this.hold); this.#openStep(Number(el.steps.value)); this.repaint(); });
    this.#listenScene();
    this.#listenRibbon();
    this.#listenLoss();
    this.resized = new ResizeObserver(() => this.repaint());
    this.resized.observe(this.root);
    this.seen = new IntersectionObserver((entries) => this.clock.show(entries[0].isIntersecting));
    this.seen.observe(el.player);
  }

  #listenScene() {
    const { el } = this;
    el.scene.addEventListener("pointermove", (event) => {
      const text = this.stage?.point(event.offsetX, event.offsetY);
      this.#tip(text, event.offsetX, event.offsetY);
      this.repaint();
    });
    el.scene.addEventListener("pointerleave", () => { this.stage?.point(null); el.tip.hidden = true; this.repaint(); });
    el.scene.addEventListener("click", (event) => { this.stage?.press(event.offsetX, event.offsetY); this.repaint(); });
  }

  #listenRibbon() {
    const { el } = this;
    const go = (event) => {
      const { recorded } = this;
      if (!recorded) return;
      this.transport.scrub(ribbon.scales(recorded, el.ribbon.clientWidth).t(event.offsetX) / duration(recorded));
    };
    el.ribbon.addEventListener("pointerdown", (event) => { el.ribbon.setPointerCapture(event.pointerId); go(event); });
    el.ribbon.addEventListener("pointermove", (event) => { if (event.buttons) go(event); });
  }

  #listenLoss() {
    const { el } = this;
    const at = (x) => {
      const list = lossChart.points(this.trace);
      return list.length ? lossChart.nearest(list, lossChart.scales(list, el.loss.clientWidth).at(x)) : null;
    };
    const open = (point) => {
      if (!point) return;
      clearTimeout(this.hold);
      this.clock.pause();
      this.view = { mode: "run", step: this.view.step, epochStep: point.step };
      const near = this.trace.recorded.find((r) => this.trace.frameAt(r.step)?.step === point.step);
      if (near) this.#openStep(near.step);
      this.repaint();
    };
    el.loss.addEventListener("pointermove", (event) => { this.lossHover = at(event.offsetX); if (event.buttons) open(this.lossHover); this.repaint(); });
    el.loss.addEventListener("pointerleave", () => { this.lossHover = null; this.repaint(); });
    el.loss.addEventListener("pointerdown", (event) => open(at(event.offsetX)));
    el.loss.addEventListener("keydown", (event) => {
      const list = lossChart.points(this.trace);
      const i = list.findIndex((p) => p.step === this.frame?.step);
      const next = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: list.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      open(list[Math.min(Math.max(next, 0), list.length - 1)]);
    });
  }

  // -- drawing -----------------------------------------------------------------------------------

  repaint() {
    if (this.painting || this.closed) return;
    this.painting = requestAnimationFrame(() => { this.painting = null; this.paint(); });
  }

  get frame() {
    const { view, trace } = this;
    if (view.mode === "step") return trace.frameAt(view.step);
    return view.epochStep === null ? trace.frameAt(Infinity) : trace.frameAt(view.epochStep);
  }

  /** What the picture shows now; a pure reading of the trace at the view's moment. */
  get state() {
    return this.view.mode === "step" && this.recorded ? this.stage.state(this.recorded, this.clock.t) : null;
  }

  /** Where the stage has laid things out, for whoever looks at the picture from outside. */
  get place() { return this.stage?.place ?? null; }

  get links() { return this.stage.links; }

  paint() {
    if (this.closed || !this.header || !this.root.isConnected) return;
    const width = this.root.clientWidth;
    if (!width) return;
    const frame = this.frame;
    this.root.classList.toggle("empty", !frame);
    this.root.classList.toggle("stepping", this.view.mode === "step");
    this.colours ??= { ...palette(this.host, this.header.colours), font: getComputedStyle(this.root).fontFamily };
    this.#paintStatus(frame);
    if (!frame) return;
    this.stage.paint(frame);
    this.#paintStep();
    this.#paintLoss(frame);
    this.#paintKeys();
  }

  #paintStep() {
    const { el, recorded, clock, trace } = this;
    const present = Boolean(recorded);
    el.ribbon.hidden = el.takeaway.hidden = !present;
    this.#paintSteps();
    this.transport.paint(present ? this.#where() : trace.ended ? "no step was recorded" : "looking into the first step, op by op …", present);
    if (!present) return;
    const state = moment(recorded, clock.t);
    const width = el.ribbon.clientWidth;
    ribbon.draw(sharpen(el.ribbon, width, ribbon.defaults.height), recorded, clock.t, width, this.colours);
    const points = timeline(recorded), top = peak(points);
    el.ribbon.setAttribute("aria-label", `Bytes held during the step, by category. Now ${bytes(state.sample.total)}; peak ${bytes(top.total)} in ${top.phase}, ${top.op}.`);
    el.takeaway.textContent = this.#takeaway(points, top);
  }

  #where() {
    const { clock, recorded } = this;
    const slow = slowDown(recorded);
    const now = moment(recorded, clock.t);
    if (this.view.mode !== "step") return `recorded step ${count(recorded.step)} took ${seconds(now.end)} · play it slowed ${count(slow)}×`;
    return `${now.phase} · ${now.op} · ${seconds(now.t)} of ${seconds(now.end)} · slowed ${count(slow / clock.speed)}×`
      + (recorded.scalars.contended ? " · measured on a busy machine" : "");
  }

  #takeaway(points, top) {
    const again = points.some((p) => p.phase === "recompute");
    const kept = Math.max(...points.filter((p) => p.phase !== "recompute" && (!again || p.phase === "forward")).map((p) => p.held_bytes.activations));
    if (again) {
      return `Forward keeps little but each block's input, at most ${bytes(kept)} of activations. Backward computes every block again just before it needs it: time spent to save memory. The most held at once is ${bytes(top.total)}, in ${top.phase}.`;
    }
    return `Forward fills up to ${bytes(kept)} of activations, and backward lets them go one by one: every one is needed to find its layer's share of the error. The most held at once is ${bytes(top.total)}, in ${top.phase}.`;
  }

  #paintSteps() {
    const { el, trace } = this;
    const key = trace.recorded.map((r) => r.step).join();
    if (el.steps.dataset.key !== key) {
      el.steps.dataset.key = key;
      el.steps.replaceChildren(...trace.recorded.map((r) => new Option(`${count(r.step)} (epoch ${passes(trace.frameAt(r.step)?.epoch ?? 0)})`, r.step)));
    }
    el.steps.value = String(this.view.step);
  }

  #paintLoss(frame) {
    const { el, trace } = this;
    const width = el.loss.clientWidth;
    if (!width) return;
    const list = lossChart.points(trace);
    lossChart.draw(sharpen(el.loss, width, lossChart.defaults.height), trace, trace.axis === "step" ? frame.step : frame.epoch, this.lossHover, width, this.colours);
    const read = this.lossHover ?? list.findLast((p) => p.step <= frame.step);
    if (!read) return;
    el.lossRead.textContent = `${trace.axis} ${passes(read.x)} · train ${exact(read.train, 4)} · held out ${exact(read.held_out, 4)}`;
    el.loss.setAttribute("aria-label", `Loss against ${trace.axis}s, ${list.length} points, from ${exact(list[0].train, 3)} to ${exact(list.at(-1).train, 3)} on training examples. ${el.lossRead.textContent}. Arrow keys move.`);
  }

  #paintStatus(frame) {
    const { el, header, trace } = this;
    const recorded = this.view.mode === "step" ? this.recorded : null;
    const epoch = frame?.epoch ?? 0;
    const step = recorded ? recorded.step : frame?.step ?? 0;
    const right = frame?.held_out_accuracy;
    el.counts.textContent = frame
      ? `epoch ${passes(epoch)} · step ${count(step)} · ${count(trace.nTrain)} ${header.words.examples}, seen ${passes(epoch)} times · ${(right * 100).toFixed(1)} % of ${header.words.right} right`
      : header.waiting;
    el.origin.textContent = this.feed.isLost && this.source ? "connection lost, trying again" : header.origin;
  }

  #paintKeys() {
    const { el, colours: c } = this;
    if (el.categories.dataset.theme === c.neutral) return;
    el.categories.dataset.theme = c.neutral;
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

  #tip(text, x, y) {
    const { el } = this;
    el.tip.hidden = !text;
    if (!text) return;
    el.tip.textContent = text;
    el.tip.style.left = `${Math.max(0, Math.min(x + 14, el.player.clientWidth - 230))}px`;
    el.tip.style.top = `${y + 14}px`;
  }

  close() {
    this.closed = true;
    clearTimeout(this.hold);
    this.clock.pause();
    this.stage?.close();
    this.feed.close();
    this.resized.disconnect();
    this.seen.disconnect();
    this.root.remove();
  }
}
