// Stage of the playground: neurons, links, the plane, and one weight followed through the step.

import * as inspector from "./inspector.js";
import { count, diverging, exact, seconds, sharpen } from "./player.js";
import * as scene from "./scene.js";
import { frame as frameOf, layersOf } from "./step.js";

const SIGNS = `
<span><i class="ramp" data-el="ramp"></i>negative … 0 … positive: weights (dashed when negative), outputs, classes</span>
<span class="stepOnly"><i data-el="gradKey"></i>size of a gradient</span>
<span><b class="round" data-el="plusKey"></b><b class="square" data-el="minusKey"></b>the two classes; large ones are this step's examples</span>
<span class="stepOnly"><b class="strips"></b>one cell for each example of the step</span>`;

const CARD = `
<div class="head"><h2>One weight, this step</h2><span class="quiet" data-el="step"></span></div>
<label class="pick">weight <select data-el="weights" aria-label="Weight"></select></label>
<div class="numbers">
  <div><b data-el="before"></b><span>before, w</span></div>
  <div><b data-el="grad" class="backward"></b><span>gradient g, by autograd</span><span class="check">finite difference <em data-el="difference"></em>, <em data-el="gap"></em></span></div>
  <div><b data-el="after"></b><span>after, w′</span><span data-el="delta"></span></div>
</div>
<p class="working"><span data-el="formula"></span><span data-el="rate" class="quiet"></span><span data-el="substituted"></span><span data-el="extra" class="quiet"></span></p>`;

const HELP = " Click a line or a bias dot to follow one weight; point at a neuron to see what it has learned on the large plane.";

export class NetworkStage {
  constructor(mount) {
    this.mount = mount;
    const { signs, aside, stageHelp } = mount.el;
    signs.innerHTML = SIGNS;
    aside.innerHTML = CARD;
    stageHelp.textContent = HELP;
    this.el = named(signs, aside);
    this.el.weights.addEventListener("change", () => {
      this.selection = inspector.parse(this.el.weights.value);
      mount.repaint();
    });
    this.forget();
  }

  forget() {
    this.place = null;
    this.hovered = null;
    this.selection = { layer: this.layers.length - 1, out: 0, in: 0 };
  }

  get layers() { return layersOf(this.mount.header.ops); }

  get widths() { return [...this.mount.header.spec.hidden, 1]; }

  state(recorded, t) { return frameOf(recorded, this.mount.header.ops, t); }

  paint(frame) {
    const { mount, widths } = this;
    const { el, header, trace, state, recorded, colours } = mount;
    const width = el.scene.clientWidth;
    const key = `${width} ${header.spec.features} ${widths}`;
    if (!this.place || this.key !== key) {
      this.key = key;
      this.place = scene.layout(header.spec.features, widths, width);
      this.links = scene.links(this.place);
    }
    const context = sharpen(el.scene, width, this.place.height);
    scene.draw(context, this.place, this.links, {
      trace, frame, recorded, state, layers: this.layers, features: header.spec.features,
      hovered: this.hovered, selected: this.selection,
    }, colours);
    const doing = state ? `${state.phase}, ${state.op}, ${seconds(state.t)} of ${seconds(state.end)}` : "as trained so far";
    el.scene.setAttribute("aria-label", `Network of ${widths.length} layers on the ${header.spec.problem} problem: ${doing}. `
      + `Loss on training examples ${exact(frame.train_loss, 4)}, held out ${exact(frame.held_out_loss, 4)}.`);
    el.aside.hidden = !recorded;
    if (recorded) this.#paintWeight(recorded);
    this.#paintSigns(colours);
  }

  #paintWeight(recorded) {
    const { el, layers, widths } = this;
    const { header } = this.mount;
    const key = `${header.run} ${header.spec.features} ${header.spec.hidden}`;
    if (el.weights.dataset.key !== key) {
      el.weights.dataset.key = key;
      el.weights.replaceChildren(...inspector.choices(header.spec.features, layers, widths).map((group) => {
        const box = document.createElement("optgroup");
        box.label = group.label;
        box.append(...group.options.map((o) => new Option(o.label, o.value)));
        return box;
      }));
    }
    el.weights.value = inspector.spell(this.selection);
    const w = inspector.working(recorded, layers, this.selection, header.optimizer);
    inspector.render((name) => el[name], w, header.spec.precision, `step ${count(recorded.step)} · ${layers[this.selection.layer].linear}`);
  }

  #paintSigns(c) {
    const { ramp, gradKey, plusKey, minusKey } = this.el;
    if (ramp.dataset.theme === c.neutral) return;
    ramp.dataset.theme = c.neutral;
    ramp.style.background = `linear-gradient(90deg, ${[-1, -0.5, 0, 0.5, 1].map((v) => diverging(c, v)).join(", ")})`;
    gradKey.style.background = c.backward;
    plusKey.style.background = c.positive;
    minusKey.style.background = c.negative;
  }

  /** The pointer moved (or left: x null); returns what it is on, in words. */
  point(x, y) {
    this.hovered = x === null || !this.place ? null : scene.hit(this.place, this.links, x, y);
    return this.hovered ? this.#words(this.hovered) : null;
  }

  press(x, y) {
    const found = this.place && scene.hit(this.place, this.links, x, y);
    if (found?.link) this.selection = { layer: found.link.layer, out: found.link.out, in: found.link.in };
  }

  #words({ unit, link }) {
    const { layers, mount } = this;
    const { features, precision } = mount.header.spec;
    if (unit) {
      return unit.column === 0 ? `input ${scene.featureName(features[unit.index])}`
        : `${scene.layerName(layers, unit.column - 1)}, neuron ${unit.index + 1}: what it says across the plane, shown large at the side`;
    }
    const op = layers[link.layer].linear;
    const array = mount.state ? mount.recorded.arrays.get(`${op} weight`) : mount.frame?.arrays.get(`${op} frame_weight`);
    if (!array) return null;
    const value = array.at(link.out * array.shape[1] + link.in);
    return `${link.bias ? "bias" : "weight"} ${exact(value, precision === "fp64" ? 17 : 9)}, click to follow it`;
  }

  close() {
    const { signs, aside, stageHelp } = this.mount.el;
    signs.replaceChildren();
    aside.replaceChildren();
    stageHelp.textContent = "";
  }
}

/** Elements by their data-el, below some roots. */
export const named = (...roots) => Object.fromEntries(
  roots.flatMap((root) => [...root.querySelectorAll("[data-el]")]).map((e) => [e.dataset.el, e]));
