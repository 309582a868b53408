// The card of attention: which trip, layer and head are shown, and what a cell says.

import { MEAN, draw, heightOf, hit, layersOf, lookedAt, rowOf, weightsOf } from "./attention.js";
import { mix, percent } from "./player.js";
import { quoted } from "./tokens.js";
import { passed, tokensOf } from "./trips.js";

// Static markup of our own.
export const CARD = `
<div class="head"><h2>Attention</h2><span class="quiet" data-el="attentionOf"></span></div>
<div class="picks">
  <label>layer <select data-el="layer" aria-label="Layer"></select></label>
  <label>head <select data-el="head" aria-label="Head"></select></label>
  <span class="jumps" data-el="attentionJumps"></span>
</div>
<div data-el="attentionBox"><canvas data-el="attention" role="img" tabindex="0"></canvas></div>
<div class="legend" data-el="attentionKey"><span><i class="ramp" data-el="attentionRamp"></i><span data-el="attentionTop"></span></span></div>
<p class="said" data-el="attentionSaid" role="status"></p>`;

export class AttentionCard {
  /** `jump(step)`: go to the end of a trip; `changed()`: draw anew. */
  constructor(el, { jump, changed }) {
    Object.assign(this, { el, jump, changed });
    this.layer = this.head = null;
    this.hover = null;
    el.layer.addEventListener("change", () => { this.layer = Number(el.layer.value); this.hover = null; changed(); });
    el.head.addEventListener("change", () => { this.head = el.head.value === MEAN ? MEAN : Number(el.head.value); changed(); });
    el.attention.addEventListener("pointermove", (event) => this.#point(this.weights && hit(this.weights, el.attention.clientWidth, event.offsetX, event.offsetY)));
    el.attention.addEventListener("pointerleave", () => this.#point(null));
    el.attention.addEventListener("blur", () => this.#point(null));
    el.attention.addEventListener("keydown", (event) => this.#key(event));
    el.attentionJumps.addEventListener("click", (event) => {
      const asked = event.target.closest("button");
      if (asked) jump(Number(asked.dataset.step));
    });
  }

  #point(cell) {
    this.hover = cell || null;
    this.changed();
  }

  #key(event) {
    const { weights } = this;
    const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!move || !weights) return;
    event.preventDefault();
    const from = this.hover ?? { r: this.row, c: -1 };
    const within = (v, n) => Math.min(Math.max(v, 0), n - 1);
    this.#point({ r: within(from.r + move[0], weights.rows), c: within(from.c + move[1], weights.cols) });
  }

  /**
   * `lane`, `t`: the answer and its moment; `asks`: position of the token of the prompt that was
   * chosen, or null; `texts`: of all tokens.
   */
  paint({ trace, lane, nPrompt, cache, asks, texts, trip, t }, c) {
    const { el } = this;
    const looked = lookedAt(trace, lane);
    this.weights = null;
    this.#paintJumps(looked);
    const step = asks === null ? looked.findLast((s) => s <= trip.step) : 0;
    const layers = step === undefined ? [] : layersOf(trace, step);
    el.attention.hidden = !layers.length;
    el.layer.disabled = el.head.disabled = !layers.length;
    el.attention.closest(".card").classList.toggle("bare", !layers.length);
    if (!layers.length) {
      el.attentionOf.textContent = "";
      el.attentionSaid.textContent = trace.ended ? "No trip was looked into: “trips looked into” is 0 in the settings." : "Recorded after the last token, for the first trips.";
      return;
    }
    this.#paintPicks(layers);
    const { op, array } = layers.find(({ layer }) => layer === this.layer);
    const shown = lane.trips[step];
    const nAll = nPrompt + step;
    const weights = weightsOf(array, this.head, nAll, tokensOf(shown, { nPrompt, cache }));
    el.attentionBox.style.minHeight = `${this.#tallest(trace, lane, looked, nPrompt, cache)}px`; // the page stays as it is
    const known = passed(lane, shown, op, t);
    el.attentionKey.style.visibility = known && weights.rows > 1 ? "" : "hidden";
    this.row = rowOf(weights, asks ?? nAll - 1);
    this.shown = { step, here: known && (asks !== null || step === trip.step) };
    el.attentionOf.textContent = step ? `trip ${step + 1}: decode` : "trip 1: prefill";
    if (!known) {
      el.attention.hidden = true;
      el.attentionSaid.textContent = `block ${this.layer + 1} is not reached yet in this trip`;
      return;
    }
    this.weights = weights;
    if (this.hover && (this.hover.r >= weights.rows || this.hover.c >= weights.cols)) this.hover = null;
    draw(el.attention, weights, { texts, row: this.row, hover: this.hover }, c);
    el.attentionRamp.style.background = `linear-gradient(90deg, ${c.empty}, ${mix(c.empty, c.forward, 1)})`;
    el.attentionTop.textContent = `0 … ${percent(weights.top)}`;
    el.attentionSaid.textContent = this.#words(texts, nAll);
    el.attention.setAttribute("aria-label", `Attention of block ${this.layer + 1}, ${this.head === MEAN ? "mean of all heads" : `head ${this.head + 1}`}: ${weights.rows} tokens that ask by ${weights.cols} that are asked. ${el.attentionSaid.textContent} Arrow keys move.`);
  }

  /** How much attention a token of the text gets from the one that asks, or null. */
  lines() {
    const { weights, shown } = this;
    if (!weights || !(shown.here || this.hover)) return null;
    const r = this.hover?.r ?? this.row;
    const at = new Map(weights.keys.map((k, i) => [k, weights.at(r, i) / weights.top]));
    return { of: (i) => at.get(i) ?? null, key: `${shown.step} ${this.layer} ${this.head} ${r}` };
  }

  /** Pixels that the picture of any of the trips takes. */
  #tallest(trace, lane, looked, nPrompt, cache) {
    const width = this.el.attentionBox.clientWidth;
    return Math.max(...looked.map((step) => {
      const [{ array }] = layersOf(trace, step);
      return heightOf(weightsOf(array, 0, nPrompt + step, tokensOf(lane.trips[step], { nPrompt, cache })), width);
    }));
  }

  #words(texts, nAll) {
    const { weights } = this;
    const r = this.hover?.r ?? this.row;
    const asking = quoted(texts[weights.queries[r]]);
    if (this.hover) {
      const key = weights.keys[this.hover.c];
      if (key > weights.queries[r]) return `${asking} cannot look ahead at ${quoted(texts[key])}.`;
      return `${asking} looks at ${quoted(texts[key])}: ${percent(weights.at(r, this.hover.c))}.`;
    }
    let most = 0;
    for (let i = 1; i < weights.cols; i += 1) if (weights.at(r, i) > weights.at(r, most)) most = i;
    const some = weights.cols < nAll ? ` ${weights.cols} of ${nAll} tokens are recorded, evenly spread.` : "";
    return `${asking} looks most at ${quoted(texts[weights.keys[most]])}: ${percent(weights.at(r, most))}.${some}`;
  }

  #paintPicks(layers) {
    const { el } = this;
    const n = layers[0].array.shape[0];
    const key = `${layers.map(({ layer }) => layer)} ${n}`;
    if (el.layer.dataset.key !== key) {
      el.layer.dataset.key = key;
      el.layer.replaceChildren(...layers.map(({ layer }) => new Option(`block ${layer + 1}`, layer)));
      el.head.replaceChildren(new Option("mean of all", MEAN), ...Array.from({ length: n }, (_, h) => new Option(String(h + 1), h)));
    }
    if (!layers.some(({ layer }) => layer === this.layer)) this.layer = layers[layers.length >> 1].layer;
    if (this.head === null || (this.head !== MEAN && this.head >= n)) this.head = MEAN;
    el.layer.value = String(this.layer);
    el.head.value = String(this.head);
  }

  #paintJumps(looked) {
    const { el } = this;
    const key = looked.join();
    if (el.attentionJumps.dataset.key === key) return;
    el.attentionJumps.dataset.key = key;
    el.attentionJumps.replaceChildren(...looked.map((step) => {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "small", textContent: step ? `trip ${step + 1}` : "prefill" });
      button.dataset.step = step;
      return button;
    }));
  }
}

