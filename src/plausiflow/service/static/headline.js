// The answer in one line: the decision now, the decision then.

import { formatFigure, levelText, rounded, wantedText } from "./format.js";

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Return the decision about a row as text; `wanted` is the probability of the target. */
function decided(model, { predicted, wanted, value }, target) {
  if (!model.outcomes.length) return typeof value === "number" ? `${capital(model.outcome)} ${formatFigure(value)}` : capital(model.outcome);
  const name = capital(levelText(predicted));
  if (wanted === null || wanted === undefined) return name;
  // With more than two outcomes the share of the target says nothing about the predicted one.
  if (model.outcomes.length > 2 && levelText(predicted) !== levelText(target)) return `${name} (${levelText(target)} ${rounded(wanted)})`;
  return `${name}, ${rounded(wanted)}`;
}

/** Return the headline of an explanation and of one of its answers, or of a row that waits for its answer. */
export function headline(model, now, target, status, answer) {
  const start = decided(model, now, target), wanted = wantedText(target);
  if (answer) {
    const then = model.outcomes.length ? `${wanted}, ${rounded(answer.probability)}` : formatFigure(answer.prediction ?? null);
    return `${start} → would be ${then}, if …`;
  }
  if (status === "already") return `${start}. Nothing needs to change.`;
  if (status === "waiting") return `${start} → ${wanted}, if …`;
  if (status === "open") return `${start}.`;
  if (status === "infeasible") return `${start} → no realistic way to ${wanted} was found.`;
  return `${start} → no answer.`;
}

const SOURCES = {
  given: " (the favourable outcome of this service)",
  name: " (a guess from its name; choose another one under “Edit values and options”)",
  order: " (a guess, because it is the second of two; choose another one under “Edit values and options”)",
};

/** Return what is asked for and why. */
export function askedText(model, target) {
  if (target === null) return `Which ${model.outcome} is favourable is not known. Choose it under “Edit values and options”.`;
  const { outcome, source } = model.favourable, share = model.outcomes.length ? "Percentages are probabilities of it. " : "";
  const why = source && JSON.stringify(outcome) === JSON.stringify(target) ? SOURCES[source] : "";
  return `Asked for: ${model.outcome} ${wantedText(target)}${why}. ${share}`.trim();
}
