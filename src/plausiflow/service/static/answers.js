// Answers as cards, or the reason why there is none.

import { breakable, make, marked } from "./dom.js";
import { gauge } from "./gauge.js";
import {
  counted, formatFigure, isNumber, nats, percent, same, timesAsDense, valueText, wantedText,
} from "./format.js";

export class Answers {
  /** `onUse(row)` is called with an answer that becomes the row. */
  constructor(element, model, onUse) {
    this.element = element;
    this.model = model;
    this.onUse = onUse;
  }

  clear() {
    this.element.replaceChildren();
  }

  /** Show an explanation and the target and locked features of its request. */
  show(explanation, request) {
    this.request = request;
    const found = explanation.counterfactuals;
    if (!found.length) {
      this.element.replaceChildren(...this.without(explanation));
      return;
    }
    const reach = Math.max(4, ...found.map((answer) => 1.2 * Math.abs(answer.score ?? 0)));
    const cards = found.map((answer, i) => this.card(explanation, answer, i, reach));
    const note = explanation.reason ? make("p", { class: "quiet" }, "Note: ", marked(explanation.reason), ".") : null;
    const proof = explanation.proof ? make("p", { class: "proof" }, ...marked(`${explanation.proof}.`)) : null;
    const unit = found[0].distance === "l1-mad" ? "by its median absolute deviation" : "across its whole range";
    const cost = make("p", { class: "small" }, `Cost 1 is a number moved ${unit}, or another category (distance ${found[0].distance}).`);
    this.element.replaceChildren(...[note, proof, make("div", { class: "cards" }, cards), cost].filter(Boolean));
  }

  set outdated(outdated) {
    this.element.classList.toggle("outdated", outdated);
  }

  card(explanation, answer, i, reach) {
    const { factual } = explanation, title = `answer-${i + 1}`;
    const verdict = explanation.status === "relaxed" ? "≈ nearest miss" : "✓ plausible";
    return make("article", { class: "panel card", "aria-labelledby": title },
      make("h3", { id: title }, make("span", { class: "badge" }, String(i + 1)), " Answer ", make("span",
        { class: "verdict" }, [verdict, ...answer.advantages].join(", "))),
      make("p", { class: "sentence" }, answer.sentence),
      this.changes(factual, answer.values, answer.changes),
      this.figures(explanation, answer),
      answer.score === null ? null : make("div", { class: "density" },
        gauge(answer.score, reach), make("p", null, `${nats(answer.score)}: ${timesAsDense(answer.score)}`)),
      make("p", { class: "small" }, secondOpinion(answer.judged)),
      this.kept(factual, answer.values),
      make("p", { class: "under" }, make("button", { type: "button", class: "plain",
        onclick: () => this.onUse(answer.values) }, "Make it the row")));
  }

  /** Return a table of changes: first those that the decision needs, then those along with them. */
  changes(factual, values, changes) {
    const known = new Map(this.model.features.map((feature) => [feature.name, feature]));
    const ordered = [...changes].sort((a, b) => (b.role === "needed") - (a.role === "needed"));
    const lines = ordered.map((change) => {
      const name = change.feature, feature = known.get(name), [before, after] = [factual[name], values[name]];
      return make("tr", { class: "changed" }, make("th", { scope: "row" }, breakable(name)),
        make("td", null, make("span", null, valueText(feature, before)), ...way(feature, before, after),
          make("mark", null, valueText(feature, after))),
        make("td", { class: "quiet purpose" }, purpose(change)));
    });
    const head = ["Feature", "Before and after", "What for"].map((text) => make("th", { scope: "col" }, text));
    return make("table", null, make("caption", { class: "hidden" }, "What changes"),
      make("thead", { class: "hidden" }, make("tr", null, head)), make("tbody", null, lines));
  }

  figures(explanation, answer) {
    const wanted = wantedText(this.request.target), now = explanation.probability;
    const lines = [["Cost", formatFigure(answer.cost)]];
    if (answer.probability !== null) {
      const before = now === null ? "" : `${percent(now)}\u00a0→ `;
      lines.push([`Probability of ${wanted}`, before + percent(answer.probability)]);
    }
    if (typeof answer.prediction === "number") lines.push(["Prediction", formatFigure(answer.prediction)]);
    const pairs = lines.map(([name, text]) => make("div", null, make("dt", null, name), make("dd", null, text)));
    return make("dl", null, pairs);
  }

  kept(factual, values) {
    const own = this.model.features.filter((feature) => same(factual[feature.name], values[feature.name]));
    const lines = own.map((feature) => {
      const locked = feature.immutable || this.request.locked.includes(feature.name);
      return make("tr", null, make("th", { scope: "row" }, breakable(feature.name)),
        make("td", { "data-kept": feature.name }, valueText(feature, values[feature.name])),
        make("td", { class: "quiet" }, locked ? "locked" : ""));
    });
    return make("details", null, make("summary", null, counted(own.length, "unchanged feature")),
      make("table", null, make("caption", { class: "hidden" }, "Unchanged values"), make("tbody", null, lines)));
  }

  without(explanation) {
    const { status, reason } = explanation, wanted = wantedText(this.request.target);
    const [sign, title] = {
      already: ["=", "Nothing needs to change"], infeasible: ["✕", "No answer"], not_reached: ["…", "Not in time"],
      invalid_input: ["!", "The row cannot be read"],
    }[status] ?? ["!", status];
    const texts = [make("h3", null, make("span", { class: "badge" }, sign), ` ${title}`)];
    if (status === "already") {
      const share = explanation.probability === null ? "" : ` (${percent(explanation.probability)})`;
      texts.push(make("p", null, `The model already says ${wanted}${share}. Choose another outcome, or edit the row.`));
    } else {
      texts.push(make("p", { class: "reason" }, ...marked(toSentence(reason))));
      if (explanation.proof) texts.push(make("p", { class: "proof" }, ...marked(`${explanation.proof}.`)));
      if (status === "infeasible") texts.push(make("p", { class: "quiet" }, advice(reason)));
    }
    return [make("div", { class: "panel card without", "data-status": status }, texts),
      ...explanation.misses.map((miss) => this.miss(explanation, miss))];
  }

  miss(explanation, miss) {
    const { factual } = explanation;
    const names = this.model.features.map((feature) => feature.name)
      .filter((name) => !same(factual[name], miss.values[name]));
    return make("article", { class: "panel card miss", "aria-label": "Nearest miss" },
      make("h3", null, make("span", { class: "badge" }, "≈"), " Nearest miss ",
        make("span", { class: "verdict" }, "not plausible enough")),
      make("p", null, ...marked(toSentence(miss.why))),
      this.changes(factual, miss.values, names.map((feature) => ({ feature }))));
  }
}

const PURPOSES = { decision: "for the decision", plausibility: "to stay plausible", certainty: "for a clear decision",
  durability: "to last when the model is retrained", tolerance: "to leave room for what is missed" };

/** Return what a change is for, and whether it is unfavourable by itself. */
function purpose({ serves, adverse }) {
  if (!serves) return "";
  const text = PURPOSES[serves] ?? `to keep ${serves}`;
  return adverse ? `${text}; unfavourable by itself` : text;
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

function toSentence(text) {
  const closed = /[.!?…]$/.test(text) ? text : `${text}.`;
  return closed.charAt(0).toUpperCase() + closed.slice(1);
}

function advice(reason) {
  if (/\blocked\b/.test(reason)) return "Unlock a feature, widen a range, or choose another target.";
  return "Widen a range, unlock a feature, do without the second opinion, or choose another target.";
}

function secondOpinion(judged) {
  if (judged === null || judged === undefined) return "This explainer has no second opinion.";
  if (judged === 1) return "Second opinion: all densities that did not guide the search agree.";
  if (judged === 0) return "Second opinion: no density that did not guide the search agrees.";
  return `Second opinion: ${percent(judged)} of the densities that did not guide the search agree.`;
}
