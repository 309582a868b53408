// A run as it comes in: whole in a message, or over server-sent events; either way into one Trace.

import { Trace } from "./trace.js";

export class Feed {
  /** `more(opened)`: the trace has grown, or is another run's; `lost`: the connection is, for now;
   * `poll`: this host has no stream; `gone(run)`: the run is no longer kept. */
  constructor({ more, lost = () => {}, poll = () => {}, gone = () => {} }) {
    Object.assign(this, { more, lost, poll, gone });
    this.run = null;
    this.trace = new Trace();
    this.told = null; // the news that the page was told last
  }

  /** What the page says of a run; `axis` as for Trace. */
  receive({ run, stream, axis }, events, arrays) {
    const same = run === this.run;
    if (!same) {
      this.close();
      Object.assign(this, { run, axis, trace: new Trace(axis), streamed: false, heard: false, told: null });
    }
    if (stream) this.#connect(stream, !same);
    else if (!same || !this.trace.ended || !this.streamed) {
      this.close();
      this.trace = new Trace(axis).append(events, arrays, 0);
      this.more(!same);
    }
    return !same;
  }

  #connect(url, fresh) {
    if ((this.source && this.url === url) || (!fresh && this.trace.ended)) return;
    this.close();
    this.url = url;
    this.streamed = true;
    this.trace = new Trace(this.axis);
    const source = new EventSource(new URL(url, document.baseURI));
    this.source = source;
    source.onmessage = ({ data }) => {
      const part = JSON.parse(data);
      const raw = atob(part.arrays);
      this.trace.append(part.events, Uint8Array.from(raw, (ch) => ch.charCodeAt(0)), part.arrays_from);
      this.heard = true;
      this.isLost = false;
      if (this.trace.ended) this.close();
      this.more(false);
    };
    source.onerror = () => {
      if (source !== this.source) return;
      this.isLost = true;
      if (source.readyState === EventSource.CLOSED) {
        this.close();
        // Never a word: this host has no stream. After some: the run is gone, which the page can see.
        if (this.heard) this.gone(this.run);
        else this.poll();
      }
      this.lost();
    };
  }

  /** Whether more may come over the wire. */
  get open() { return Boolean(this.source); }

  /** What the page does not know of yet, in words that change with it; null if there is nothing new
   * or it was told. `known`: {n_recorded, n_states, n_tokens, ended}, what the page knows. */
  news(known) {
    const { trace } = this;
    const now = `${trace.nStates} ${trace.recorded.length} ${trace.ended?.status ?? ""}`;
    const more = trace.recorded.length > (known.n_recorded ?? 0) || trace.nStates > (known.n_states ?? 0)
      || (trace.ended && !known.ended);
    if (!more || now === this.told) return null;
    this.told = now;
    return now;
  }

  close() {
    this.source?.close();
    this.source = this.url = null;
  }
}
