// Other ways beside the answer that is shown already.

import { same } from "./format.js";

/**
 * Return an explanation of several answers with the `first` one, which people read already, in front. A search for
 * several answers may find it again, or a variant that needs the same changes, which is no other way.
 */
export function otherWays(first, explanation, most) {
  const others = explanation.counterfactuals.filter((answer) => !isSame(answer, first) && needs(answer) !== needs(first));
  return { ...explanation, counterfactuals: [first, ...others].slice(0, most) };
}

const isSame = (a, b) => Object.keys(a.values).every((name) => same(a.values[name], b.values[name]));

/** Return the features that the decision needs and which way they go, as text; all changes if none is needed alone. */
function needs({ changes }) {
  const needed = changes.filter(({ role }) => role === "needed");
  const way = ({ feature, from, to }) => `${feature} ${typeof from === "number" && typeof to === "number" ? Math.sign(to - from) : to}`;
  return JSON.stringify((needed.length ? needed : changes).map(way).sort());
}
