// What the model says of the row as it is, while people type.

import * as api from "./api.js";
import { draw, make } from "./dom.js";
import { figure, levelText, percent, spaced } from "./words.js";

const MOST = 6;

export class Says {
  constructor(element, model) {
    this.element = element;
    this.model = model;
    this.last = null;
    this.request = null;
  }

  /** Asks for the row; resolves to what the model says, or to nothing where a newer row came in between. */
  async ask(row) {
    this.request?.abort();
    this.request = new AbortController();
    this.element.classList.add("waiting");
    try {
      const told = await api.predict(this.model.name, { instances: [row] }, this.request.signal);
      this.last = told.predictions[0];
    } catch (error) {
      if (api.wasReplaced(error)) return null;
      this.last = { problem: error.message };
    }
    this.element.classList.remove("waiting");
    this.show();
    return this.last;
  }

  /** The row cannot be sent. */
  unreadable(why) {
    this.request?.abort();
    this.last = { problem: why };
    this.element.classList.remove("waiting");
    this.show();
  }

  show() {
    const { last, model } = this;
    if (last.problem) {
      this.element.replaceChildren(make("p", { class: "wrong" }, last.problem.replaceAll("`", "")));
      return;
    }
    const outcome = spaced(model.outcome);
    if (!model.outcomes.length) {
      const value = make("strong", { class: "outcome" }, figure(last.value));
      this.element.replaceChildren(make("p", { class: "decision" }, value, ` ${outcome}`));
      return;
    }
    const decision = make("p", { class: "decision" },
      make("strong", { class: "outcome" }, levelText(last.outcome)), make("span", null, ` ${outcome}`));
    this.element.replaceChildren(decision, this.bars());
  }

  bars() {
    const shares = this.model.outcomes.map((label) => [label, shareOf(this.last.probabilities, label)]);
    if (shares.length > MOST) shares.sort((a, b) => b[1] - a[1]);
    const lines = shares.slice(0, MOST).map(([label, share]) => {
      const bar = draw("svg", { class: "bar", "aria-hidden": "true" },
        draw("rect", { class: "whole", width: "100%", height: "100%" }),
        draw("rect", { class: "part", width: `${(100 * share).toFixed(2)}%`, height: "100%" }));
      const [name, number] = [levelText(label), percent(share)];
      return make("li", null, make("span", null, name), bar, make("span", { class: "number" }, number));
    });
    return make("ul", { class: "bars" }, lines);
  }
}

/** The probability of a label; one that is no text is spelt as Python or as JSON spells it. */
export function shareOf(probabilities, label) {
  const text = String(label), spelt = [text, text[0].toUpperCase() + text.slice(1)];
  return probabilities[spelt.find((name) => name in probabilities)] ?? 0;
}
