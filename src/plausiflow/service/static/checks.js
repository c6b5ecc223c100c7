// How sure an answer is: the independent checks, the retrained models and the proof, in words.

import { make, marked } from "./dom.js";
import { percent } from "./format.js";

/** Return the result of the independent checks: a level, a sign and a short text. */
export function checksOf(answer, model) {
  const { judged } = answer, count = model.judges;
  if (judged === null || judged === undefined || !count) {
    return { level: "unknown", sign: "–", text: "not checked independently" };
  }
  const passed = Math.round(judged * count), share = `${passed} of ${count} checks`;
  if (passed === count) return { level: "sure", sign: "✓", text: share };
  if (2 * passed > count) return { level: "unsure", sign: "!", text: share };
  return { level: "unsure", sign: "!", text: `doubtful: ${share}` };
}

/** Return the badge of an answer; only an answer that all independent checks accept gets the good one. */
export function badge(answer, explanation, model) {
  if (explanation.status === "relaxed") return make("span", { class: "verdict unsure" }, "≈ not realistic enough");
  const { level, sign, text } = checksOf(answer, model);
  return make("span", { class: `verdict ${level}` }, `${sign} ${text}`);
}

/** Return the lines that say how sure an answer is. */
export function howSure(answer, explanation, model) {
  const { level } = checksOf(answer, model), lines = [make("p", null, checkSentence(answer, model))];
  if (typeof answer.lasting === "number") lines.push(make("p", null, lastingSentence(answer.lasting)));
  if (explanation.proof) lines.push(make("p", { class: "proof" }, ...marked(`${explanation.proof}.`)));
  return make("div", { class: `sure-lines ${level}` }, lines);
}

function checkSentence({ judged }, { judges: count }) {
  if (judged === null || judged === undefined || !count) {
    return "This explainer has no independent checks: nothing but the search itself says that the changed row is realistic.";
  }
  const passed = Math.round(judged * count), checks = "models of the data that took no part in the search";
  if (passed === count) return `All ${count} independent checks (${checks}) accept the changed row as realistic.`;
  const most = 2 * passed > count ? "Be careful with it." : "It is doubtful whether such a row exists.";
  return `${passed || "None"} of ${count} independent checks (${checks}) ${passed === 1 ? "accepts" : "accept"} the changed row as realistic. ${most}`;
}

function lastingSentence(share) {
  const most = share === 1 ? "All" : percent(share);
  return `${most} of the retrained models that took no part in the search still decide so.`;
}
