// The changes of an answer: first those that the decision needs, then those along with them.

import { breakable, draw, make } from "./dom.js";
import { isNumber, levelText, same, valueText } from "./format.js";

const FEW = 6;

const PURPOSES = { decision: "for the decision", plausibility: "to stay realistic", certainty: "for a clear decision",
  durability: "to last when the model is retrained", tolerance: "to leave room for what is missed" };

/** Return the lists of changes; `onKeep(feature)` is called when a feature cannot change. */
export function changeLists(model, factual, answer, onKeep) {
  const needed = answer.changes.filter((change) => change.role === "needed");
  const others = answer.changes.filter((change) => change.role !== "needed");
  const items = (changes) => make("ul", { class: "changes" },
    changes.map((change) => changeItem(model, factual, answer.values, change, onKeep)));
  if (!needed.length) {
    const known = others.some((change) => change.serves);
    return [section(known ? "Change together" : "What would change",
      known ? "The decision needs them together, none of them alone." : "", many(others, items))];
  }
  const along = others.length
    ? section("Go along to stay realistic", "", many(others, items)) : null;
  return [section("Needed for the decision", "", many(needed, items)), along];
}

function section(title, note, content) {
  return make("section", { class: "purpose" }, make("h3", null, title), note ? make("p", { class: "small" }, note) : null, content);
}

/** Return a list whose end is folded if it is long. */
function many(changes, items) {
  if (changes.length <= FEW + 1) return items(changes);
  return [items(changes.slice(0, FEW)),
    make("details", null, make("summary", null, `${changes.length - FEW} more changes`), items(changes.slice(FEW)))];
}

function changeItem(model, factual, values, change, onKeep) {
  const name = change.feature, feature = model.features.find((one) => one.name === name);
  const [before, after] = [factual[name], values[name]];
  const keep = onKeep && make("button", { type: "button", class: "plain keep", "aria-label": `${name} can't change`,
    onclick: () => onKeep(name) }, "Can't change");
  return make("li", { class: "change", "data-feature": name },
    make("span", { class: "what" }, breakable(name)),
    make("span", { class: "move" }, valueText(feature, before), ...way(feature, before, after), make("mark", null, valueText(feature, after))),
    strip(feature, before, after), keep ?? null, note(change));
}

/** Return what a change is for beyond its list, and whether it is unfavourable by itself. */
function note({ serves, role, adverse }) {
  const texts = [role !== "needed" && serves && serves !== "plausibility" ? PURPOSES[serves] ?? `to keep ${serves}` : "",
    adverse ? "unfavourable by itself" : ""].filter(Boolean);
  return texts.length ? make("span", { class: "small aside" }, texts.join("; ")) : null;
}

/** Draw where a number was and where it would be, in the range of training rows. */
function strip(feature, before, after) {
  const { smallest, largest } = feature, span = largest - smallest;
  if (!isNumber(feature) || before === null || after === null || !(span > 0)) return make("span", { class: "strip" });
  const x = (value) => `${(4 + 92 * Math.min(1, Math.max(0, (value - smallest) / span))).toFixed(2)}%`;
  return draw("svg", { class: "strip", "aria-hidden": "true" },
    draw("line", { class: "track", x1: "4%", x2: "96%", y1: "50%", y2: "50%" }),
    draw("line", { class: "moved", x1: x(before), x2: x(after), y1: "50%", y2: "50%" }),
    draw("circle", { class: "now", cx: x(before), cy: "50%", r: 4 }),
    draw("circle", { class: "then", cx: x(after), cy: "50%", r: 5 }));
}

/** Return the direction of a change, as a sign and as text. */
function way(feature, before, after) {
  const up = rise(feature, before, after);
  const [sign, name] = up > 0 ? ["▲", "up to"] : up < 0 ? ["▼", "down to"] : ["◆", "becomes"];
  return [make("span", { class: "way", "aria-hidden": "true" }, sign), make("span", { class: "hidden" }, ` ${name} `)];
}

function rise(feature, before, after) {
  if (before === null || after === null) return 0;
  if (isNumber(feature)) return after - before;
  if (feature.kind !== "ordered") return 0;
  const [from, to] = [before, after].map((level) => feature.levels.findIndex((own) => same(own, level)));
  return from < 0 || to < 0 ? 0 : to - from;
}

/** Return the changes of an answer in one line of text, at most so many. */
export function inShort(model, answer, most) {
  const ordered = [...answer.changes].sort((a, b) => (b.role === "needed") - (a.role === "needed"));
  const texts = ordered.slice(0, most).map(({ feature: name, to }) => {
    const feature = model.features.find((one) => one.name === name);
    return `${name} ${feature ? valueText(feature, to) : levelText(to)}`;
  });
  const more = ordered.length - texts.length;
  return texts.join(", ") + (more > 0 ? ` and ${more} more` : "");
}
