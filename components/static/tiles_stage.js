// Stage of the models that torch runs: tiles for each part, blocks that open, one op explained,
// and what the model answers.

import { largest, picture } from "./heat.js";
import { named } from "./network_stage.js";
import { bytes, count, diverging, exact, seconds, sharpen } from "./player.js";
import { moment } from "./step.js";
import * as tiles from "./tiles.js";

const SIGNS = `
<span><i class="ramp" data-el="ramp"></i>negative … 0 … positive</span>
<span class="stepOnly"><i data-el="gradKey"></i>size of a gradient, beside its value</span>
<span class="stepOnly"><i class="bar" data-el="keptKey"></i>kept for backward now</span>
<span class="stepOnly" data-el="rowsKey"></span>`;

const CARD = `
<div class="head"><h2>One op, this step</h2><span class="quiet" data-el="kind"></span></div>
<label class="pick">op <select data-el="ops" aria-label="Op"></select></label>
<dl class="facts" data-el="facts"></dl>
<p class="takeaway" data-el="because"></p>`;

const ANSWERS = `
<div class="head"><h2 data-el="answersTitle"></h2><span class="quiet" data-el="answersRead"></span></div>
<div data-el="answers"></div>`;

const HELP = " Click a part to open it and see its ops; click an op to have it explained.";

export class TilesStage {
  constructor(mount) {
    this.mount = mount;
    const { signs, aside, answersCard, stageHelp } = mount.el;
    signs.innerHTML = SIGNS;
    aside.innerHTML = CARD;
    answersCard.innerHTML = ANSWERS;
    stageHelp.textContent = HELP;
    this.el = named(signs, aside, answersCard);
    this.el.ops.addEventListener("change", () => { this.#pin(this.el.ops.value); mount.repaint(); });
    this.links = [];
    this.forget();
  }

  forget() {
    this.place = null;
    this.pinned = null;
    this.opened = new Set();
    this.el.answers.replaceChildren(); // another run's, perhaps another model's
    delete this.el.answers.dataset.key;
  }

  state(recorded, t) { return moment(recorded, t); }

  paint(frame) {
    const { mount } = this;
    const { recorded } = mount;
    mount.el.aside.hidden = !recorded;
    if (recorded) this.#paintTiles(recorded, frame);
    this.#paintSigns(mount.colours);
    this.#paintAnswers(frame);
  }

  #paintTiles(recorded, frame) {
    const { mount } = this;
    const { el, header, colours, state } = mount;
    const columns = tiles.groups(header.ops, recorded);
    const rows = columns[0].main ? recorded.arrays.get(`${columns[0].main.id} activation`).shape[0] : 1;
    const labels = this.#rowLabels(recorded, rows);
    const width = el.scene.clientWidth;
    this.place = tiles.layout(columns, this.opened, width, rows, labels?.inputs ?? null);
    const now = state ?? moment(recorded, mount.clock.end);
    const context = sharpen(el.scene, width, this.place.height);
    tiles.draw(context, this.place, {
      recorded, state: now, states: tiles.states(recorded, header.ops, now.t), rowLabels: labels?.inputs ?? null,
      targets: labels?.targets ?? null, pinned: this.pinned,
    }, colours);
    this.el.rowsKey.textContent = labels ? "one row for each character of one example" : "one row for each example of the step";
    el.scene.setAttribute("aria-label", `Model of ${columns.length} parts: ${now.phase}, ${now.op}, ${seconds(now.t)} of ${seconds(now.end)}. `
      + `Loss on training examples ${exact(frame.train_loss, 4)}, held out ${exact(frame.held_out_loss, 4)}.`);
    this.#paintOp(recorded, now);
  }

  /** Characters of the rows, and those asked for; null where rows are examples. */
  #rowLabels(recorded, rows) {
    const { vocabulary, positions } = this.mount.header;
    const [tokens, targets] = ["input tokens", "target tokens"].map((key) => recorded.arrays.get(key));
    if (!vocabulary || !tokens) return null;
    const letters = [...vocabulary];
    const shown = positions.slice(0, rows);
    return {
      inputs: shown.map((at) => letters[tokens.at(at)]),
      targets: shown.map((at) => (targets.at(at) < 0 ? null : letters[targets.at(at)])),
    };
  }

  #pin(id) {
    this.pinned = id;
    this.opened = new Set([tiles.groupOf(id)]);
  }

  #paintOp(recorded, now) {
    const { el, mount } = this;
    const { ops, run } = mount.header;
    if (el.ops.dataset.key !== run) {
      el.ops.dataset.key = run;
      el.ops.replaceChildren(...ops.map((op) => new Option(op.id, op.id)));
    }
    const id = this.pinned ?? now.op;
    const op = ops.find((o) => o.id === id);
    const time = (phase) => {
      const spans = recorded.spans.filter((s) => s.op === id && s.phase === phase);
      return spans.length ? seconds(spans.reduce((sum, s) => sum + s.end_s - s.start_s, 0)) : null;
    };
    el.kind.textContent = this.pinned ? "pinned" : `runs now: ${id}`;
    el.ops.value = op ? id : "";
    if (!op) { // the optimizer's: no part of the model
      el.facts.replaceChildren(element("dt", "update"), element("dd", time("update") ?? ""));
      el.because.textContent = id.endsWith("step") ? "The optimizer moves every weight against its gradient, all in one go." : "The gradients have done their work and are let go.";
      return;
    }
    const value = recorded.arrays.get(`${op.id} activation`);
    const grad = recorded.arrays.get(`${op.id} grad`);
    const facts = [
      ["gives", op.output_shape.length ? op.output_shape.map(count).join(" × ") : "one number"],
      ["parameters", op.n_params ? count(op.n_params) : null],
      ["forward", joined(time("forward") ?? time("loss"), op.forward_flops && `${flops(op.forward_flops)} predicted`)],
      ["backward", joined(time("backward"), op.backward_flops && `${flops(op.backward_flops)} predicted`)],
      ["computed again", time("recompute")],
      ["keeps for backward", op.saved_bytes ? `${bytes(op.saved_bytes)} predicted` : "nothing of its own"],
      ["largest value shown", value ? exact(largest(value), 3) : null],
      ["largest gradient shown", grad ? exact(largest(grad), 3) : null],
    ].filter(([, text]) => text);
    el.facts.replaceChildren(...facts.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
    el.because.textContent = op.saved_because ? `Kept for: ${op.saved_because}.` : "";
  }

  #paintAnswers(frame) {
    const { el, mount } = this;
    const { header, trace } = mount;
    const images = trace.constants.get("data images");
    mount.el.answersCard.hidden = false;
    el.answersRead.textContent = `${(frame.held_out_accuracy * 100).toFixed(1)} % of ${header.words.right} right`;
    el.answersTitle.textContent = header.words.answers;
    if (images) this.#paintDigits(frame, images);
    else this.#paintTexts(frame);
  }

  /** Held-out digits with what the model takes them for; wrong ones ringed and named. */
  #paintDigits(frame, images) {
    const { el, mount } = this;
    const answers = frame.arrays.get("head answers");
    const labels = mount.trace.constants.get("data labels");
    if (!answers) return;
    let canvas = el.answers.querySelector("canvas");
    if (!canvas) {
      canvas = Object.assign(document.createElement("canvas"), { role: "img" });
      el.answers.replaceChildren(canvas);
    }
    const c = mount.colours;
    const [n] = images.shape;
    const width = el.answers.clientWidth || 300;
    const across = Math.max(6, Math.floor(width / 40));
    const cell = width / across;
    const tall = cell + 14;
    const context = sharpen(canvas, width, Math.ceil(n / across) * tall);
    context.imageSmoothingEnabled = false;
    context.textAlign = "center";
    context.font = `11px ${c.font}`;
    let right = 0;
    for (let i = 0; i < n; i += 1) {
      const [x, y] = [(i % across) * cell, Math.floor(i / across) * tall];
      const scores = Array.from({ length: 10 }, (_, k) => answers.at(i * 10 + k));
      const said = scores.indexOf(Math.max(...scores));
      const fine = said === labels.at(i);
      right += fine;
      context.drawImage(picture(images, i, "ink", c, 16), x + 3, y + 1, cell - 6, cell - 6);
      context.strokeStyle = fine ? c.line : c.loss;
      context.lineWidth = fine ? 1 : 2.5;
      context.strokeRect(x + 2.5, y + 0.5, cell - 5, cell - 5);
      context.fillStyle = fine ? c.muted : c.ink;
      context.fillText(fine ? String(said) : `${said} ≠ ${labels.at(i)}`, x + cell / 2, y + cell + 6);
    }
    canvas.setAttribute("aria-label", `${n} held-out digits; ${right} of them read right.`);
  }

  /** What the model writes: sums right or wrong, or how it goes on with a text. */
  #paintTexts(frame) {
    const { el, mount } = this;
    const samples = mount.trace.samplesAt(frame.step);
    const key = samples.map((s) => s.text).join("\n");
    if (el.answers.dataset.key === key) return;
    el.answers.dataset.key = key;
    if (!samples.length) { el.answers.replaceChildren(); return; }
    if (samples[0].name === "sum") {
      const box = element("div", "");
      box.className = "sums";
      box.append(...samples.map(({ text }) => {
        const [, a, b, sum] = text.match(/^(\d+)\+(\d+)=(.*)$/) ?? [];
        const fine = Number(a) + Number(b) === Number(sum);
        const item = element("span", `${a}+${b} = ${sum}${fine ? "" : " ✗"}`);
        item.className = fine ? "right" : "wrong";
        return item;
      }));
      el.answers.replaceChildren(box);
    } else {
      const pre = element("pre", samples.at(-1).text);
      el.answers.replaceChildren(pre);
    }
  }

  #paintSigns(c) {
    const { ramp, gradKey, keptKey } = this.el;
    if (ramp.dataset.theme === c.neutral) return;
    ramp.dataset.theme = c.neutral;
    ramp.style.background = `linear-gradient(90deg, ${[-1, -0.5, 0, 0.5, 1].map((v) => diverging(c, v)).join(", ")})`;
    gradKey.style.background = c.backward;
    keptKey.style.background = c.activations;
  }

  point(x, y) {
    const found = x === null || !this.place ? null : tiles.hit(this.place, x, y);
    if (!found) return null;
    const op = this.mount.header.ops.find((o) => o.id === found.op);
    return `${op.id}: ${op.output_shape.map(count).join(" × ")}${op.saved_bytes ? `, keeps ${bytes(op.saved_bytes)}` : ""}`;
  }

  press(x, y) {
    const found = this.place && tiles.hit(this.place, x, y);
    if (!found) return;
    const open = this.place.openTiles.some((t) => t.op.id === found.op && y >= t.y);
    if (open) this.pinned = this.pinned === found.op ? null : found.op;
    else if (this.opened.has(found.group)) this.opened.delete(found.group);
    else this.opened.add(found.group);
  }

  close() {
    const { signs, aside, answersCard, stageHelp } = this.mount.el;
    for (const box of [signs, aside, answersCard]) box.replaceChildren();
    answersCard.hidden = true;
    stageHelp.textContent = "";
  }
}

const joined = (...parts) => parts.filter(Boolean).join(" · ") || null;

const flops = (n) => (n < 1e6 ? `${count(n)} FLOP` : n < 1e9 ? `${(n / 1e6).toPrecision(3)} MFLOP` : `${(n / 1e9).toPrecision(3)} GFLOP`);

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}
