// The answer widget: a prompt, the tokens that come one trip at a time, and what each trip did.
// Everything drawn is a function of (trace, t); the server is not asked while scrubbing.

import { cellsOfTrip, tipOf, tookOf } from "./answer_lane.js";
import * as time from "./answer_time.js";
import { AttentionCard, CARD } from "./attention_card.js";
import { lookedAt } from "./attention.js";
import * as stairs from "./cache.js";
import { Feed } from "./feed.js";
import { drawLane, evenly, hit, room, standIn } from "./lane.js";
import { mounted, planted } from "./mount.js";
import { cutWords, list, odds } from "./odds.js";
import { answerAt, answerTimeline } from "./pair.js";
import { Clock, bytes, count, palette, percent, reducedMotion, seconds, sharpen } from "./player.js";
import { categoryName, fill } from "./ribbon.js";
import { slowed } from "./step.js";
import { groupName, groupOf, opName } from "./tiles.js";
import { TokenBox, inOrder, isSpecial, quoted, shown } from "./tokens.js";
import { unpack } from "./trace.js";
import { Transport, markup } from "./transport.js";
import { CHOOSING, cachedAt, medianDecode, opAt, opStops, playS, tokenStops, tokensOf, tripsOf } from "./trips.js";

export const defaults = { holdMs: 2600, lane: 190, sayMs: 4000 };
const CATEGORIES = ["weights", "inputs", "cache", "temporaries"];
const LOCK = `<svg viewBox="0 0 20 20" aria-hidden="true"><path d="M6 9V6.5a4 4 0 0 1 8 0V9"/><rect x="4.5" y="9" width="11" height="8" rx="1.6"/></svg>`;

// Static markup of our own: no recorded or typed text passes through it.
const MARKUP = `
<div class="bw answer">
  <div class="status"><span data-el="counts"></span><span class="frozen" data-el="frozen" hidden>${LOCK}<span data-el="hash"></span></span><span data-el="origin" class="quiet"></span></div>
  <span class="unseen" role="status" data-el="live"></span>
  <div class="player" tabindex="0" role="group" aria-label="Answer player: space plays, arrows step from token to token" data-el="player">
    <label class="row" data-el="rowPick" hidden>sequence <select data-el="rows" aria-label="Sequence of the batch"></select></label>
    <div class="tokens" role="listbox" tabindex="0" aria-label="Tokens of the prompt and the answer" data-el="tokens"></div>
    <p class="said" data-el="said"></p>
    <canvas data-el="lane" role="img"></canvas>
    <div class="legend"><span><i class="ramp" data-el="ramp"></i>how large what a part gives is: a row for each channel, a column for each token</span></div>
    ${markup("token", "op", {
    more: `<span class="jumps"><button data-trip="0">prefill</button><button data-trip="1">first decode</button></span>`,
    moment: "Moment of the answer",
  })}
    <canvas data-el="time" role="img"></canvas>
    <div class="legend" data-el="categories"></div>
    <p class="takeaway" data-el="takeaway"></p>
    <div class="tip" data-el="tip" hidden></div>
  </div>
  <div class="two cards">
    <section class="card odds"><div class="head"><h2>Next token</h2><span class="quiet" data-el="oddsOf"></span></div><ol data-el="odds"></ol><p class="said" data-el="oddsSaid"></p></section>
    <section class="card"><div class="head"><h2>KV cache</h2><span class="quiet" data-el="cacheOf"></span></div><canvas data-el="cache" role="img" tabindex="0"></canvas><p class="said" data-el="cacheSaid"></p></section>
    <section class="card">${CARD}</section>
  </div>
</div>`;

/** "blocks.16.mlp.up" -> "block 17 · mlp.up": as the columns are called. */
function placeOf(op) {
  const [group, name] = [groupName(groupOf(op)), opName(op)];
  return op === CHOOSING || group === name ? op : `${group} · ${name}`;
}

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
    this.tokenBox = new TokenBox(this.el.tokens, { choose: (i) => this.choose(i), hover: (i, chip) => this.#tipOfToken(i, chip) });
    this.attention = new AttentionCard(this.el, { jump: (step) => this.#jump(step), changed: () => this.repaint() });
    this.transport = new Transport(this.el.player, this.clock, {
      stops: () => tokenStops(this.lane),
      longStops: () => opStops(this.lane, this.clock.t),
      touched: () => this.#touched(),
      words: "Play the answer",
    });
    this.#forget();
    this.root.bothways = this; // for tests and the console: the trace and the view behind the picture
    this.#listen();
  }

  // -- what comes in -----------------------------------------------------------------------------

  receive(message) {
    this.colours = null; // the theme may have changed
    const { header, events, arrays } = unpack(message);
    const same = this.header?.run === header.run;
    this.header = header;
    this.writers = new Set(header.ops.filter((op) => op.cache_bytes).map((op) => op.id));
    if (!same) this.#forget();
    this.feed.receive(header, events, arrays);
    this.repaint();
  }

  get trace() { return this.feed.trace; }

  /** The open stream of a live run. */
  get source() { return this.feed.source; }

  #forget() {
    clearTimeout(this.hold);
    this.clock.pause();
    this.lane = null;
    this.offered = null; // the state in which the answer was opened by itself
    // free: moved away from what comes in; asks: token of the prompt that was chosen; row: sequence
    this.view = { free: false, asks: null, row: 0, hover: null };
  }

  /** Whether more tokens may come, and the newest is what is looked at. */
  get following() {
    return this.growing && !this.view.free;
  }

  get growing() {
    return Boolean(this.header?.live) && !this.trace.ended && !this.trace.paused;
  }

  #arrived(opened) {
    const { clock, view } = this;
    const stood = clock.t >= clock.end && !clock.playing;
    this.lane = tripsOf(this.trace);
    if (!this.lane) return;
    if (this.growing) {
      clearTimeout(this.hold);
      if (view.free && stood) view.free = false;
      if (view.free) clock.end = this.lane.end;
      else clock.pause();
      return;
    }
    const state = `${this.trace.ended ? "ended" : "paused"} ${this.lane.trips.length}`;
    if (state !== this.offered) this.#open(opened);
    this.offered = state;
  }

  /** Set the clock to what there is; an answer that is complete plays by itself, once. */
  #open(opened) {
    const { header, clock, lane, trace, view } = this;
    const wasFree = view.free;
    this.#load(wasFree ? clock.t : lane.end);
    if (!trace.ended || wasFree) return;
    if (opened && Number.isInteger(header.moment)) { this.#jump(header.moment); return; }
    if (reducedMotion() || header.still) { if (opened) this.#jump(1); return; }
    if (opened) clock.seek(0);
    this.hold = setTimeout(() => clock.play(), defaults.holdMs);
  }

  #load(t) {
    const { clock, lane } = this;
    this.slow = slowed(lane.end, playS(lane));
    clock.load(lane.end, 1 / this.slow);
    clock.seek(t);
  }

  /** The page learns of a change of state and of the end, once each. */
  #tellPage() {
    if (!this.header.stream) return;
    const news = this.feed.news(this.header.known);
    if (news) this.tell.trigger("changed", news);
  }

  // -- where the view is -------------------------------------------------------------------------

  #touched() {
    clearTimeout(this.hold);
    if (!this.lane) return false;
    this.view.asks = null;
    if (this.following) {
      this.view.free = true;
      this.#load(this.lane.end);
    }
    return true;
  }

  /** To the end of a trip, where its token has come. */
  #jump(step) {
    if (!this.#touched()) return;
    this.clock.pause();
    this.clock.seek(this.lane.trips[Math.min(Math.max(step, 0), this.lane.trips.length - 1)].end);
  }

  /** A token of the text: one of the answer is where the clock goes, one of the prompt is asked about. */
  choose(i) {
    const one = this.order[i];
    if (!one || !this.lane) return;
    if (one.trip === null) {
      this.#touched();
      this.clock.pause();
      this.view.asks = i;
    } else this.#jump(one.trip);
    this.repaint();
  }

  // -- listening ---------------------------------------------------------------------------------

  #listen() {
    const { el } = this;
    this.root.querySelectorAll("[data-trip]").forEach((b) => b.addEventListener("click", () => this.#jump(Number(b.dataset.trip))));
    el.rows.addEventListener("change", () => { this.view.row = Number(el.rows.value); this.repaint(); });
    const go = (event) => {
      if (this.lane) this.transport.scrub(time.scales(this.lane, el.time.clientWidth).t(event.offsetX) / this.lane.end);
    };
    el.time.addEventListener("pointerdown", (event) => { el.time.setPointerCapture(event.pointerId); go(event); });
    el.time.addEventListener("pointermove", (event) => (event.buttons ? go(event) : this.#tipOfTime(event)));
    el.time.addEventListener("pointerleave", () => this.#tip(null));
    el.lane.addEventListener("pointermove", (event) => this.#tipOfLane(event));
    el.lane.addEventListener("pointerleave", () => this.#tip(null));
    this.#listenCache();
    this.resized = new ResizeObserver(() => this.repaint());
    this.resized.observe(this.root);
    this.seen = new IntersectionObserver((entries) => this.clock.show(entries.some((e) => e.isIntersecting)));
    this.seen.observe(this.root);
  }

  #listenCache() {
    const { el, view } = this;
    const at = (event) => (this.lane ? stairs.scales(this.slots, 1, el.cache.clientWidth).at(event.offsetX) : null);
    el.cache.addEventListener("pointermove", (event) => { this.view.hover = at(event); this.repaint(); });
    el.cache.addEventListener("pointerleave", () => { this.view.hover = null; this.repaint(); });
    el.cache.addEventListener("click", (event) => { const i = at(event); if (i !== null) this.choose(i); });
    el.cache.addEventListener("keydown", (event) => {
      const chosen = this.chosen ?? -1;
      const next = { ArrowRight: chosen + 1, ArrowLeft: chosen - 1, Home: 0, End: (this.order?.length ?? 1) - 1 }[event.key];
      if (next === undefined || view === null) return;
      event.preventDefault();
      this.choose(Math.min(Math.max(next, 0), this.order.length - 1));
    });
  }

  #tip(text, x = 0, y = 0) {
    const { tip, player } = this.el;
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(4, Math.min(x + 14, player.clientWidth - 232))}px`;
    tip.style.top = `${y + 14}px`;
  }

  #tipOfToken(i, chip) {
    if (i === null || !chip) { this.#tip(null); return; }
    this.#tip(this.#aboutToken(this.order[i], i), chip.offsetLeft, chip.offsetTop - this.el.tokens.scrollTop + chip.offsetHeight);
  }

  #tipOfLane({ offsetX, offsetY }) {
    const { place, el } = this;
    const i = place ? hit(place.boxes, offsetX, offsetY) : -1;
    this.#tip(i < 0 ? null : place.tips(i), el.lane.offsetLeft + offsetX, el.lane.offsetTop + offsetY);
  }

  #tipOfTime({ offsetX, offsetY }) {
    const { lane, el } = this;
    if (!lane) return;
    const t = time.scales(lane, el.time.clientWidth).t(offsetX);
    const trip = lane.trips.findLast((one) => one.start <= t) ?? lane.trips[0];
    this.#tip(`trip ${count(trip.step + 1)}, ${trip.phase}: ${seconds(trip.end - trip.start)}, gave ${quoted(trip.token.text)}; ${this.#heldWords(t)}`, offsetX, el.time.offsetTop + offsetY);
  }

  #aboutToken({ token, trip }, i) {
    if (trip === null) return `${quoted(token.text)}, token ${i + 1} of the prompt, id ${token.id}: read in the prefill`;
    const { start, end } = this.lane.trips[trip];
    return `${quoted(token.text)}, token ${trip + 1} of the answer, id ${token.id}: ${percent(token.prob)} likely, ${seconds(end - start)}`;
  }

  // -- drawing -----------------------------------------------------------------------------------

  repaint() {
    if (this.painting || this.closed) return;
    this.painting = requestAnimationFrame(() => { this.painting = null; this.paint(); });
  }

  /** The moment that is drawn: while tokens come, the newest. */
  get t() { return this.following ? this.lane?.end ?? 0 : this.clock.t; }

  /** What is true of the answer now: pure readings of the trace at the view's moment. */
  get state() {
    const { lane, t } = this;
    if (!lane) return null;
    const now = answerAt(lane, t);
    return { ...now, t, op: opAt(lane, now.trip, t), cached: cachedAt(lane, this.settings, t) };
  }

  get settings() {
    const { spec } = this.header;
    return { nPrompt: this.trace.prompt.length, cache: spec.cache, writers: this.writers };
  }

  /** Position of the token that is framed: asked about, or the newest that has come; null before. */
  get chosen() {
    if (this.view.asks !== null) return this.view.asks;
    const n = this.came;
    return n ? this.trace.prompt.length + n - 1 : null;
  }

  paint() {
    if (this.closed || !this.header || !this.root.isConnected || !this.root.clientWidth) return;
    this.colours ??= { ...palette(this.host, this.header.colours), font: getComputedStyle(this.root).fontFamily };
    const { trace } = this;
    const state = this.state;
    this.root.classList.toggle("empty", !trace.prompt.length);
    this.order = inOrder(trace, this.view.row);
    this.came = state ? this.order.filter(({ trip }) => trip !== null && trip < state.n).length : 0;
    this.#paintStatus(state);
    if (!trace.prompt.length) return;
    this.#paintAttention(state);
    this.#paintTokens(state);
    this.#paintLane(state);
    this.#paintTime(state);
    this.#paintOdds();
    this.#paintCache(state);
    this.#paintKeys();
  }

  #paintStatus(state) {
    const { el, header, trace, feed } = this;
    const { spec } = header;
    const n = state?.n ?? 0;
    const median = state && medianDecode(this.lane, state.t);
    const parts = [header.model, header.format.real ? spec.weight_format : `${spec.weight_format} (simulated)`];
    if (!trace.started) parts.push(header.waiting);
    else if (!trace.prompt.length) parts.push(trace.ended ? "ended before it began" : "loading the model …");
    else parts.push(`${count(n)} of ${trace.ended ? count(this.lane?.trips.length ?? 0) : `at most ${count(spec.max_new_tokens)}`} tokens`);
    if (median) parts.push(`${seconds(median)} per token`);
    el.counts.textContent = parts.join(" · ");
    const busy = trace.scalars.get("contended") ? " · measured on a busy machine" : "";
    el.origin.textContent = feed.isLost && feed.open ? "connection lost, trying again" : `${header.origin}${busy}`;
    this.#paintHash();
    this.#say(state);
  }

  #paintHash() {
    const { el, trace } = this;
    const [before, after] = ["before", "after"].map((when) => trace.texts.get(`weights_sha256_${when}`)?.[0]);
    el.frozen.hidden = !before;
    if (!before) return;
    el.frozen.title = `SHA-256 of all weights, before ${before}${after ? `, after ${after}` : ""}`;
    el.hash.textContent = !after ? `weights ${before.slice(0, 8)}`
      : before === after ? `weights frozen: ${before.slice(0, 8)} before and after` : `weights changed: ${before.slice(0, 8)} → ${after.slice(0, 8)}`;
  }

  /** What a screen reader is told of a run under way: not every token. */
  #say(state) {
    const { el, trace } = this;
    this.watched = this.header.live ? this.header.run : this.watched; // whose end is news
    const words = this.watched !== this.header.run ? "" : trace.ended ? `The answer is complete: ${count(this.lane?.trips.length ?? 0)} tokens.`
      : !state ? el.counts.textContent : `${count(this.lane.trips.length)} tokens so far`;
    const now = performance.now();
    if (words === el.live.textContent || (this.growing && now - (this.saidAt ?? -Infinity) < defaults.sayMs)) return;
    this.saidAt = now;
    el.live.textContent = words;
  }

  #paintTokens(state) {
    const { el, header, order, came, view, trace } = this;
    const nPrompt = trace.prompt.length;
    el.rowPick.hidden = header.spec.batch_size < 2;
    if (el.rows.length !== header.spec.batch_size) {
      el.rows.replaceChildren(...Array.from({ length: header.spec.batch_size }, (_, i) => new Option(`${i + 1} of ${header.spec.batch_size}`, i)));
    }
    el.rows.value = String(view.row);
    this.tokenBox.fill(`${header.run} ${view.row}`, order, (one, i) => (one.trip === null || this.lane ? this.#aboutToken(one, i) : one.token.text));
    const lines = this.attention.lines();
    this.tokenBox.paint({
      n: nPrompt + came, chosen: this.chosen, follow: this.following || this.clock.playing,
      lines: lines?.of ?? null, key: lines?.key ?? "",
    });
    el.said.textContent = this.#chosenWords(state);
  }

  #chosenWords(state) {
    const { order, chosen, trace } = this;
    const nPrompt = trace.prompt.length;
    if (chosen === null) return state ? `the prefill reads all ${count(nPrompt)} tokens of the prompt in one trip` : `${count(nPrompt)} tokens of prompt`;
    const one = order[chosen];
    if (one.trip === null) return this.#aboutToken(one, chosen);
    const rivals = one.token.top.filter(([id]) => id !== one.token.id).slice(0, 3).map(([, text, p]) => `${quoted(text)} ${percent(p)}`);
    const said = `${this.#aboutToken(one, chosen)}`;
    return rivals.length ? `${said}; next in line ${rivals.join(" · ")}` : said;
  }

  #paintLane(state) {
    const { el, colours: c, trace, lane } = this;
    const width = el.lane.clientWidth;
    const context = sharpen(el.lane, width, defaults.lane);
    if (!state) { el.lane.setAttribute("aria-label", "The model, before the first trip."); return; }
    const all = state.columns.map((column, i) => ({ ...column, took: tookOf(state.trip, i) }));
    const few = evenly(all, room(width));
    const now = all.find((column) => column.state === "now");
    const framed = now ? standIn(few, all, now.id) : -1;
    const columns = few.map((column, i) => ({
      ...column, state: i === framed ? "now" : column.state,
      cells: column.state === "todo" ? null : cellsOfTrip(trace, lane.columns, column, state.trip),
    }));
    const nNew = tokensOf(state.trip, this.settings);
    const note = nNew === 1 ? "one token here" : now?.id === "head" ? "the last token here" : `${count(nNew)} tokens here`;
    const boxes = drawLane(context, width, defaults.lane, { columns, direction: 1, note }, c);
    this.place = { boxes, tips: (i) => tipOf(columns[i], columns[i].cells, state.trip) };
    const done = all.filter((column) => column.state === "done").length;
    el.lane.setAttribute("aria-label", `The model as ${all.length} parts. ${state.trip.phase}, trip ${state.trip.step + 1}: ${done} parts done${now ? `, now ${now.label}` : ""}.`);
  }

  #paintTime(state) {
    const { el, lane, colours: c, clock, trace } = this;
    const present = Boolean(lane);
    this.transport.paint(present ? this.#where(state) : trace.ended ? "no token came" : "reading the prompt …", present);
    this.root.querySelectorAll("[data-trip]").forEach((b) => { b.disabled = !lane || lane.trips.length <= Number(b.dataset.trip); });
    el.time.hidden = !present;
    if (!present) return;
    if (this.following) el.scrub.value = el.scrub.max;
    const width = el.time.clientWidth;
    const context = sharpen(el.time, width, time.defaults.height);
    context.drawImage(this.#still(width), 0, 0, width, time.defaults.height);
    time.drawNow(context, lane, state.trip, state.t, width, c);
    el.time.setAttribute("aria-label", `Time of ${count(lane.trips.length)} trips, the longest ${seconds(Math.max(...lane.trips.map((trip) => trip.end - trip.start)))}, and the bytes held meanwhile. ${this.#heldWords(state.t)}.`);
    const words = this.#takeaway();
    if (el.takeaway.textContent !== words) el.takeaway.textContent = words;
    if (!clock.playing && !this.following) return;
    this.#tip(null);
  }

  /** Bars and memory without the playhead, drawn anew only when they change. */
  #still(width) {
    const { lane, trace, colours: c } = this;
    const key = [this.header.run, width, c.neutral, globalThis.devicePixelRatio, lane.trips.length, trace.scalars.size, trace.texts.size].join();
    if (this.stillKey !== key) {
      this.stillKey = key;
      this.stillCanvas = document.createElement("canvas");
      const steps = new Set(lookedAt(trace, lane));
      time.drawStill(sharpen(this.stillCanvas, width, time.defaults.height), lane, { median: medianDecode(lane, Infinity), looked: (trip) => steps.has(trip.step) }, width, c);
    }
    return this.stillCanvas;
  }

  #where(state) {
    const { clock, lane } = this;
    const { trip, op, over } = state;
    if (this.following) return `${trip.phase}: token ${count(trip.step + 1)} has come, ${this.#isLast(trip) ? "the first trips are being looked into" : "the next is being computed"}`;
    const nth = count(trip.step + 1);
    const doing = over ? `${this.trace.ended ? "complete" : "so far"}: ${count(lane.trips.length)} tokens` : state.t < trip.end ? `${trip.phase} for token ${nth}` : `token ${nth} has come`;
    const what = op ? ` · ${placeOf(op.id)}` : trip.opEnds || state.t >= trip.end ? "" : " · not recorded op by op";
    const held = lane.pausedS ? ` · without ${seconds(lane.pausedS)} of pauses` : "";
    return `${doing}${what} · ${seconds(clock.t)} of ${seconds(clock.end)} · ${this.#slowWords()}${held}`;
  }

  /** Whether no token comes after a trip's, as far as can be told before the run says so. */
  #isLast(trip) {
    const { trace, header } = this;
    const looked = trace.at(0)?.memory.length || trace.at(0)?.scalars.looked;
    return Boolean(looked) || trip.step + 1 >= header.spec.max_new_tokens || isSpecial(trip.token.text);
  }

  #slowWords() {
    const slow = this.slow / this.clock.speed;
    if (slow === 1) return "at its own speed";
    return slow > 1 ? `slowed ${Number(slow.toPrecision(2)).toLocaleString("en")}×` : `sped up ${Number((1 / slow).toPrecision(2))}×`;
  }

  /** Bytes held at a moment, in words. */
  #heldWords(t) {
    const point = answerTimeline(this.lane).findLast((p) => p.t <= t);
    if (!point) return "bytes held were not recorded";
    const parts = CATEGORIES.filter((k) => point.held_bytes[k]).map((k) => `${categoryName(k)} ${bytes(point.held_bytes[k])}`);
    return `holds ${bytes(point.total)}: ${parts.join(", ")}${point.looked ? "" : "; temporaries not recorded"}`;
  }

  #takeaway() {
    const { lane, trace, header } = this;
    const first = lane.trips[0];
    const median = medianDecode(lane, Infinity);
    const read = trace.scalars.get("read_bytes_per_token");
    const n = trace.prompt.length;
    const begin = `The prefill takes ${n === 1 ? "the one token" : `all ${count(n)} tokens`} of the prompt through the model at once, in ${seconds(first.end - first.start)}.`;
    if (median === null) return begin;
    const again = header.spec.cache ? `reads every weight again${read ? ` (${bytes(read)})` : ""}` : "reads the whole text again, since nothing of it is kept";
    const stays = header.spec.cache ? " What a trip computes is let go at once; only keys and values stay." : "";
    return `${begin} Each further token is a trip of its own that ${again}: ${seconds(median)} in the middle.${stays}`;
  }

  #paintOdds() {
    const { el, header, order, came, trace, view } = this;
    const one = came ? order[trace.prompt.length + came - 1] : null;
    const key = one ? `${header.run} ${view.row} ${one.trip}` : "none";
    if (el.odds.dataset.key === key) return;
    el.odds.dataset.key = key;
    el.oddsOf.textContent = one ? `how token ${count(one.trip + 1)} was chosen` : "";
    const top = one?.token.top.length;
    el.odds.hidden = !top;
    el.odds.parentElement.style.minHeight = `${110 + 23 * Math.min(20, header.shape?.vocab_size ?? 20)}px`; // the page stays as it is
    el.oddsSaid.textContent = !one ? "Known once the prefill is through." : top ? "" : "Recorded of the first sequence only.";
    if (!top) { el.odds.replaceChildren(); return; }
    const found = odds(one.token, header.spec);
    const nOthers = header.shape ? header.shape.vocab_size - found.rows.length - (found.beyond ? 1 : 0) : null;
    list(el.odds, found, cutWords(header.spec), nOthers, (text) => shown(text, isSpecial(text)).label);
  }

  #paintCache(state) {
    const { el, header, trace, lane, view, colours: c, chosen } = this;
    const { spec } = header;
    const reserved = trace.scalars.get("kv_cache_bytes");
    if (!reserved) return;
    const perToken = reserved / spec.context;
    const nPrompt = trace.prompt.length;
    const held = state?.cached ?? { whole: 0, writing: 0, share: 0 };
    this.slots = stairs.slotsOf({ nPrompt, context: spec.context, maxNew: spec.max_new_tokens, nTrips: lane?.trips.length ?? 0, ended: Boolean(trace.ended) });
    stairs.draw(el.cache, { held, slots: this.slots, perToken, reserved, nPrompt, chosen, hover: view.hover }, c);
    el.cacheOf.textContent = stairs.sumWords(held, perToken, reserved);
    const hovered = view.hover === null ? null : this.order[view.hover];
    el.cacheSaid.textContent = hovered && view.hover < nPrompt + this.came ? `${quoted(hovered.token.text)}: keys and values of ${bytes(perToken)}, in all ${bytes(perToken * (view.hover + 1))} with those before it`
      : spec.cache ? "Each token leaves its keys and values in every layer; later tokens look at them instead of reading the text again."
        : "Without a cache all of it is made anew in every trip and then thrown away.";
    el.cache.setAttribute("aria-label", `KV cache as a staircase: ${el.cacheOf.textContent}. Arrow keys go from token to token.`);
  }

  #paintAttention(state) {
    const { trace, lane, view, header, colours, order } = this;
    if (!state) return;
    const { nPrompt, cache } = this.settings;
    this.attention.paint({ trace, lane, nPrompt, cache, asks: view.asks, texts: order.map(({ token }) => token.text), trip: state.trip, t: state.t, run: header.run }, colours);
  }

  #paintKeys() {
    const { el, colours: c } = this;
    if (el.categories.dataset.theme === c.neutral) return;
    el.categories.dataset.theme = c.neutral;
    const item = (paint, name) => {
      const made = document.createElement("span");
      const box = Object.assign(document.createElement("canvas"), { className: "swatch" });
      const context = sharpen(box, 14, 14);
      paint(context);
      made.append(box, name);
      return made;
    };
    el.categories.replaceChildren(
      ...CATEGORIES.map((category) => item((context) => { context.fillStyle = fill(context, category, c); context.fillRect(0, 0, 14, 14); }, categoryName(category))),
      item((context) => { context.fillStyle = c.forward; context.fillRect(0, 5, 14, 4); }, "looked into op by op, after the last token"),
    );
    el.ramp.style.background = `linear-gradient(90deg, ${c.empty}, ${c.forward})`;
    this.root.style.setProperty("--cache", c.cache);
    this.root.style.setProperty("--forward", c.forward);
  }

  close() {
    this.closed = true;
    clearTimeout(this.hold);
    this.clock.pause();
    this.feed.close();
    this.resized.disconnect();
    this.seen.disconnect();
    this.root.remove();
  }
}
