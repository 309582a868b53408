// A run as it comes in: in a message, over a stream, after a lost connection, or not at all.

import assert from "node:assert/strict";
import test from "node:test";
import { Feed } from "../../components/static/feed.js";
import { shipped } from "./runs/answers.js";

const { lines, arrays } = shipped("sum");

/** What a browser's EventSource looks like to its owner. */
class Source {
  static made = [];
  static CLOSED = 2;
  constructor(url) {
    Object.assign(this, { url: String(url), readyState: 1 });
    Source.made.push(this);
  }
  say(from, to, arraysFrom = 0, bytes = arrays) {
    this.onmessage({ data: JSON.stringify({ events: lines.slice(from, to), arrays_from: arraysFrom, arrays: Buffer.from(bytes).toString("base64") }) });
  }
  fail(readyState) { this.readyState = readyState; this.onerror(); }
  close() { this.closed = true; }
}

function feed() {
  Source.made = [];
  globalThis.EventSource = Source;
  globalThis.document = { baseURI: "http://host/path/" };
  const heard = [];
  const made = new Feed({
    more: (opened) => heard.push(["more", opened]), lost: () => heard.push(["lost"]),
    poll: () => heard.push(["poll"]), gone: (run) => heard.push(["gone", run]),
  });
  return { made, heard };
}

const none = new Uint8Array(0);
const whole = { run: "a/1", stream: null, axis: "step" };
const live = { run: "a/1", stream: "./api/runs/a/1" };

test("a run in a message is there at once, and is opened", () => {
  const { made, heard } = feed();
  assert.equal(made.receive(whole, lines, arrays), true);
  assert.deepEqual(heard, [["more", true]]);
  assert.equal(made.trace.axis, "step");
  assert.equal(made.trace.ended.status, "finished");
  assert.equal(Source.made.length, 0);
});

test("the same run again is more of it; another one is opened", () => {
  const { made, heard } = feed();
  made.receive(whole, lines, arrays);
  assert.equal(made.receive(whole, lines, arrays), false);
  made.receive({ ...whole, run: "a/2" }, lines, arrays);
  assert.deepEqual(heard.map(([, opened]) => opened), [true, false, true]);
});

test("a live run comes over its stream, relative to the page", () => {
  const { made, heard } = feed();
  made.receive(live, none, none);
  assert.deepEqual(heard, []);
  assert.equal(Source.made[0].url, "http://host/path/api/runs/a/1");
  const cut = lines.indexOf("\n", 2000) + 1;
  Source.made[0].say(0, cut);
  assert.equal(made.trace.ended, null);
  assert.equal(made.open, true);
  Source.made[0].say(cut, lines.length, arrays.length, none);
  assert.equal(made.trace.ended.status, "finished");
  assert.equal(made.open, false);
  assert.deepEqual(heard, [["more", false], ["more", false]]);
});

test("a message about a stream that is open does not open it again", () => {
  const { made } = feed();
  made.receive(live, none, none);
  made.receive(live, none, none);
  assert.equal(Source.made.length, 1);
});

test("what was streamed to its end is kept when the page sends the whole run", () => {
  const { made, heard } = feed();
  made.receive(live, none, none);
  Source.made[0].say(0, lines.length);
  const { trace } = made;
  made.receive(whole, lines, arrays);
  assert.equal(made.trace, trace);
  assert.equal(heard.length, 1);
});

test("a lost connection is told, and found again", () => {
  const { made, heard } = feed();
  made.receive(live, none, none);
  Source.made[0].say(0, lines.indexOf("\n") + 1);
  Source.made[0].fail(0);
  assert.equal(made.isLost, true);
  assert.deepEqual(heard.at(-1), ["lost"]);
  Source.made[0].say(lines.indexOf("\n") + 1, lines.length);
  assert.equal(made.isLost, false);
});

test("a stream that never said a word is not there: the page is asked to poll", () => {
  const { made, heard } = feed();
  made.receive(live, none, none);
  Source.made[0].fail(Source.CLOSED);
  assert.deepEqual(heard, [["poll"], ["lost"]]);
  assert.equal(made.open, false);
});

test("one that ended after some words is a run that is gone", () => {
  const { made, heard } = feed();
  made.receive(live, none, none);
  Source.made[0].say(0, lines.indexOf("\n") + 1);
  Source.made[0].fail(Source.CLOSED);
  assert.deepEqual(heard.slice(1), [["gone", "a/1"], ["lost"]]);
});

test("what an old stream says after another run was opened is not heard", () => {
  const { made, heard } = feed();
  made.receive(live, none, none);
  made.receive({ run: "a/2", stream: "./api/runs/a/2" }, none, none);
  assert.equal(Source.made[0].closed, true);
  Source.made[0].fail(Source.CLOSED);
  assert.deepEqual(heard, []);
});

test("news are what the page does not know, once", () => {
  const { made } = feed();
  made.receive(whole, lines, arrays);
  assert.equal(made.news({ n_recorded: 0, n_states: made.trace.nStates, ended: true }), null);
  assert.ok(made.news({ n_recorded: 0, n_states: 0, ended: false }));
  assert.equal(made.news({ n_recorded: 0, n_states: 0, ended: false }), null);
});
