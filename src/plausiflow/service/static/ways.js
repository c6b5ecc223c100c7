// Other ways beside the answer that is shown already.

import { same } from "./format.js";

/**
 * Return an explanation of several answers with the `first` one, which people read already, in front. A search for
 * several answers may find it again, or a variant that needs the same changes, which is no other way.
 */
export function otherWays(first, explanation, most) {
  const others = explanation.counterfactuals.filter((answer) => !isSame(answer, first) && needs(answer) !== needs(first));
  const ways = [first, ...others].slice(0, most), best = advantages(ways);
  return { ...explanation, counterfactuals: ways.map((answer, i) => ({ ...answer, advantages: best[i] })) };
}

const isSame = (a, b) => Object.keys(a.values).every((name) => same(a.values[name], b.values[name]));

/** Return the features that the decision needs and which way they go, as text; all changes if none is needed alone. */
function needs({ changes }) {
  const needed = changes.filter(({ role }) => role === "needed");
  const way = ({ feature, from, to }) => `${feature} ${typeof from === "number" && typeof to === "number" ? Math.sign(to - from) : to}`;
  return JSON.stringify((needed.length ? needed : changes).map(way).sort());
}

const MEASURES = [
  ["least cost", ({ cost }) => [cost]],
  ["fewest changes", ({ changes }) => [changes.length]],
  ["most certain", ({ lasting, probability }) => (lasting === undefined ? [probability] : [lasting, probability]).map((share) => share === null ? null : -share)],
];

/** Return what each answer is best at, as the library does: only where another one is worse. */
function advantages(answers) {
  const best = answers.map(() => []);
  for (const [name, measure] of MEASURES) {
    const keys = answers.map(measure);
    if (keys.flat().includes(null)) continue;
    const [least, largest] = [keys.reduce((a, b) => (compare(a, b) <= 0 ? a : b)), keys.reduce((a, b) => (compare(a, b) >= 0 ? a : b))];
    if (compare(least, largest) === 0) continue;
    keys.forEach((key, i) => { if (compare(key, least) === 0) best[i].push(name); });
  }
  return best;
}

/** Compare two lists of numbers from their start. */
function compare(a, b) {
  const place = a.findIndex((value, i) => value !== b[i]);
  return place < 0 ? 0 : a[place] - b[place];
}
