// How a token was chosen: the likeliest ones with their full probabilities, and which of them the
// settings let take part. Pure readings, and the list that shows them.

import { count, percent } from "./player.js";

/** Whether a probability and what came before it may be drawn from, as core/engine/sampling.py has it. */
function rule({ temperature, top_k, top_p }) {
  if (temperature === 0) return (i) => i === 0;
  return (i, before) => i === 0 || ((!top_k || i < top_k) && !(before >= top_p));
}

/** Why there is a cut, in words; null where all may be drawn. */
export function cutWords({ temperature, top_k, top_p }) {
  if (temperature === 0) return "temperature 0: the likeliest is taken";
  const parts = [top_k ? `top-k ${top_k}` : null, top_p < 1 ? `top-p ${top_p}` : null].filter(Boolean);
  return parts.length ? `${parts.join(" and ")}: drawn among those above` : null;
}

/**
 * Of a token that came: {rows: [{id, text, prob, drawn, allowed}], cut, beyond, tail}. `cut` is how
 * many of the rows take part, null where the cut lies beyond them or there is none; `drawn` beyond
 * the rows is `beyond`; `tail` the probability of all others together.
 */
export function odds(token, spec) {
  const may = rule(spec);
  let before = 0;
  const rows = token.top.map(([id, text, prob], i) => {
    const allowed = may(i, before);
    before += prob;
    return { id, text, prob, drawn: id === token.id, allowed };
  });
  const first = rows.findIndex((row) => !row.allowed);
  const beyond = rows.some((row) => row.drawn) ? null : { id: token.id, text: token.text, prob: token.prob };
  return { rows, cut: first < 0 ? null : first, beyond, tail: Math.max(0, 1 - before - (beyond?.prob ?? 0)) };
}

/** A probability that was recorded as 0 was only too small: a softmax gives none that is. */
const likely = (prob) => percent(prob || 1e-9);

const made = (tag, className, text) => Object.assign(document.createElement(tag), { className, textContent: text });

function line(name, prob, className, title) {
  const li = made("li", className, "");
  const track = made("span", "track", "");
  const bar = made("i", "", "");
  bar.style.width = `${Math.min(100, prob * 100)}%`;
  track.append(bar);
  li.append(made("span", "piece", name), track, made("span", "share", likely(prob)));
  li.title = title;
  return li;
}

/** Fill a list with what was likely; `piece` shows a token's text. */
export function list(box, { rows, cut, beyond, tail }, words, nOthers, piece) {
  const kept = cut === null ? null : rows.slice(0, cut).reduce((sum, row) => sum + row.prob, 0);
  const items = rows.map(({ id, text, prob, drawn, allowed }, i) => {
    const title = `token ${id}: ${likely(prob)} of the full softmax${kept && allowed ? `, ${percent(prob / kept)} among those that take part` : ""}`;
    const li = line(piece(text), prob, `${drawn ? "drawn" : ""} ${allowed ? "" : "out"} ${i + 1 === cut ? "last" : ""}`, title);
    if (drawn) li.lastChild.append(made("b", "", " ◂ chosen"));
    if (i + 1 === cut) li.append(made("em", "", words ?? ""));
    return li;
  });
  if (beyond) {
    const li = line(piece(beyond.text), beyond.prob, "drawn", `token ${beyond.id}, further down`);
    li.lastChild.append(made("b", "", " ◂ chosen"));
    items.push(li);
  }
  const others = nOthers > 0 ? `all ${count(nOthers)} others` : "all others";
  if (nOthers !== 0) items.push(line(others, tail, `tail ${cut === null ? "" : "out"}`, others));
  box.replaceChildren(...items);
}
