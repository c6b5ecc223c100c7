// The question: an outcome or an interval, the number of answers, and options.

import { make, marked } from "./dom.js";
import { limitText } from "./limits.js";
import { shareOf } from "./prediction.js";
import { counted, levelText, listed, percent } from "./format.js";

/** Return a learned rule with its evidence. */
const learnedItem = ({ description, rows, exceptions }) => make("li", null, make("code", null, description),
  ` (${rows.toLocaleString("en")} rows, ${counted(exceptions, "exception")})`);

const MOST_BUTTONS = 4, MOST_ANSWERS = 6, ANSWERS = 3, PROOF_SECONDS = 5;

export class Question {
  /** `onChange(what)` is called with "target" or "question", `onAsk()` when the question is sent. */
  constructor(form, model, onChange, onAsk) {
    this.model = model;
    this.chosen = null;
    this.onChange = onChange;
    this.problem = make("p", { class: "note wrong", role: "alert" });
    this.kept = make("p", { class: "note" });
    this.button = make("button", { class: "primary", id: "ask" }, "Ask again");
    form.replaceChildren(this.makeTarget(), this.makeOptions(), this.kept, this.problem,
      make("p", { class: "under" }, this.button), this.makeRules());
    form.onsubmit = (event) => {
      event.preventDefault();
      onAsk();
    };
    form.oninput = ({ target }) => {
      this.problem.textContent = "";
      onChange(target === this.list || this.radios?.includes(target) ? "target" : "question");
    };
    this.start();
  }

  /** Ask for the favourable outcome, if it is known. */
  start() {
    const { outcome } = this.model.favourable;
    if (outcome === null) return;
    if (Array.isArray(outcome)) {
      [this.low.value, this.high.value] = outcome.map((bound) => bound ?? "");
    } else {
      this.chosen = this.model.outcomes.indexOf(outcome);
      this.mark(this.chosen);
    }
  }

  /** Whether a row with this prediction needs no change. */
  isMet({ outcome, value }) {
    const { target } = this;
    if (!Array.isArray(target)) return target === null || outcome === target;
    return typeof value === "number" && value >= (target[0] ?? -Infinity) && value <= (target[1] ?? Infinity);
  }

  /** Remove an option that limits the answers. */
  drop(kind) {
    if (kind === "least") this.least.value = "";
    else this.second.checked = false;
  }

  makeTarget() {
    const { outcome, outcomes } = this.model, title = make("legend", null, outcome);
    if (!outcomes.length) {
      const bound = (id, name) => [make("label", { for: id }, name),
        make("input", { id, type: "number", step: "any", inputmode: "decimal", placeholder: "no bound" })];
      const [least, most] = [bound("target-from", "at least"), bound("target-to", "at most")];
      [this.low, this.high] = [least[1], most[1]];
      return make("fieldset", { class: "target" }, title, make("div", { class: "bounds" }, least, most));
    }
    if (outcomes.length > MOST_BUTTONS) {
      const options = outcomes.map((label, i) => make("option", { value: i }, levelText(label)));
      this.list = make("select", { id: "target", "aria-label": `Wanted ${outcome}`,
        onchange: () => { this.chosen = Number(this.list.value); } }, options);
      return make("fieldset", { class: "target" }, title, this.list);
    }
    this.radios = outcomes.map((label, i) => make("input", { type: "radio", name: "target", id: `target-${i}`, value: i,
      onchange: () => { this.chosen = i; } }));
    const pairs = this.radios.map((radio, i) => [radio, make("label", { for: radio.id }, levelText(outcomes[i]))]);
    return make("fieldset", { class: "target" }, title, make("div", { class: "segments" }, pairs));
  }

  makeOptions() {
    const { confidence, outcomes } = this.model;
    const numbers = Array.from({ length: MOST_ANSWERS }, (_, i) => make("option", { value: i + 1 }, String(i + 1)));
    this.count = make("select", { id: "count" }, numbers);
    this.count.value = String(ANSWERS);
    const lines = [make("p", null, make("label", { for: "count" }, "Answers"), this.count)];
    if (outcomes.length) {
      this.least = make("input", { id: "least", type: "number", min: 1, max: 99, step: 1, placeholder: "most likely" });
      lines.push(make("p", null, make("label", { for: "least" }, "Probability at least, in %"), this.least));
    }
    if (confidence !== null) {
      this.second = make("input", { id: "second", type: "checkbox" });
      this.second.checked = true;
      const text = `Must also pass a second opinion (${percent(confidence)} of answers)`;
      lines.push(make("p", { class: "tick" }, this.second, make("label", { for: "second" }, text)));
    }
    if (this.model.proofs) {
      this.prove = make("input", { id: "prove", type: "checkbox" });
      const text = `Prove what the cheapest change costs (up to ${PROOF_SECONDS} seconds)`;
      lines.push(make("p", { class: "tick" }, this.prove, make("label", { for: "prove" }, text)));
    }
    return make("div", { class: "choices" }, lines);
  }

  makeRules() {
    const { rules } = this.model, learned = this.model.learned_rules.filter((rule) => rule.active);
    const item = (text) => make("li", null, make("code", null, text));
    const list = rules.length ? make("ul", null, rules.map(item)) : make("p", null, "None: every feature may change.");
    const model = make("p", { class: "quiet" }, "Model: ", marked(this.model.model));
    const parts = [make("summary", null, "Rules that always hold"), list];
    if (learned.length) parts.push(make("p", null, "Learned from the table:"), make("ul", null, learned.map(learnedItem)));
    return make("details", { class: "rules" }, parts, model);
  }

  /** Select the most likely outcome that is not predicted, unless the user has chosen one. */
  suggest({ outcome, probabilities }) {
    if (this.chosen !== null || !probabilities) return;
    const shares = this.model.outcomes.map((label) => (label === outcome ? -1 : shareOf(probabilities, label)));
    this.mark(shares.indexOf(Math.max(...shares)));
  }

  mark(i) {
    if (this.list) this.list.value = String(i);
    else this.radios[i].checked = true;
  }

  /** Show what people hold. */
  tell(limits) {
    this.kept.textContent = limits.length ? `You hold: ${listed(limits.map((limit) => limitText(limit, this.model)))}.` : "";
  }

  /** The options of a link: what differs from the start. */
  get options() {
    const { least, second } = this, options = { k: this.k };
    if (least && least.value !== "") options.least = Number(least.value);
    if (second && !second.checked) options.margin = false;
    return options;
  }

  /** Set the target and the options of a link; what does not fit is left out. */
  restore(target, { k, least, margin }) {
    if (Number.isInteger(k) && k >= 1 && k <= MOST_ANSWERS) this.count.value = String(k);
    if (this.least && typeof least === "number") this.least.value = String(least);
    if (this.second) this.second.checked = margin !== false;
    if (this.model.outcomes.length) {
      const at = this.model.outcomes.findIndex((label) => JSON.stringify(label) === JSON.stringify(target));
      if (at < 0) return;
      this.chosen = at;
      this.mark(at);
    } else if (Array.isArray(target) && target.length === 2) {
      [this.low.value, this.high.value] = target.map((bound) => (typeof bound === "number" ? bound : ""));
    }
  }

  /** Options that limit the answers, as limits. */
  get limits() {
    const { parameters } = this, limits = [];
    if (parameters.min_probability !== undefined) limits.push({ kind: "least" });
    if (parameters.confidence !== null) limits.push({ kind: "margin" });
    return limits;
  }

  get target() {
    if (this.radios) return this.model.outcomes[this.radios.findIndex((radio) => radio.checked)] ?? null;
    if (this.list) return this.model.outcomes[Number(this.list.value)];
    const bounds = [this.low, this.high].map((input) => (input.value === "" ? null : Number(input.value)));
    return bounds.every((bound) => bound === null) ? null : bounds;
  }

  get k() {
    return Number(this.count.value);
  }

  /** Parameters of the request, except locked features and ranges. */
  get parameters() {
    const parameters = { confidence: this.second?.checked ? this.model.confidence : null };
    if (this.least && this.least.value !== "") parameters.min_probability = Number(this.least.value) / 100;
    if (this.prove?.checked) parameters.certify = PROOF_SECONDS;
    return parameters;
  }

  /** Return whether the question is complete; if not, show what is missing. */
  check() {
    const least = this.parameters.min_probability, [low, high] = Array.isArray(this.target) ? this.target : [];
    let problem = "";
    if (this.target === null) problem = "Enter at least one bound.";
    else if (least !== undefined && !(least > 0 && least < 1)) problem = "The probability must be between 1 and 99 %.";
    else if ((low ?? -Infinity) >= (high ?? Infinity)) problem = "The lower bound must be below the upper bound.";
    this.problem.textContent = problem;
    return problem === "";
  }

  set busy(busy) {
    this.button.disabled = busy;
    this.button.textContent = busy ? "Asking …" : "Ask again";
  }
}
