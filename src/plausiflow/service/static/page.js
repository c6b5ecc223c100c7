// One model on the page: a row, its answer, other ways and a map. Each part has its own module.

import { Answers } from "./answers.js";
import * as api from "./api.js";
import { smallestSets } from "./blocked.js";
import { byId, debounce, make } from "./dom.js";
import { Editor } from "./editor.js";
import { Export } from "./export.js";
import { counted, listed } from "./format.js";
import { askedText, headline } from "./headline.js";
import { limitText, parametersOf, releaseText } from "./limits.js";
import { Chart } from "./map.js";
import { Picker } from "./picker.js";
import { Prediction, shareOf } from "./prediction.js";
import { Question } from "./question.js";
import { fingerprint, toFragment } from "./state.js";
import { otherWays } from "./ways.js";

const PREDICT_DELAY = 120, DRAW_DELAY = 350;

export class Page {
  constructor(model, rows) {
    Object.assign(this, { model, rows, request: null, isAnswered: false, isCurrent: false, isClosed: false, isOpening: false, number: null });
    this.populations = new Map();
    const on = { use: (row) => this.use(row), limit: (limit) => this.hold(limit), choose: (i) => this.choose(i), release: (limits) => this.release(limits) };
    this.answers = new Answers(byId("cards"), model, on);
    this.prediction = new Prediction(byId("says"), model);
    this.chart = new Chart(byId("map-choice"), byId("map"), model);
    this.export = new Export(byId("take"), model, () => this.link(), () => this.reference());
    this.question = new Question(byId("question"), model, (what) => this.changed(what), () => this.ask());
    this.predictSoon = debounce(PREDICT_DELAY, () => this.predict());
    this.drawSoon = debounce(DRAW_DELAY, () => this.draw());
    this.editor = new Editor(byId("features"), model.features, (what) => this.changed(what));
    this.picker = new Picker(model, rows, (row, i) => this.open(row, i));
    byId("typical").onclick = () => this.open(model.typical, null);
    byId("back").onclick = () => this.open(this.editor.start, this.number);
    byId("map-fold").ontoggle = () => this.drawAll();
    byId("about").textContent = `${model.outcome} · ${model.name}`;
    byId("linked").textContent = "";
    this.answers.clear();
  }

  /** Open the row of a link, or the first row that is not in the favourable outcome, and ask for it. */
  async begin(state) {
    const { rows } = this;
    if (state) await this.restore(state);
    else if (!rows.length) await this.open(this.model.typical, null);
    else {
      const { at, prediction } = await this.picker.firstOpen((one) => !one.problem && !this.question.isMet(one));
      if (this.isClosed || this.isAnswered || this.request) return;
      this.picker.choose(at);
      await this.open(rows[at], at, prediction);
    }
    if (!this.isClosed) await this.picker.predictAll();
  }

  /** Show the row, the limits, the target and the options of a link. */
  async restore({ row, check, values, limits, target, options }) {
    const base = row === null ? this.model.typical : this.rows[row], known = Object.keys(values).filter((name) => this.editor.field(name));
    const problems = [];
    if (!base || check !== fingerprint(base)) problems.push("The row of this link has changed since the link was made.");
    if (base && row !== null) this.picker.choose(row);
    this.question.restore(target, options);
    this.isOpening = true;
    const unfit = [...this.editor.setLimits(limits).map(({ name }) => name), ...Object.keys(values).filter((name) => !known.includes(name))];
    if (unfit.length) problems.push(`The link holds or changes features that this model does not have or never changes: ${listed([...new Set(unfit)])}.`);
    byId("linked").textContent = problems.join(" ");
    this.edits = Object.fromEntries(known.map((name) => [name, values[name]]));
    await this.open(base ?? this.model.typical, base ? row : null, null, this.edits);
  }

  /** Return what a letter calls the row. */
  reference() {
    const name = this.number === null ? "a typical row" : `row ${this.number + 1}`;
    return this.editor.isEdited ? `${name}, edited` : name;
  }

  /** Return the address of the page as it is now. */
  link() {
    const { editor, question } = this;
    const fragment = toFragment({ model: this.model.name, row: this.number, check: fingerprint(editor.start), values: editor.edits,
      limits: editor.limits, target: question.target, options: question.options });
    return location.href.split("#")[0] + fragment;
  }

  /** End all requests, before another model is shown. */
  close() {
    this.isClosed = true;
    this.request?.abort();
    this.prediction.request?.abort();
    this.chart.close();
  }

  /** Show a row, the one at a place of the list or null for the typical one, and ask for it at once. */
  async open(row, number, prediction = null, edits = {}) {
    this.request?.abort();
    this.isOpening = true;
    this.number = number;
    this.editor.show(row);
    if (Object.keys(edits).length) this.editor.edit({ ...row, ...edits });
    this.isOpening = false;
    this.showHeld();
    if (this.isAnswered) this.answers.outdated = true;
    this.predictSoon.cancel();
    if (prediction) this.predicted(this.prediction.take(prediction));
    else await this.predict();
    if (this.isClosed) return;
    if (this.prediction.last?.problem) this.say(this.prediction.last.problem.replaceAll("`", ""));
    else if (this.question.target === null) this.wait("open");
    else await this.ask();
  }

  /** React to a change of the row or of the question; locks and targets are asked at once. */
  changed(what) {
    if (!this.editor) return;
    this.request?.abort();
    this.isCurrent = false;
    this.question.busy = false;
    this.question.tell(this.editor.limits);
    byId("back").disabled = !this.editor.isEdited;
    if (this.isOpening) return;
    this.showHeld();
    if (what === "target" || what === "lock") {
      if (this.question.target !== null) this.ask();
      return;
    }
    if (this.isAnswered) {
      this.answers.outdated = true;
      const again = make("button", { type: "button", class: "plain", onclick: () => this.ask() }, "Ask again");
      this.say("The row or the question has changed: ask again.", again);
    }
    if (what === "row") this.predictSoon();
    else this.drawSoon();
  }

  /** Show what people hold on this page, each with a way back. */
  showHeld() {
    const chips = this.editor.limits.map((limit) => make("button", { type: "button", class: "chip", "data-held": limit.name,
      "aria-label": `${limitText(limit, this.model)}. ${releaseText(limit)}`, onclick: () => this.release([limit]) }, `${limitText(limit, this.model)} ✕`));
    byId("kept").replaceChildren(...(chips.length ? [make("p", { class: "chips" }, "You hold: ", chips)] : []));
  }

  /** Hold a feature, and ask again at once. */
  hold(limit) {
    this.editor.hold(limit);
    byId("kept").querySelector(`[data-held=${CSS.escape(limit.name)}]`)?.focus();
  }

  /** Leave out limits, and ask again at once. */
  release(limits) {
    const own = limits.filter(({ name }) => name);
    for (const { kind } of limits.filter(({ name }) => !name)) this.question.drop(kind);
    if (own.length) this.editor.release(own);
    else this.ask();
    byId("answers").focus();
  }

  async predict() {
    if (this.isClosed) return;
    if (!this.editor.isReadable) {
      this.prediction.unreadable("A value of the row cannot be read: see the marked field.");
      return;
    }
    const prediction = await this.prediction.ask(this.editor.row);
    if (prediction) this.predicted(prediction);
  }

  predicted(prediction) {
    this.editor.tell(prediction.problem);
    if (prediction.problem) return;
    this.question.suggest(prediction);
    if (this.isAnswered && !this.isCurrent && !this.answers.isWaiting) this.wait("open");
    this.drawSoon();
  }

  /** Draw the map of the row without answers. */
  async draw() {
    if (this.isClosed || this.isCurrent || !this.editor.isReadable || this.prediction.last?.problem) return;
    this.drawn = [this.editor.row, [], this.question.target];
    await this.drawAll();
  }

  /** Draw the map, if it is unfolded. */
  async drawAll() {
    if (this.drawn && byId("map-fold").open) await this.chart.show(...this.drawn);
  }

  /** Show the decision about the row, without an answer. */
  wait(status) {
    const { target } = this.question;
    byId("headline").dataset.status = status;
    byId("headline").textContent = headline(this.model, this.now(target), target, status);
    byId("asked").textContent = askedText(this.model, target);
  }

  /** Return the decision of the model about the row, and the probability of the target. */
  now(target) {
    const { outcome, probabilities, value } = this.prediction.last ?? {};
    return { predicted: outcome, wanted: probabilities && target !== null ? shareOf(probabilities, target) : null, value };
  }

  async ask() {
    if (!this.editor.isReadable) {
      this.editor.reveal();
      this.say("A value of the row cannot be read: see the marked field.");
      return;
    }
    if (!this.question.check()) return;
    const { editor, question } = this, { limits } = editor, options = question.limits, row = editor.row, { target } = question;
    const fixed = { ...parametersOf(limits), ...question.parameters };
    const body = (k) => ({ instances: [row], target, parameters: { ...fixed, k } });
    this.request?.abort();
    this.request = new AbortController();
    const { signal } = this.request;
    question.busy = true;
    this.isCurrent = true;
    this.answers.outdated = this.isAnswered;
    if (!this.isAnswered) this.wait("waiting");
    this.say("Looking for the smallest realistic change …");
    try {
      // Show the best answer first; finding more answers takes longer.
      let found = await this.explained(body(1), signal);
      const more = question.k > 1 && found.status === "found", blocked = found.status === "infeasible";
      const held = [...limits, ...options];
      this.show(found, body(1), { more, limits: held, ways: blocked ? null : [] });
      this.describe(target);
      if (more) {
        const all = await this.explained(body(question.k), signal);
        this.show(otherWays(found.counterfactuals[0], all, question.k), body(question.k), { response: all });
      } else if (blocked) {
        const ways = await this.waysOut(found, body(1), limits, options, signal);
        this.answers.show(found, body(1), { limits: held, ways });
      }
      question.busy = false;
    } catch (error) {
      if (api.wasAborted(error)) return;
      question.busy = false;
      this.isCurrent = false;
      this.failed(error);
    }
  }

  /** Ask what rows with the wanted outcome are like, for the strips; the page works without it. */
  async describe(target) {
    const key = JSON.stringify(target);
    if (this.populations.has(key)) return;
    this.populations.set(key, null);
    const population = await api.population(this.model.name, { target }).catch(() => null);
    this.populations.set(key, population);
    if (population && !this.isClosed && JSON.stringify(this.question.target) === key) this.answers.describe(population);
  }

  /** Find the smallest sets of limits to leave out; options of the request only where no limit of a feature blocks. */
  async waysOut(explanation, body, limits, options, signal) {
    const trial = async (left) => {
      const kept = limits.filter((limit) => !left.includes(limit)), { certify, min_probability: least, ...rest } = body.parameters;
      const parameters = { ...rest, ...parametersOf(kept), diagnose: false };
      if (least !== undefined && !left.some(({ kind }) => kind === "least")) parameters.min_probability = least;
      if (left.some(({ kind }) => kind === "margin")) parameters.confidence = null;
      const found = await this.explained({ ...body, parameters }, signal);
      return found.status === "found" ? found.counterfactuals[0] : null;
    };
    const ways = await smallestSets(limits, trial, this.model, explanation.factual);
    if (ways.length) return ways;
    const found = await Promise.all(options.map(async (option) => ({ left: [option], answer: await trial([option]) })));
    return found.filter(({ answer }) => answer);
  }

  async explained(body, signal) {
    const response = await api.explain(this.model.name, body, signal), [explanation] = response.explanations;
    const rows = explanation.counterfactuals.map((answer) => answer.values);
    if (!this.model.outcomes.length && rows.length) {
      const { predictions } = await api.predict(this.model.name, { instances: rows }, signal);
      predictions.forEach((prediction, i) => { explanation.counterfactuals[i].prediction = prediction.value; });
    }
    return explanation;
  }

  /** Show an explanation; `response` is what the service sent, if that is not the same. */
  show(explanation, body, { chosen = 0, response = explanation, ...how }) {
    this.shown = { explanation, body, response };
    const found = explanation.counterfactuals, { target } = body, answer = found[chosen];
    const now = { predicted: explanation.predicted, wanted: explanation.probability, value: this.prediction.last?.value };
    const head = headline(this.model, now, target, explanation.status, answer);
    this.isAnswered = true;
    this.answers.outdated = false;
    this.answers.population = this.populations.get(JSON.stringify(target)) ?? null;
    byId("headline").dataset.status = explanation.status;
    byId("headline").textContent = head;
    byId("asked").textContent = askedText(this.model, target);
    this.answers.show(explanation, body, { chosen, ...how });
    this.say(how.more ? "Looking for other ways …" : "");
    this.export.show(body, response, head, answer ? answer.sentence : explanation.sentence);
    this.drawn = [body.instances[0], found, target, how.more];
    this.drawAll();
  }

  /** Show another answer in full. */
  choose(i) {
    this.show(this.shown.explanation, this.shown.body, { chosen: i, response: this.shown.response });
    byId("answers").focus();
  }

  failed(error) {
    const again = make("button", { type: "button", class: "plain", onclick: () => this.ask() }, "Try again");
    const wait = error.wait ? ` Try again in ${counted(error.wait, "second")}.` : "";
    this.say(error.message + wait, error.passing ? again : null, "wrong");
  }

  /** Make an answer the row. */
  use(row) {
    this.editor.edit(row);
    byId("edit").open = true;
    byId("row-title").scrollIntoView({ block: "start" });
  }

  say(text, action = null, className = "") {
    byId("state").className = className;
    byId("state").replaceChildren(...[text, action].filter(Boolean));
  }

  repaint() {
    this.chart.paint();
  }
}
