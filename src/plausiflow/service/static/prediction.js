// The prediction for the current row, updated while people type.

import * as api from "./api.js";
import { draw, make } from "./dom.js";
import { formatFigure, levelText, percent } from "./format.js";

const MOST = 6;

export class Prediction {
  constructor(element, model) {
    this.element = element;
    this.model = model;
    this.last = null;
    this.request = null;
  }

  /** Request the prediction for a row; resolves to null if a newer request replaced this one. */
  async ask(row) {
    this.request?.abort();
    this.request = new AbortController();
    this.element.classList.add("waiting");
    try {
      const response = await api.predict(this.model.name, { instances: [row] }, this.request.signal);
      this.last = response.predictions[0];
    } catch (error) {
      if (api.wasAborted(error)) return null;
      this.last = { problem: error.message };
    }
    this.element.classList.remove("waiting");
    this.show();
    return this.last;
  }

  /** Show a prediction that is known already. */
  take(prediction) {
    this.request?.abort();
    this.last = prediction;
    this.element.classList.remove("waiting");
    this.show();
    return prediction;
  }

  /** Show that the row cannot be sent. */
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
    const { outcome } = model;
    if (!model.outcomes.length) {
      const value = make("strong", { class: "outcome" }, formatFigure(last.value));
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

/** Return the probability of a label; its name may be written as in Python or as in JSON. */
export function shareOf(probabilities, label) {
  const text = String(label), spelt = [text, text[0].toUpperCase() + text.slice(1)];
  return probabilities[spelt.find((name) => name in probabilities)] ?? 0;
}
