// A run in the browser: the same two files a run folder holds, read as far as they are whole.
// Shipped, finished and live runs all come through `Trace.append`.

const TYPES = {
  u1: [Uint8Array, 1], i1: [Int8Array, 1], i4: [Int32Array, 4],
  f4: [Float32Array, 4], f8: [Float64Array, 8],
};
const NOT_FINITE = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };
const TOLD = /^(ops|piece|weights_sha256_.*|text_\d+)$/; // samples that are no picture of a moment
const number = (v) => (typeof v === "string" ? NOT_FINITE[v] : v);

/** Message of the page -> {header, events, arrays}: u32 header length, JSON header, two files. */
export function unpack(message) {
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  const length = view.getUint32(0, true);
  const text = new TextDecoder();
  const header = JSON.parse(text.decode(message.subarray(4, 4 + length)));
  const start = 4 + length;
  const events = message.subarray(start, start + header.events_bytes);
  return { header, events, arrays: message.subarray(start + header.events_bytes) };
}

/** Numbers of a recorded array: `values` as stored, `at(i)` in their own unit. */
function decodeArray(record, bytes) {
  const [Type, size] = TYPES[record.dtype];
  const n = record.shape.reduce((a, b) => a * b, 1);
  const end = record.offset + n * size;
  if (end > bytes.length) return null;
  const values = new Type(bytes.slice(record.offset, end).buffer); // a copy is aligned
  const quantised = record.low !== undefined;
  const low = number(record.low), scale = (number(record.high) - low) / 255;
  return {
    step: record.step, op: record.op, role: record.role, shape: record.shape, values, quantised,
    low: record.low, high: record.high,
    at: quantised ? (i) => low + values[i] * scale : (i) => values[i],
  };
}

export class Trace {
  /** `axis`: what losses are drawn against, "epoch" or "step". */
  constructor(axis = "epoch") {
    this.axis = axis;
    this.bytes = new Uint8Array(0); // arrays file so far, in a buffer that grows by doubling
    this.size = 0;
    this.started = null;
    this.ended = null;
    this.paused = false;
    this.nStates = 0; // how often the run said whether it is paused: once when it begins
    this.frames = []; // {step, epoch, train_loss, held_out_loss, ..., arrays: Map, samples: [{name, text}]}
    this.recorded = []; // {step, spans, memory, scalars, arrays: Map}, in order
    this.constants = new Map(); // "op role" -> array, recorded once
    this.nTrain = 0;
    this.prompt = []; // of an answer: its tokens, and those that came
    this.tokens = [];
    this.texts = new Map(); // name -> what the run told under it, in order: hashes, pieces, answers
    this.scalars = new Map(); // name -> the last value of all
    this.open = new Map(); // steps being recorded
    this.text = new TextDecoder();
    this.rest = "";
  }

  /** More of both files; `arraysFrom` is where these array bytes stand in their file. */
  append(lines, arrays, arraysFrom = this.size) {
    this.#grow(arraysFrom, arrays);
    const parts = (this.rest + (typeof lines === "string" ? lines : this.text.decode(lines))).split("\n");
    this.rest = parts.pop();
    for (const [i, line] of parts.entries()) {
      if (this.#take(JSON.parse(line))) continue;
      this.rest = [...parts.slice(i), this.rest].join("\n"); // until its array bytes are there
      break;
    }
    return this;
  }

  #grow(from, arrays) {
    const size = from + arrays.length;
    if (size > this.bytes.length) {
      const larger = new Uint8Array(Math.max(size, this.bytes.length * 2));
      larger.set(this.bytes.subarray(0, this.size));
      this.bytes = larger;
    }
    this.bytes.set(arrays, from);
    this.size = Math.max(this.size, size);
  }

  #take(r) {
    if (r.type === "Started") this.started = r;
    else if (r.type === "Ended") this.ended = r;
    else if (r.type === "Token") (r.phase === "prompt" ? this.prompt : this.tokens).push(r);
    else if (r.type === "Sample") this.#sample(r);
    else if (r.type === "Span") this.#step(r.step).spans.push(r);
    else if (r.type === "Memory") this.#step(r.step).memory.push(r);
    else if (r.type === "Scalar") this.#scalar(r);
    else if (r.type === "Array") {
      const array = decodeArray(r, this.bytes.subarray(0, this.size));
      if (!array) return false;
      this.#array(array);
    }
    return true;
  }

  #step(step) {
    if (!this.open.has(step)) {
      this.open.set(step, { step, spans: [], memory: [], scalars: {}, arrays: new Map() });
    }
    return this.open.get(step);
  }

  /** What was recorded of a step or trip so far: {step, spans, memory, scalars, arrays}, or null. */
  at(step) {
    return this.recorded.find((r) => r.step === step) ?? this.open.get(step) ?? null;
  }

  /** What a model in training wrote belongs to a frame; all else to the run. */
  #sample(r) {
    if (this.frames.length && !TOLD.test(r.name)) this.frames.at(-1).samples.push(r);
    else this.texts.set(r.name, [...(this.texts.get(r.name) ?? []), r.text]);
  }

  #scalar(r) {
    const value = number(r.value);
    this.scalars.set(r.name, value);
    if (r.name === "paused") {
      this.paused = value === 1;
      this.nStates += 1;
    }
    else if (r.name === "n_train") this.nTrain = value;
    else if (r.name === "epoch") this.frames.push({ step: r.step, epoch: value, arrays: new Map(), samples: [] });
    else if (this.frames.length && /^(train|held_out)_|^loss_scale$/.test(r.name)) this.frames.at(-1)[r.name] = value;
    else {
      const recorded = this.#step(r.step);
      recorded.scalars[r.name] = value;
      if (r.name === "recorded_step_s") {
        this.open.delete(r.step);
        this.recorded.push(recorded);
      }
    }
  }

  #array(a) {
    const frame = this.frames.at(-1);
    if (["boundary", "frame_weight", "answers"].includes(a.role)) {
      if (a.op.startsWith("input.")) this.constants.set(`${a.op} ${a.role}`, a);
      else frame.arrays.set(`${a.op} ${a.role}`, a);
    } else if (["points", "labels", "images"].includes(a.role)) this.constants.set(`${a.op} ${a.role}`, a);
    else this.#step(a.step).arrays.set(`${a.op} ${a.role}`, a);
  }

  /** The frame shown at a step: the last at or before it that has pictures, where any has. */
  frameAt(step) {
    let found = null;
    const pictured = this.frames.some((f) => f.arrays.size);
    for (const frame of this.frames) {
      if (frame.step > step && found) break;
      if (pictured ? frame.arrays.has("head boundary") || frame.arrays.has("head answers") : frame.held_out_loss !== undefined) found = frame;
    }
    return found;
  }

  /** What the model wrote when it was last asked to, at or before a step. */
  samplesAt(step) {
    return this.frames.findLast((f) => f.samples.length && f.step <= step)?.samples ?? [];
  }

  recordedAt(step) {
    return this.recorded.find((r) => r.step === step) ?? this.recorded.at(-1) ?? null;
  }
}
