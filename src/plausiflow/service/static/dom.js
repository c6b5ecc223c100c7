// Elements of the page. Text is always inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  locked: "M5 9V6.5a4 4 0 0 1 8 0V9m-9 0h10v7H4z",
  open: "M5 9V6.5a4 4 0 0 1 7.7-1.5M4 9h10v7H4z",
  range: "M2 9h14M2 5v8m14-8v8M6 6.5 3.5 9 6 11.5m6-5L14.5 9 12 11.5",
};

export function make(tag, attributes, ...inside) {
  return fill(document.createElement(tag), attributes, inside);
}

export function draw(tag, attributes, ...inside) {
  return fill(document.createElementNS(SVG, tag), attributes, inside);
}

function fill(element, attributes, inside) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...inside.flat(Infinity).filter((part) => part !== null && part !== undefined && part !== ""));
  return element;
}

export const byId = (id) => document.getElementById(id);

export function icon(name) {
  return draw("svg", { class: "icon", viewBox: "0 0 18 18", "aria-hidden": "true" }, draw("path", { d: ICONS[name] }));
}

const RULES = "Immutable|Increasing|Decreasing|Range|Allowed|Linear|Equal|Implies|WhenChanged|GridStep|Price|MaxChanges"
  + "|Determines|NeverTogether|Computed|Bands";
const FLAT = String.raw`"(?:[^"\\]|\\.)*"|[^()"]`;
// The arguments of a rule may be another rule, as in WhenChanged("job", Equal("tenure", "0")).
const CODE = new RegExp(String.raw`\x60([^\x60]*)\x60|((?:${RULES})\((?:${FLAT}|\((?:${FLAT})*\))*\))`);

/** Return text in which rules and parts between backticks are formatted as code. */
export function marked(text) {
  const found = CODE.exec(text);
  if (!found) return [text];
  const rest = text.slice(found.index + found[0].length);
  return [text.slice(0, found.index), make("code", null, found[1] ?? found[2]), ...marked(rest)];
}

/** Return a name that may be broken at the start of a word, as in NumTradesOpen or credit_score. */
export function breakable(name) {
  return name.split(/(?<=[a-z0-9])(?=[A-Z])|(?<=_)/).flatMap((word, i) => (i ? [make("wbr"), word] : [word]));
}

/** Return a function that calls `call` once, some milliseconds after the last of several quick calls. */
export function debounce(milliseconds, call) {
  let waiting;
  const soon = (...given) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => call(...given), milliseconds);
  };
  soon.cancel = () => clearTimeout(waiting);
  return soon;
}
