// The answer as text or on paper; the request and its answers as JSON, and the request as Python code.

import { make } from "./dom.js";

const SAID = 2000;

export class Export {
  /** `link()` returns the address that restores the page. */
  constructor(element, link) {
    this.texts = { text: () => "", link, JSON: () => "", Python: () => "" };
    this.shown = make("pre", { tabindex: 0, "aria-label": "Text to copy" });
    const print = make("button", { type: "button", class: "plain", id: "print", onclick: () => window.print() }, "Print");
    this.state = make("span", { class: "quiet", role: "status" });
    const copies = Object.keys(this.texts).map((name) => make("button", {
      type: "button", class: "plain", id: `copy-${name.toLowerCase()}`, onclick: () => this.copy(name),
    }, name === "link" ? "Copy link" : `Copy as ${name}`));
    const [text, address, ...programs] = copies;
    this.address = make("input", { id: "link-text", readonly: true, "aria-label": "Link to this page as it is", hidden: true });
    element.replaceChildren(make("p", { class: "under" }, text, address, print, this.state), this.address,
      make("p", { class: "small" }, "The link holds the number of the row, the values that you edited, and what you hold. Browsers do not send this part of "
        + "an address to the service, but everybody who has the link can read it."),
      make("details", { id: "analysts" }, make("summary", null, "For analysts: JSON and Python"),
        make("p", { class: "under" }, programs), this.shown));
    this.buttons = [...copies, print];
    this.show(null, null, null);
  }

  /** Show a request to `model` and its explanation; all are null before the first request. */
  show(model, body, explanation, head = "", sentence = "") {
    const none = body === null;
    for (const button of this.buttons) button.disabled = none;
    this.shown.hidden = none;
    if (none) return;
    this.texts.text = () => [head, sentence].filter(Boolean).join("\n");
    this.texts.JSON = () => JSON.stringify({ model: model.name, question: body, explanation }, null, 2);
    this.texts.Python = () => python(model, body);
    this.shown.textContent = this.texts.Python();
  }

  async copy(name) {
    const text = this.texts[name]();
    if (name === "JSON" || name === "Python") this.shown.textContent = text;
    const done = await copyText(text);
    this.address.hidden = done;
    if (!done) {
      this.address.value = text.replaceAll("\n", " ");
      this.address.select();
    }
    this.state.textContent = done ? `Copied ${name === "link" ? "the link" : `as ${name}`}.` : "Select the text below and copy it.";
    setTimeout(() => { this.state.textContent = ""; }, SAID);
  }
}

/** Copy a text; without a secure connection there is no clipboard. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Return Python code for the same request to the same explainer. */
export function python(model, { instances, target, parameters }) {
  const { locked, ranges, increasing, decreasing, k, confidence, min_probability: least, certify } = parameters;
  const cells = Object.entries(instances[0]).map(([name, value]) => `    ${literal(name)}: ${literal(value)},`);
  const range = ([name, bounds]) => `pf.Range(${[name, ...bounds].map(literal).join(", ")})`;
  const rules = [...Object.entries(ranges).map(range), ...increasing.map((name) => `pf.Increasing(${literal(name)})`),
    ...decreasing.map((name) => `pf.Decreasing(${literal(name)})`)];
  const wanted = Array.isArray(target) ? `(${target.map(literal).join(", ")})` : literal(target);
  const options = [`k=${k}`];
  if (locked.length) options.push(`locked=[${locked.map(literal).join(", ")}]`);
  if (rules.length) options.push(`constraints=[${rules.join(", ")}]`);
  if (least !== undefined) options.push(`min_probability=${literal(least)}`);
  if (certify !== undefined) options.push(`certify=${certify}`);
  if (confidence === null && model.confidence !== null) options.push("second_opinion=False");
  return [
    "import pandas as pd",
    "import plausiflow as pf",
    "",
    `explainer = pf.Explainer.load(${literal(model.name)})  # the folder of the served explainer`,
    "row = pd.DataFrame([{",
    ...cells,
    "}])",
    "result = explainer.explain(",
    "    row,",
    `    target=${wanted},`,
    ...options.map((option) => `    ${option},`),
    ")",
    "print(result.sentences.iloc[0])",
    "print(result.alternatives)",
    "",
  ].join("\n");
}

function literal(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  return JSON.stringify(value);
}
