// The transport of a player: buttons, keys, speed, loop and the scrubber, all of one clock.

import { defaults as kit, keyAction } from "./player.js";

const ICONS = {
  start: "M5 4v12M16 4 8 10l8 6z", back: "M14 4 6 10l8 6z", play: "M6 3.5v13L16.5 10z", pause: "M6 4v12M14 4v12",
  next: "M6 4l8 6-8 6z", end: "M15 4v12M4 4l8 6-8 6z",
};
export const icon = (name) => `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="${ICONS[name]}"/></svg>`;

const STEPS = 2000; // of the scrubber

/** Markup of our own words; `one` and `many`: what a step button and one with Shift go to. `more`
 * stands before the speed, `help` after what the keys do; `moment` names the scrubber. */
export const markup = (one, many, { more = "", help = "", moment = "Moment" } = {}) => `
<div class="transport">
  <button data-act="start" title="To the beginning (Home)" aria-label="To the beginning">${icon("start")}</button>
  <button data-act="previous op" title="Back one ${one} (←), one ${many} (Shift ←)" aria-label="Back one ${one}">${icon("back")}</button>
  <button data-act="toggle" class="main" data-el="play" title="Play or pause (Space)"></button>
  <button data-act="next op" title="On one ${one} (→), one ${many} (Shift →)" aria-label="On one ${one}">${icon("next")}</button>
  <button data-act="end" title="To the end (End)" aria-label="To the end">${icon("end")}</button>
  ${more}<label>speed <select data-el="speed" aria-label="Speed"></select></label>
  <label class="check"><input type="checkbox" data-el="loop">loop</label>
  <button data-act="help" class="small" aria-label="Keys" title="Keys (?)">?</button>
  <output data-el="where"></output>
</div>
<p class="help" data-el="help" hidden>Space plays and pauses. ← → one ${one}, Shift ← → one ${many}, Home and End the ends.${help}</p>
<input class="scrub" type="range" min="0" max="${STEPS}" value="0" data-el="scrub" aria-label="${moment}">`;

/**
 * Wires the markup inside `root` to a clock. `stops` and `longStops` give the moments that steps go
 * to; `touched` is called before whatever a visitor does, and may say `false`: there is nothing to do
 * it to; `words` are the button's when it would play.
 */
export class Transport {
  constructor(root, clock, { stops, longStops, touched = () => {}, words = "Play" }) {
    Object.assign(this, { root, clock, stops, longStops, touched, words });
    this.el = Object.fromEntries([...root.querySelectorAll("[data-el]")].map((e) => [e.dataset.el, e]));
    const { el } = this;
    this.buttons = [...root.querySelectorAll(".transport button[data-act]")];
    this.buttons.forEach((b) => b.addEventListener("click", () => this.act(b.dataset.act)));
    root.addEventListener("keydown", (event) => this.#key(event));
    for (const speed of kit.speeds) el.speed.add(new Option(`${speed}×`, speed, speed === 1, speed === 1));
    el.speed.addEventListener("change", () => { clock.speed = Number(el.speed.value); clock.seek(clock.t); });
    el.loop.addEventListener("change", () => { clock.loop = el.loop.checked; });
    el.scrub.addEventListener("input", () => this.scrub(Number(el.scrub.value) / STEPS));
  }

  act(action) {
    if (action === "help") {
      this.el.help.hidden = !this.el.help.hidden;
      return;
    }
    if (this.touched() === false) return;
    const { clock } = this;
    if (action === "toggle") clock.toggle();
    else if (action === "start" || action === "end") { clock.pause(); clock.seek(action === "start" ? 0 : clock.end); }
    else clock.stepTo(action.endsWith("phase") ? this.longStops() : this.stops(), action.startsWith("next") ? 1 : -1);
  }

  /** Stop at a share of the whole. */
  scrub(share) {
    if (this.touched() === false) return;
    this.clock.pause();
    this.clock.seek(share * this.clock.end);
  }

  #key(event) {
    if (event.target.matches("select, input[type=checkbox]")) return;
    if (event.key === " " && event.target.matches("button")) return;
    const action = event.ctrlKey || event.metaKey || event.altKey ? null : keyAction(event.key, event.shiftKey);
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();
    this.act(action);
  }

  /** `where`: the moment in words; `present`: whether there is anything to play. */
  paint(where, present) {
    const { el, clock } = this;
    el.scrub.hidden = !present;
    for (const b of this.buttons) if (b.dataset.act !== "help") b.disabled = !present;
    const next = clock.playing ? "pause" : "play";
    if (el.play.dataset.next !== next) { // not every frame: a press on what is replaced meanwhile is no click
      el.play.dataset.next = next;
      el.play.innerHTML = `${icon(next)}<span>${clock.playing ? "Pause" : this.words}</span>`;
    }
    el.where.textContent = where;
    el.where.setAttribute("aria-live", clock.playing ? "off" : "polite");
    if (el.scrub !== document.activeElement || clock.playing) el.scrub.value = Math.round((clock.t / clock.end) * STEPS);
    el.scrub.setAttribute("aria-valuetext", where);
  }
}
