// The answer as text, as a letter or on paper; the request and its answers as JSON, and the request as Python code.

import * as api from "./api.js";
import { byId, make } from "./dom.js";
import { asToolbar } from "./focus.js";

const SAID = 2000;
const LANGUAGES = { en: "English", de: "German" };

export class Export {
  /** `link()` returns the address that restores the page, `reference()` what a letter calls the row. */
  constructor(element, model, link, reference) {
    Object.assign(this, { model, reference, body: null });
    this.texts = { text: () => "", link, JSON: () => "", Python: () => "" };
    this.shown = make("pre", { tabindex: 0, "aria-label": "Text to copy" });
    const print = make("button", { type: "button", class: "plain", id: "print", onclick: () => this.print("") }, "Print page");
    this.language = make("select", { id: "language" },
      model.languages.map((code) => make("option", { value: code }, LANGUAGES[code] ?? code)));
    const letter = make("button", { type: "button", class: "primary", id: "print-letter", onclick: () => this.printLetter() }, "Print letter");
    this.state = make("span", { class: "quiet", role: "status" });
    const copies = Object.keys(this.texts).map((name) => make("button", {
      type: "button", class: "plain", id: `copy-${name.toLowerCase()}`, onclick: () => this.copy(name),
    }, name === "link" ? "Copy link" : `Copy as ${name}`));
    const [text, address, ...programs] = copies;
    this.field = make("textarea", { id: "to-copy", readonly: true, rows: 3, "aria-label": "Text to copy", hidden: true });
    element.replaceChildren(make("div", { class: "under" }, asToolbar(make("span", { class: "under", "aria-label": "Keep the answer" }, letter, text, address, print),
      [letter, text, address, print]), make("label", { for: "language" }, "Letter in"), this.language, this.state), this.field,
      make("p", { class: "small" }, "The link holds the number of the row, the values that you edited, and what you hold. Browsers do not send this part of "
        + "an address to the service, but everybody who has the link can read it."),
      make("details", { id: "analysts" }, make("summary", null, "For analysts: JSON and Python"),
        make("p", { class: "under" }, programs), this.shown));
    this.buttons = [letter, ...copies, print];
    this.show(null, null);
  }

  /** Show a request and its explanation; both are null before the first request. */
  show(body, explanation, head = "", sentence = "") {
    const none = body === null, { model } = this;
    this.body = body;
    for (const button of this.buttons) button.disabled = none;
    this.shown.hidden = none;
    if (none) return;
    this.texts.text = () => [head, sentence].filter(Boolean).join("\n");
    this.texts.JSON = () => JSON.stringify({ model: model.name, question: body, explanation }, null, 2);
    this.texts.Python = () => python(model, body);
    this.shown.textContent = this.texts.Python();
  }

  /** Print the letter about the first answer. */
  async printLetter() {
    const { instances: [instance], target, parameters } = this.body, { certify, ...rest } = parameters;
    this.state.textContent = "Writing the letter …";
    try {
      const { letter } = await api.letter(this.model.name,
        { instance, target, parameters: { ...rest, k: 1 }, language: this.language.value, reference: this.reference() });
      this.state.textContent = "";
      this.print(letter);
    } catch (error) {
      this.state.textContent = error.message;
    }
  }

  /** Print a text, or the page if there is none. */
  print(text) {
    byId("letter").textContent = text;
    byId("letter").lang = text ? this.language.value : "en";
    document.body.classList.toggle("with-letter", text !== "");
    window.print();
  }

  async copy(name) {
    const text = this.texts[name]();
    if (name === "JSON" || name === "Python") this.shown.textContent = text;
    const done = await copyText(text, this.field);
    this.state.textContent = done ? `Copied ${name === "link" ? "the link" : `as ${name}`}.` : "Select the text below and copy it.";
    setTimeout(() => { this.state.textContent = ""; }, SAID);
  }
}

/** Copy a text. Without a secure connection there is no clipboard; then a field is selected, and stays if that fails. */
async function copyText(text, field) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const before = document.activeElement;
    field.hidden = false;
    field.value = text;
    field.select();
    field.hidden = document.execCommand("copy");
    if (field.hidden) before.focus();
    return field.hidden;
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
