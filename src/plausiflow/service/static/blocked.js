// Rows without an answer: what blocks, the smallest set of limits to leave out, and its answer one click away.

import { inShort } from "./changes.js";
import { make, marked } from "./dom.js";
import { formatFigure, listed, percent, rounded, wantedText } from "./format.js";
import { breaks, releaseText } from "./limits.js";

const MOST_TRIED = 24, MOST_SHOWN = 4, SHORT = 4;

/**
 * Return the card of a row without an answer. `ways` is null while ways out are looked for, else a list of the limits
 * to leave out and the answer without them; `release(limits)` takes one.
 */
export function blockedCard(model, explanation, request, limits, ways, release) {
  const { status, reason } = explanation, wanted = wantedText(request.target);
  const card = make("div", { class: "panel card without", "data-status": status });
  if (status === "already") {
    const share = explanation.probability === null ? "" : ` (${percent(explanation.probability)})`;
    card.append(make("p", null, `The model already says ${wanted}${share}.`));
    return card;
  }
  const title = { infeasible: "What blocks", not_reached: "Not in time", invalid_input: "The row cannot be read" }[status] ?? status;
  card.append(make("h3", null, title), make("p", { class: "reason" }, ...marked(toSentence(reason))));
  if (explanation.proof) card.append(make("p", { class: "proof" }, ...marked(`${explanation.proof}.`)));
  if (status === "infeasible") card.append(waysOut(model, request, limits, ways, release));
  return card;
}

function waysOut(model, request, limits, ways, release) {
  if (!limits.length) return make("p", { class: "small" }, "You hold nothing on this page; the rules of the model or the data block.");
  if (ways === null) return make("p", { class: "quiet skeleton" }, "Looking for the smallest set of your limits that blocks …");
  if (!ways.length) return make("p", { class: "small" }, "Your limits do not block: without all of them, no answer was found either.");
  const [{ left }] = ways, many = left.length > 1;
  const title = many ? `No single limit blocks, but these ${left.length} together. Without them:` : "One of your limits blocks. Without it:";
  return make("div", { class: "ways" }, make("p", null, title), make("ul", null, ways.slice(0, MOST_SHOWN).map((one) => wayOut(model, request, one, release))));
}

function wayOut(model, request, { left, answer }, release) {
  const act = left.map((limit) => releaseText(limit)).map((text, i) => (i ? text.charAt(0).toLowerCase() + text.slice(1) : text));
  const then = answer.probability === null ? `${model.outcome} ${formatFigure(answer.prediction ?? null)}` : `${wantedText(request.target)}, ${rounded(answer.probability)}`;
  return make("li", { class: "way-out" },
    make("button", { type: "button", class: "plain", "data-key": `out-${left.map(({ kind, name }) => kind + name).join("-")}`,
      onclick: () => release(left) }, listed(act)),
    make("span", null, `→ ${then}: ${inShort(model, answer, SHORT)}`));
}

/**
 * Find the smallest sets of limits without which there is an answer. `trial(left)` resolves to the answer without some
 * limits, or null. All sets of a size are tried together, the small ones first; if there are too many, only those of
 * limits that the answer without any limit breaks.
 */
export async function smallestSets(limits, trial, model, factual) {
  const freest = limits.length ? await trial(limits) : null;
  if (!freest) return [];
  const broken = limits.filter((limit) => breaks(limit, model, factual, freest.values));
  const whole = { left: broken.length ? broken : limits, answer: freest };
  for (let size = 1; size <= Math.max(1, whole.left.length - 1); size += 1) {
    let sets = subsets(limits, size);
    if (sets.length > MOST_TRIED) sets = subsets(broken, size).slice(0, MOST_TRIED);
    const answers = await Promise.all(sets.map((left) => trial(left)));
    const found = sets.map((left, i) => ({ left, answer: answers[i] })).filter(({ answer }) => answer);
    if (found.length) return found;
  }
  return [whole];
}

function subsets(items, size) {
  if (size === 0) return [[]];
  return items.flatMap((item, i) => subsets(items.slice(i + 1), size - 1).map((rest) => [item, ...rest]));
}

export function toSentence(text) {
  const closed = /[.!?…]$/.test(text) ? text : `${text}.`;
  return closed.charAt(0).toUpperCase() + closed.slice(1);
}
