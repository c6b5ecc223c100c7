// What people hold on the page: features that cannot change, that cannot go one way, or that have bounds.
// A limit is { kind, name, bounds }; the kinds are "lock", "up" (cannot go down), "down" (cannot go up) and "range".

import { valueText } from "./format.js";

export const KINDS = ["lock", "up", "down", "range"];

/** Return the parameters of a request with these limits. */
export function parametersOf(limits) {
  const names = (kind) => limits.filter((limit) => limit.kind === kind).map((limit) => limit.name);
  const ranges = limits.filter(({ kind }) => kind === "range").map(({ name, bounds }) => [name, bounds]);
  return { locked: names("lock"), increasing: names("up"), decreasing: names("down"), ranges: Object.fromEntries(ranges) };
}

/** Return a limit as text, such as "income can't go up". */
export function limitText({ kind, name, bounds }, model) {
  if (kind === "lock") return `${name} can't change`;
  if (kind === "up") return `${name} can't go down`;
  if (kind === "down") return `${name} can't go up`;
  if (kind === "least") return "the minimum probability";
  if (kind === "margin") return "the plausibility margin";
  const feature = model.features.find((one) => one.name === name), [low, high] = bounds.map((one) => one !== null && valueText(feature, one));
  if (low === false) return `${name} at most ${high}`;
  return high === false ? `${name} at least ${low}` : `${name} from ${low} to ${high}`;
}

/** Return what a click that removes a limit does. */
export function releaseText({ kind, name }) {
  if (kind === "lock") return `Let ${name} change`;
  if (kind === "up") return `Let ${name} go down`;
  if (kind === "down") return `Let ${name} go up`;
  if (kind === "range") return `Remove the limit of ${name}`;
  return kind === "least" ? "Leave out the minimum probability" : "Leave out the plausibility margin";
}

/** Return whether a change from one value to another breaks a limit. */
export function breaks({ kind, name, bounds }, model, before, after) {
  const [from, to] = [before[name], after[name]];
  if (kind === "lock") return from !== to;
  if (kind === "range") return (bounds[0] !== null && to < bounds[0]) || (bounds[1] !== null && to > bounds[1]);
  if (kind !== "up" && kind !== "down") return true;
  const { levels } = model.features.find((one) => one.name === name), rank = (value) => (levels.length ? levels.indexOf(value) : value);
  return kind === "up" ? rank(to) < rank(from) : rank(to) > rank(from);
}
