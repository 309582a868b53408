// Tokens as chips: what each says, and in which order they stand.

import assert from "node:assert/strict";
import test from "node:test";
import { inOrder, quoted, shown } from "../../components/static/tokens.js";
import { NAMES, answer, shipped } from "./runs/answers.js";

test("no chip is empty: white space is visible, part of a character is a dot", () => {
  const table = [
    [" ", "␣", "space"], ["\n", "⏎", "space"], ["\n\n", "⏎⏎", "space"], ["  \n", "␣␣⏎", "space"], ["\t", "⇥", "space"], ["\r\n", "␍⏎", "space"], ["", "·", "part"],
  ];
  for (const [text, label, kind] of table) assert.deepEqual(shown(text), { label, kind });
});

test("a word keeps its distance by itself; what is glued to the one before does not", () => {
  assert.deepEqual(shown(" sun"), { label: "sun", kind: "word" });
  assert.deepEqual(shown("'s"), { label: "'s", kind: "glued" });
  assert.deepEqual(shown("sun"), { label: "sun", kind: "glued" });
});

test("white space at the ends of a token is visible, inside it is itself", () => {
  assert.equal(shown(".\n\n").label, ".⏎⏎");
  assert.equal(shown("  return x").label, "␣return x");
  assert.equal(shown(" a\nb ").label, "a⏎b␣");
});

test("a special token keeps its name", () => {
  assert.deepEqual(shown("<|im_end|>", true), { label: "<|im_end|>", kind: "special" });
  const trace = answer();
  trace.prompt[0].text = "<|im_start|>";
  assert.deepEqual(inOrder(trace).map((one) => one.special), [true, false, false, false, false, false]);
});

test("in a sentence a token stands in quotes, and one without text is named", () => {
  assert.deepEqual([quoted(" sun"), quoted("\n"), quoted("")], ["“sun”", "“⏎”", "part of a character"]);
});

test("the prompt comes first, then what the trips gave, each sequence by itself", () => {
  const trace = answer({ nPrompt: 2, rows: 2 });
  for (const row of [0, 1]) {
    const order = inOrder(trace, row);
    assert.deepEqual(order.map((one) => one.trip), [null, null, 0, 1, 2]);
    assert.ok(order.slice(2).every(({ token }) => token.row === row));
  }
});

test("the chips of the shipped answers spell prompt and answer", () => {
  for (const name of NAMES) {
    const { trace, spec } = shipped(name);
    const text = inOrder(trace).map(({ token }) => token.text).join("");
    assert.equal(text, spec.prompt + trace.texts.get("text_0")[0]);
  }
});
