// The text as its tokens: a chip for each, those of the prompt quiet, those of the answer as they come.

/** What a chip says, and how it stands: a token that begins a word keeps its distance by itself. */
export function shown(text, special = false) {
  if (special) return { label: text, kind: "special" };
  if (text === "") return { label: "·", kind: "part" }; // a character needs further tokens
  const visible = (part) => part.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍").replace(/ /g, "␣");
  if (!text.trim()) return { label: visible(text), kind: "space" };
  const word = /^[ \n]/.test(text) ? "word" : "glued";
  const body = text.replace(/^ /, "");
  const [, lead, middle, end] = body.match(/^(\s*)(.*?)(\s*)$/s);
  return { label: visible(lead) + middle.replace(/\n/g, "⏎") + visible(end), kind: word };
}

/** Whether a token is none of the text: where a turn begins or ends. */
export const isSpecial = (text) => /^<\|.*\|>$/.test(text);

/** A token in a sentence. */
export const quoted = (text) => (text === "" ? "part of a character" : `“${shown(text).label}”`);

/**
 * Tokens in their order: [{token, trip, special}]; `trip` counts from 0, null for the prompt's.
 * `row`: which sequence of the batch.
 */
export function inOrder(trace, row = 0) {
  const prompt = trace.prompt.map((token) => ({ token, trip: null }));
  const came = trace.tokens.filter((token) => token.row === row).map((token) => ({ token, trip: token.step }));
  return [...prompt, ...came].map((one) => ({ ...one, special: isSpecial(one.token.text) }));
}

/** The box of chips: a listbox, of which one is chosen. */
export class TokenBox {
  constructor(box, { choose, hover }) {
    this.box = box;
    this.chips = [];
    this.key = null;
    this.told = {};
    const indexOf = (event) => {
      const chip = event.target.closest("[role=option]");
      return chip ? Number(chip.dataset.i) : null;
    };
    box.addEventListener("click", (event) => { const i = indexOf(event); if (i !== null) choose(i); });
    box.addEventListener("pointerover", (event) => { const i = indexOf(event); hover(i, i === null ? null : this.chips[i]); });
    box.addEventListener("pointerleave", () => hover(null, null));
    box.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      const at = this.told.chosen ?? -1;
      const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: this.chips.length - 1 }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      choose(Math.min(Math.max(next, 0), this.chips.length - 1));
    });
  }

  /** Chips for tokens; those that are there already stay. `run` names whose they are. */
  fill(run, list, describe) {
    if (this.key !== run || list.length < this.chips.length) {
      this.key = run;
      this.chips = [];
      this.told = {};
      this.box.replaceChildren();
    }
    for (let i = this.chips.length; i < list.length; i += 1) {
      const { token, trip, special } = list[i];
      const { label, kind } = shown(token.text, special);
      const chip = Object.assign(document.createElement("span"), { textContent: label, id: `token-${i}`, className: `${trip === null ? "prompt" : "came"} ${kind}` });
      chip.setAttribute("role", "option");
      chip.setAttribute("aria-selected", "false");
      chip.setAttribute("aria-label", describe(list[i], i));
      chip.dataset.i = i;
      this.chips.push(chip);
      this.box.append(chip);
      if (token.text.includes("\n") && !special) this.box.append(Object.assign(document.createElement("hr"), { ariaHidden: "true" }));
    }
  }

  /** `n`: how many have come; `chosen`: the one that is framed; `lines(i)`: attention it gets, 0 to 1,
   * or null; `key` changes with those. */
  paint({ n, chosen, lines, key, follow }) {
    const { chips, told } = this;
    if (told.n !== n || told.size !== chips.length) {
      chips.forEach((chip, i) => chip.classList.toggle("coming", i >= n));
    }
    if (told.chosen !== chosen) {
      for (const [i, on] of [[told.chosen, false], [chosen, true]]) {
        if (i === null || i === undefined || !chips[i]) continue;
        chips[i].classList.toggle("chosen", on);
        chips[i].setAttribute("aria-selected", String(on));
      }
      if (chosen === null) this.box.removeAttribute("aria-activedescendant");
      else this.box.setAttribute("aria-activedescendant", `token-${chosen}`);
    }
    if (told.lines !== key || told.size !== chips.length) {
      chips.forEach((chip, i) => {
        const share = lines ? lines(i) : null;
        chip.style.setProperty("--line", share === null ? "0" : String(Math.round(100 * Math.sqrt(share)) / 100));
        chip.classList.toggle("asked", share !== null);
      });
    }
    if (told.n !== n || told.chosen !== chosen || told.size !== chips.length) this.#reveal(follow ? chips[n - 1] : chips[chosen]);
    this.told = { n, chosen, lines: key, size: chips.length };
  }

  #reveal(chip) {
    if (!chip) return;
    const { box } = this;
    const [top, bottom] = [chip.offsetTop - 6, chip.offsetTop + chip.offsetHeight + 6];
    if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
    else if (top < box.scrollTop) box.scrollTop = top;
  }
}
