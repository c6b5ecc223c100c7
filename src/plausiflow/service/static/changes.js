// The changes of an answer: first those that the decision needs, then those along with them.

import { breakable, make } from "./dom.js";
import { asToolbar, showForm } from "./focus.js";
import { isNumber, levelText, same, valueText } from "./format.js";
import { limitText } from "./limits.js";
import { strip } from "./strips.js";

const FEW = 6;

const PURPOSES = { decision: "for the decision", plausibility: "to stay realistic", certainty: "for a clear decision",
  durability: "to last when the model is retrained", tolerance: "to leave room for what is missed" };

/**
 * Return the lists of changes. `view` has the `model`, the values of the row (`factual`), the `histograms` of the
 * wanted outcome by feature, and what a click does: `limit(limit)` holds a feature. Without `limit` there are no controls.
 */
export function changeLists(view, answer) {
  const needed = answer.changes.filter((change) => change.role === "needed");
  const others = answer.changes.filter((change) => change.role !== "needed");
  const items = (changes) => make("ul", { class: "changes" }, changes.map((change) => changeItem(view, answer.values, change)));
  if (!needed.length) {
    const known = others.some((change) => change.serves);
    return [section(known ? "Change together" : "What would change",
      known ? "The decision needs them together, none of them alone." : "", many(others, items, "together"))];
  }
  const along = others.length ? section("Go along to stay realistic", "", many(others, items, "along")) : null;
  return [section("Needed for the decision", "", many(needed, items, "needed")), along];
}

function section(title, note, content) {
  return make("section", { class: "purpose" }, make("h3", null, title), note ? make("p", { class: "small" }, note) : null, content);
}

/** Return a list whose end is folded if it is long. */
function many(changes, items, key) {
  if (changes.length <= FEW + 1) return items(changes);
  return [items(changes.slice(0, FEW)), make("details", { "data-key": `more-${key}` },
    make("summary", null, `${changes.length - FEW} more changes`), items(changes.slice(FEW)))];
}

function changeItem(view, values, change) {
  const name = change.feature, feature = view.model.features.find((one) => one.name === name);
  const [before, after] = [view.factual[name], values[name]];
  const item = make("li", { class: "change", "data-feature": name },
    make("span", { class: "what" }, breakable(name)),
    make("span", { class: "move" }, valueText(feature, before), ...way(feature, before, after), make("mark", null, valueText(feature, after))),
    strip(feature, before, after, view.histograms?.[name]), note(change));
  if (view.limit) item.append(...controls(view, feature, before, after));
  return item;
}

/** Return what a change is for beyond its list, and whether it is unfavourable by itself. */
function note({ serves, role, adverse }) {
  const texts = [role !== "needed" && serves && serves !== "plausibility" ? PURPOSES[serves] ?? `to keep ${serves}` : "",
    adverse ? "unfavourable by itself" : ""].filter(Boolean);
  return texts.length ? make("span", { class: "small aside" }, texts.join("; ")) : null;
}

/** Return the buttons that hold a feature, and the form for bounds of a number. */
function controls(view, feature, before, after) {
  const { name } = feature, up = rise(feature, before, after);
  const button = (text, key, label, onclick, more = {}) => make("button", { type: "button", class: "plain keep",
    "data-key": `${key}-${name}`, "aria-label": label, onclick, ...more }, text);
  const holds = (text, kind) => button(text, kind, limitText({ kind, name }), () => view.limit({ kind, name }));
  const buttons = [holds("Can't change", "lock")];
  if (up > 0) buttons.push(holds("Can't go up", "down"));
  if (up < 0) buttons.push(holds("Can't go down", "up"));
  const form = isNumber(feature) ? boundsForm(view, feature) : null;
  if (form) {
    buttons.push(button("Limit", "limit", `Limit of ${name}`, () => {
      showForm(form.parentElement, form, form.hidden);
      if (!form.hidden) form.elements[0].focus();
    }, { "aria-expanded": "false", "aria-controls": form.id }));
  }
  const bar = asToolbar(make("span", { class: "hold", "aria-label": `Hold ${name}` }, buttons), buttons);
  return form ? [bar, form] : [bar];
}

function boundsForm(view, feature) {
  const { name } = feature, i = view.model.features.indexOf(feature);
  const bound = (side, text, hint) => [make("label", { for: `hold-${i}-${side}` }, text), make("input", { id: `hold-${i}-${side}`, "data-key": `${side}-${name}`,
    type: "number", inputmode: "decimal", step: feature.step || "any", placeholder: valueText(feature, hint) })];
  const [least, most] = [bound("least", "at least", feature.smallest), bound("most", "at most", feature.largest)];
  const problem = make("p", { class: "note wrong", role: "alert" });
  const form = make("form", { class: "bounds", id: `hold-${i}`, "data-key": `bounds-${name}`, hidden: true, novalidate: true }, least, most,
    make("button", { class: "plain" }, "Ask with it"), problem);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const inputs = [least[1], most[1]], bounds = inputs.map((input) => (input.value === "" ? null : Number(input.value)));
    if (inputs.some((input) => input.validity.badInput)) problem.textContent = "This is not a number.";
    else if (bounds[0] === null && bounds[1] === null) problem.textContent = "Enter at least one number.";
    else if (bounds[0] !== null && bounds[1] !== null && bounds[0] > bounds[1]) problem.textContent = "The smallest number is above the largest.";
    else view.limit({ kind: "range", name, bounds });
  });
  return form;
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
