// The chosen answer in full, the other ways in short, or why there is none.

import { blockedCard, toSentence } from "./blocked.js";
import { changeLists, inShort } from "./changes.js";
import { badge, howSure } from "./checks.js";
import { breakable, byId, make, marked } from "./dom.js";
import { keep } from "./focus.js";
import { gauge } from "./gauge.js";
import { counted, formatFigure, levelText, nats, percent, same, timesAsDense, valueText, wantedText } from "./format.js";
import { stripLegend } from "./strips.js";

const SHORT = 4;

export class Answers {
  /**
   * `on.use(row)` makes an answer the row, `on.limit(limit)` holds a feature, `on.choose(i)` shows another answer,
   * `on.release(limits)` leaves out limits.
   */
  constructor(element, model, on) {
    Object.assign(this, { element, model, on, population: null, shown: null });
  }

  /** Show what will be there, until there is an answer. */
  clear() {
    this.shown = null;
    const line = (width) => make("span", { class: `line ${width}` });
    this.element.replaceChildren(make("div", { class: "panel skeleton", "aria-hidden": "true" }, ["short", "long", "long", "middle"].map(line)));
  }

  /** Whether what is shown is old. */
  get isWaiting() {
    return this.element.classList.contains("outdated");
  }

  set outdated(outdated) {
    this.element.classList.toggle("outdated", outdated);
    this.element.setAttribute("aria-busy", String(outdated));
  }

  /** Draw the strips with what rows with the wanted outcome are like. */
  describe(population) {
    this.population = population;
    if (this.shown) this.show(...this.shown);
  }

  /**
   * Show an explanation, one of its answers in full. `more` says that other answers will follow; `limits` are those
   * that people set, `ways` the limits to leave out (null while they are looked for).
   */
  show(explanation, request, { chosen = 0, more = false, limits = [], ways = [] } = {}) {
    this.shown = [explanation, request, { chosen, more, limits, ways }];
    this.request = request;
    const found = explanation.counterfactuals;
    const parts = found.length ? [this.main(explanation, found[chosen]), this.others(explanation, chosen, more)]
      : [blockedCard(this.model, explanation, request, limits, ways, this.on.release), ...explanation.misses.map((miss) => this.miss(explanation, miss))];
    keep(this.element, () => this.element.replaceChildren(...parts), byId("answers"));
  }

  /** Return what the changes of an answer are drawn with; without `limit` they have no controls. */
  view(explanation, limit) {
    return { model: this.model, factual: explanation.factual, histograms: this.population?.features, limit };
  }

  /** Return whom the histograms are about. */
  whom() {
    if (!this.population || !Object.keys(this.population.features).length) return "";
    const { target } = this.request, { outcome } = this.population, [low, high] = outcome ?? [];
    const what = outcome ? wantedText([low ?? null, high ?? null]) : levelText(target);
    return outcome && (low ?? high ?? null) === null ? "training rows" : `training rows that the model decides as ${what}`;
  }

  main(explanation, answer) {
    const { factual } = explanation, reach = Math.max(4, 1.2 * Math.abs(answer.score ?? 0));
    return make("article", { class: "panel card main", "aria-labelledby": "headline" },
      changeLists(this.view(explanation, this.on.limit), answer), stripLegend(this.whom()),
      make("section", { class: "how-sure" }, make("h3", null, "How sure ", badge(answer, explanation, this.model)),
        howSure(answer, explanation, this.model)),
      make("details", { "data-key": "figures" }, make("summary", null, "Cost and density"), this.figures(answer, explanation.probability),
        answer.score === null ? null : make("div", { class: "density" }, gauge(answer.score, reach),
          make("p", null, `${nats(answer.score)}: ${timesAsDense(answer.score)}`))),
      this.kept(factual, answer.values),
      make("p", { class: "under tools-row" }, make("button", { type: "button", class: "plain", "data-key": "use",
        onclick: () => this.on.use(answer.values) }, "Make it the row")));
  }

  figures(answer, now) {
    const { distance } = answer, unit = distance === "l1-mad" ? "by its median absolute deviation" : "across its whole range";
    const lines = [["Cost", formatFigure(answer.cost)]];
    if (answer.probability !== null) {
      const before = now === null ? "" : `${percent(now)}\u00a0→ `;
      lines.push([`Probability of ${wantedText(this.request.target)}`, before + percent(answer.probability)]);
    }
    if (typeof answer.prediction === "number") lines.push(["Prediction", formatFigure(answer.prediction)]);
    const pairs = lines.map(([name, text]) => make("div", null, make("dt", null, name), make("dd", null, text)));
    return [make("dl", null, pairs),
      make("p", { class: "small" }, `Cost 1 is a number moved ${unit}, or another category (distance ${distance}).`)];
  }

  /** Return the other answers in short, each of which can be shown in full. */
  others(explanation, chosen, more) {
    const found = explanation.counterfactuals, title = make("h2", { id: "others-title" }, "Other ways");
    const lines = found.map((answer, i) => [answer, i]).filter(([, i]) => i !== chosen).map(([answer, i]) =>
      make("article", { class: "panel card way-card", "aria-label": `Way ${i + 1}` },
        make("p", { class: "way-title" }, make("strong", null, answer.advantages.length ? toSentence(answer.advantages.join(", ")).slice(0, -1) : `Way ${i + 1}`),
          badge(answer, explanation, this.model)),
        make("p", null, inShort(this.model, answer, SHORT)),
        make("button", { type: "button", class: "plain", "data-key": `way-${i}`, onclick: () => this.on.choose(i) }, "Show this way")));
    const note = explanation.reason ? make("p", { class: "quiet" }, ...marked(toSentence(explanation.reason))) : null;
    if (!lines.length && !note && !more) return make("div");
    const waiting = more ? make("p", { class: "quiet skeleton" }, "Looking for other ways …") : null;
    return make("section", { class: "others", "aria-labelledby": "others-title" },
      title, note, waiting, make("div", { class: "cards" }, lines));
  }

  kept(factual, values) {
    const own = this.model.features.filter((feature) => same(factual[feature.name], values[feature.name]));
    const lines = own.map((feature) => {
      const locked = feature.immutable || this.request.parameters.locked.includes(feature.name);
      return make("tr", null, make("th", { scope: "row" }, breakable(feature.name)),
        make("td", { "data-kept": feature.name }, valueText(feature, values[feature.name])),
        make("td", { class: "quiet" }, locked ? "locked" : ""));
    });
    return make("details", { class: "unchanged", "data-key": "unchanged" }, make("summary", null, counted(own.length, "unchanged feature")),
      make("table", null, make("caption", { class: "hidden" }, "Unchanged values"), make("tbody", null, lines)));
  }

  miss(explanation, miss) {
    const { factual } = explanation;
    const changes = this.model.features.map((feature) => feature.name)
      .filter((name) => !same(factual[name], miss.values[name])).map((feature) => ({ feature, to: miss.values[feature] }));
    return make("article", { class: "panel card miss", "aria-label": "Nearest miss" },
      make("h3", null, "Nearest miss ", make("span", { class: "verdict unsure" }, "≈ not realistic enough")),
      make("p", null, ...marked(toSentence(miss.why))),
      changeLists(this.view(explanation), { values: miss.values, changes }), stripLegend(this.whom()));
  }
}
