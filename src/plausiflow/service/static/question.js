// What is wanted: an outcome or an interval, how many answers, how sure.

import { make, marked } from "./dom.js";
import { shareOf } from "./says.js";
import { levelText, listed, percent, spaced } from "./words.js";

const MOST_BUTTONS = 4, MOST_ANSWERS = 6, ANSWERS = 3;

export class Question {
  /** `onChange()` is called when something else is asked for, `onAsk()` when it is asked. */
  constructor(form, model, onChange, onAsk) {
    this.model = model;
    this.chosen = null;
    this.onChange = onChange;
    this.problem = make("p", { class: "note wrong", role: "alert" });
    this.kept = make("p", { class: "note" });
    this.button = make("button", { class: "primary", id: "ask" }, "Ask");
    form.replaceChildren(this.makeTarget(), this.makeOptions(), this.kept, this.problem,
      make("p", { class: "under" }, this.button), this.makeRules());
    form.onsubmit = (event) => {
      event.preventDefault();
      onAsk();
    };
    form.oninput = () => {
      this.problem.textContent = "";
      onChange();
    };
  }

  makeTarget() {
    const { outcome, outcomes } = this.model, title = make("legend", null, spaced(outcome));
    if (!outcomes.length) {
      const bound = (id, name) => [make("label", { for: id }, name),
        make("input", { id, type: "number", step: "any", inputmode: "decimal", placeholder: "no bound" })];
      const [least, most] = [bound("target-from", "at least"), bound("target-to", "at most")];
      [this.low, this.high] = [least[1], most[1]];
      return make("fieldset", { class: "target" }, title, make("div", { class: "bounds" }, least, most));
    }
    if (outcomes.length > MOST_BUTTONS) {
      const options = outcomes.map((label, i) => make("option", { value: i }, levelText(label)));
      this.list = make("select", { id: "target", "aria-label": `Wanted ${spaced(outcome)}`,
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
      this.least = make("input", { id: "least", type: "number", min: 1, max: 99, step: 1, placeholder: "it wins" });
      lines.push(make("p", null, make("label", { for: "least" }, "Probability at least, in %"), this.least));
    }
    if (confidence !== null) {
      this.second = make("input", { id: "second", type: "checkbox" });
      this.second.checked = true;
      const text = `Must hold for a second opinion, too (${percent(confidence)} of answers)`;
      lines.push(make("p", { class: "tick" }, this.second, make("label", { for: "second" }, text)));
    }
    return make("div", { class: "choices" }, lines);
  }

  makeRules() {
    const { rules } = this.model;
    const list = rules.length ? make("ul", null, rules.map((rule) => make("li", null, make("code", null, rule))))
      : make("p", null, "None: every feature may change.");
    const model = make("p", { class: "quiet" }, "Model: ", marked(this.model.model));
    return make("details", { class: "rules" }, make("summary", null, "Rules that always hold"), list, model);
  }

  /** Unless an outcome was chosen: the likeliest one that the model does not say. */
  suggest(said) {
    if (this.chosen !== null || !said.probabilities) return;
    const { outcomes } = this.model;
    const shares = outcomes.map((label) => (label === said.outcome ? -1 : shareOf(said.probabilities, label)));
    this.mark(shares.indexOf(Math.max(...shares)));
  }

  mark(i) {
    if (this.list) this.list.value = String(i);
    else this.radios[i].checked = true;
  }

  /** Says which features answers keep, or where they must lie. */
  tell(locked, ranges) {
    const names = Object.keys(ranges).map(spaced), parts = [];
    if (locked.length) parts.push(`Locked: ${listed(locked.map(spaced))}.`);
    if (names.length) parts.push(`With a range: ${listed(names)}.`);
    this.kept.textContent = parts.join(" ");
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

  /** Options besides locks and ranges, as the service takes them. */
  get parameters() {
    const parameters = { confidence: this.second?.checked ? this.model.confidence : null };
    if (this.least && this.least.value !== "") parameters.min_probability = Number(this.least.value) / 100;
    return parameters;
  }

  /** Whether it can be asked; says what is missing. */
  check() {
    const least = this.parameters.min_probability, [low, high] = Array.isArray(this.target) ? this.target : [];
    let problem = "";
    if (this.target === null) problem = "Say what it should be: at least one bound.";
    else if (least !== undefined && !(least > 0 && least < 1)) problem = "A probability lies between 1 and 99 %.";
    else if ((low ?? -Infinity) >= (high ?? Infinity)) problem = "The smallest number must lie below the largest.";
    this.problem.textContent = problem;
    return problem === "";
  }

  set busy(busy) {
    this.button.disabled = busy;
    this.button.textContent = busy ? "Asking …" : "Ask";
  }
}
