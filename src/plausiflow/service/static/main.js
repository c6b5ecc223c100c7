// The what-if page: a row, its answer, other ways and a map. Each part has its own module.

import { Answers } from "./answers.js";
import * as api from "./api.js";
import { limitText, ownLimits, without } from "./blocked.js";
import { make, byId, debounce } from "./dom.js";
import { Editor } from "./editor.js";
import { askedText, headline } from "./headline.js";
import { Chart } from "./map.js";
import { Picker } from "./picker.js";
import { Question } from "./question.js";
import { Prediction, shareOf } from "./prediction.js";
import { Export } from "./export.js";
import { startTheme } from "./theme.js";
import { counted } from "./format.js";

const PREDICT_DELAY = 120, DRAW_DELAY = 350;

let page = null;

class Page {
  constructor(model, rows) {
    this.model = model;
    this.request = null;
    this.isAnswered = false;
    this.isCurrent = false;
    const on = { use: (row) => this.use(row), keep: (name) => this.keep(name), choose: (i) => this.choose(i) };
    this.answers = new Answers(byId("cards"), model, on);
    this.prediction = new Prediction(byId("says"), model);
    this.chart = new Chart(byId("map-choice"), byId("map"), model);
    this.export = new Export(byId("take"));
    this.question = new Question(byId("question"), model, (what) => this.changed(what), () => this.ask());
    this.predictSoon = debounce(PREDICT_DELAY, () => this.predict());
    this.drawSoon = debounce(DRAW_DELAY, () => this.draw());
    this.editor = new Editor(byId("features"), model.features, (what) => this.changed(what));
    this.picker = new Picker(model, rows, (row) => this.open(row));
    byId("typical").onclick = () => this.open(model.typical);
    byId("back").onclick = () => this.open(this.editor.start);
    byId("map-fold").ontoggle = () => this.drawAll();
    byId("about").textContent = `${model.outcome} · ${model.name}`;
    byId("headline").textContent = "Loading …";
    this.answers.clear();
  }

  /** Open the first row that is not in the favourable outcome, and ask for it. */
  async begin(rows) {
    const first = rows.length ? await this.picker.firstOpen((one) => !one.problem && !this.question.isMet(one)) : -1;
    if (page !== this || this.isAnswered || this.request) return;
    if (rows.length) this.picker.choose(Math.max(0, first));
    await this.open(rows[Math.max(0, first)] ?? this.model.typical);
  }

  /** End all requests, before another model is shown. */
  close() {
    this.request?.abort();
    this.prediction.request?.abort();
    this.chart.close();
  }

  /** Show a row and ask for it at once. */
  async open(row) {
    this.isAnswered = false;
    this.answers.clear();
    this.editor.show(row);
    this.predictSoon.cancel();
    await this.predict();
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
    this.question.tell(this.editor.locked, this.editor.ranges);
    this.showKept();
    byId("back").disabled = !this.editor.isEdited;
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

  /** Show the features that people keep on this page, each with a way back. */
  showKept() {
    const buttons = this.editor.locked.map((name) => make("button", { type: "button", class: "chip", "data-kept": name,
      "aria-label": `Let ${name} change again`, onclick: () => this.release(name) }, `${name} ✕`));
    byId("kept").replaceChildren(...(buttons.length ? [make("p", { class: "chips" }, "Kept as it is: ", buttons)] : []));
  }

  keep(name) {
    this.editor.lock(name, true);
    byId("kept").querySelector(`[data-kept=${CSS.escape(name)}]`)?.focus();
  }

  release(name) {
    this.editor.lock(name, false);
    byId("answers").focus();
  }

  async predict() {
    if (page !== this) return;
    if (!this.editor.isReadable) {
      this.prediction.unreadable("A value of the row cannot be read: see the marked field.");
      return;
    }
    const prediction = await this.prediction.ask(this.editor.row);
    if (!prediction) return;
    this.editor.tell(prediction.problem);
    if (prediction.problem) return;
    this.question.suggest(prediction);
    if (this.isAnswered && !this.isCurrent) this.wait("open");
    this.drawSoon();
  }

  /** Draw the map of the row without answers. */
  async draw() {
    if (page !== this || this.isCurrent || !this.editor.isReadable || this.prediction.last?.problem) return;
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
      this.say("A value of the row cannot be read: see the marked field.");
      return;
    }
    if (!this.question.check()) return;
    const { editor, question } = this, row = editor.row, { target } = question;
    const fixed = { locked: editor.locked, ranges: editor.ranges, ...question.parameters };
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
      const more = question.k > 1 && found.status === "found";
      this.show(found, body(1), more);
      if (more) {
        found = await this.explained(body(question.k), signal);
        this.show(found, body(question.k), false);
      } else if (found.status === "infeasible") {
        await this.findWays(found, body(1), signal);
      }
      question.busy = false;
    } catch (error) {
      if (api.wasAborted(error)) return;
      question.busy = false;
      this.isCurrent = false;
      this.failed(error);
    }
  }

  /** Try to leave out each limit that people set; offer those that give an answer. */
  async findWays(explanation, body, signal) {
    const ways = [];
    for (const limit of ownLimits(body.parameters, explanation.reason, this.model)) {
      const found = await this.explained({ ...body, parameters: without(body.parameters, limit) }, signal);
      if (found.status !== "found") continue;
      ways.push([limitText(limit), () => this.leaveOut(limit)]);
      this.answers.show(explanation, body, { ways });
    }
  }

  leaveOut({ kind, name }) {
    if (kind === "lock") this.editor.lock(name, false);
    else if (kind === "range") this.editor.free(name);
    else {
      this.question.drop(kind);
      this.ask();
    }
    byId("answers").focus();
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

  show(explanation, body, more, chosen = 0) {
    this.shown = { explanation, body };
    const found = explanation.counterfactuals, { target } = body, answer = found[chosen];
    const now = { predicted: explanation.predicted, wanted: explanation.probability, value: this.prediction.last?.value };
    const head = headline(this.model, now, target, explanation.status, answer);
    this.isAnswered = true;
    this.answers.outdated = false;
    byId("headline").dataset.status = explanation.status;
    byId("headline").textContent = head;
    byId("asked").textContent = askedText(this.model, target);
    this.answers.show(explanation, body, { chosen, more });
    this.say(more ? "Looking for other ways …" : "");
    this.export.show(this.model, body, explanation, head, answer ? answer.sentence : explanation.sentence);
    this.drawn = [body.instances[0], found, target, more];
    this.drawAll();
  }

  /** Show another answer in full. */
  choose(i) {
    this.show(this.shown.explanation, this.shown.body, false, i);
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

/** Show an error that prevents the start, with a button to try again. */
function stopped(error) {
  const again = make("button", { type: "button", class: "plain", onclick: start }, "Try again");
  byId("notice").replaceChildren(make("p", null, error.message), again);
  byId("notice").hidden = false;
}

async function start() {
  byId("notice").hidden = true;
  try {
    const { models } = await api.models();
    if (!models.length) throw new api.Problem("This service has no model yet.");
    const list = byId("model");
    list.replaceChildren(...models.map((name) => make("option", { value: name }, name)));
    byId("model-choice").hidden = models.length < 2;
    list.onchange = () => open(list.value).catch(stopped);
    await open(models[0]);
  } catch (error) {
    stopped(error);
  }
}

async function open(name) {
  const [model, { rows }] = await Promise.all([api.model(name), api.rows(name)]);
  document.title = `What if? – ${name} – plausiflow`;
  byId("page").hidden = false;
  page?.close();
  page = new Page(model, rows);
  await page.begin(rows);
}

startTheme(byId("theme"), () => page?.repaint());
start();
