// Rows without an answer: what blocks, and each way out one click away.

import { make, marked } from "./dom.js";
import { percent, wantedText } from "./format.js";

const MOST_TRIED = 6;

/** Return the card of a row without an answer; `ways` are pairs of a text and what a click on it does. */
export function blockedCard(explanation, request, ways) {
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
  if (status === "not_reached" || status === "infeasible") card.append(make("p", { class: "under ways" }, waysOut(ways)));
  return card;
}

const waysOut = (ways) => ways.map(([text, act]) => make("button", { type: "button", class: "plain", onclick: act }, text));

/** Return the limits of a request that people set on the page, those that the reason names first. */
export function ownLimits({ locked, ranges, min_probability: least, confidence }, reason, model) {
  const limits = [
    ...Object.keys(ranges).map((name) => ({ kind: "range", name, named: reason.includes(`Range("${name}"`) })),
    ...locked.map((name) => ({ kind: "lock", name, named: /\block/.test(reason) })),
  ];
  if (least !== undefined) limits.push({ kind: "least", named: false });
  if (model.confidence !== null && confidence !== null) limits.push({ kind: "margin", named: false });
  const named = limits.filter((limit) => limit.named);
  return (named.length ? named : limits).slice(0, MOST_TRIED);
}

/** Return the same parameters without a limit. */
export function without(parameters, { kind, name }) {
  const { min_probability: least, ...rest } = parameters;
  if (kind === "least") return rest;
  if (kind === "margin") return { ...parameters, confidence: null };
  if (kind === "lock") return { ...parameters, locked: parameters.locked.filter((one) => one !== name) };
  return { ...parameters, ranges: Object.fromEntries(Object.entries(parameters.ranges).filter(([one]) => one !== name)) };
}

export function limitText({ kind, name }) {
  if (kind === "lock") return `Let ${name} change`;
  if (kind === "range") return `Remove the limit of ${name}`;
  return kind === "least" ? "Without the minimum probability" : "Without the plausibility margin";
}

export function toSentence(text) {
  const closed = /[.!?…]$/.test(text) ? text : `${text}.`;
  return closed.charAt(0).toUpperCase() + closed.slice(1);
}
