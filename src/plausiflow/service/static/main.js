// The what-if page: a row, a question, answers and a map. Each part has its own module.

import { Answers } from "./answers.js";
import * as api from "./api.js";
import { make, byId, debounce } from "./dom.js";
import { Editor } from "./editor.js";
import { Chart } from "./map.js";
import { Picker } from "./picker.js";
import { Question } from "./question.js";
import { Prediction } from "./prediction.js";
import { Export } from "./export.js";
import { startTheme } from "./theme.js";
import { counted, wantedText } from "./format.js";

const PREDICT_DELAY = 120, DRAW_DELAY = 350;

let page = null;

class Page {
  constructor(model, rows) {
    this.model = model;
    this.request = null;
    this.isAnswered = false;
    this.isCurrent = false;
    this.answers = new Answers(byId("cards"), model, (row) => this.use(row));
    this.prediction = new Prediction(byId("says"), model);
    this.chart = new Chart(byId("map-choice"), byId("map"), model);
    this.export = new Export(byId("take"));
    this.question = new Question(byId("question"), model, () => this.changed("question"), () => this.ask());
    this.predictSoon = debounce(PREDICT_DELAY, () => this.predict());
    this.drawSoon = debounce(DRAW_DELAY, () => this.draw());
    this.editor = new Editor(byId("features"), model.features, (what) => this.changed(what));
    this.picker = new Picker(model, rows, (row) => this.editor.show(row));
    byId("typical").onclick = () => this.editor.show(model.typical);
    byId("back").onclick = () => this.editor.show(this.editor.start);
    byId("about").textContent = `${model.outcome} · ${model.name}`;
    this.say("Choose what it should be, then ask.");
    this.answers.clear();
    if (rows.length) this.picker.choose(0);
    this.editor.show(rows[0] ?? model.typical);
  }

  /** End all requests, before another model is shown. */
  close() {
    this.request?.abort();
    this.prediction.request?.abort();
    this.chart.close();
  }

  /** React to a change of the row or of the question. */
  changed(what) {
    if (!this.editor) return;
    this.request?.abort();
    this.isCurrent = false;
    this.question.busy = false;
    this.question.tell(this.editor.locked, this.editor.ranges);
    byId("back").disabled = !this.editor.isEdited;
    if (this.isAnswered) {
      this.answers.outdated = true;
      this.say("The row or the question has changed: ask again.");
    }
    if (what === "row") this.predictSoon();
    else this.drawSoon();
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
    this.drawSoon();
  }

  /** Draw the map of the row without answers. */
  async draw() {
    if (page !== this || this.isCurrent || !this.editor.isReadable || this.prediction.last?.problem) return;
    await this.chart.show(this.editor.row, [], this.question.target);
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
    const { signal } = this.request, started = performance.now();
    question.busy = true;
    this.isCurrent = true;
    this.answers.outdated = this.isAnswered;
    this.say(`Looking for a row that the model decides as ${wantedText(target)} …`);
    try {
      // Show the best answer first; finding more answers takes longer.
      let found = await this.explained(body(1), signal);
      const more = question.k > 1 && found.status === "found";
      this.show(found, body(1), started, more);
      if (more) {
        found = await this.explained(body(question.k), signal);
        this.show(found, body(question.k), started, false);
      }
      question.busy = false;
    } catch (error) {
      if (api.wasAborted(error)) return;
      question.busy = false;
      this.isCurrent = false;
      this.failed(error);
    }
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

  show(explanation, body, started, more) {
    const found = explanation.counterfactuals, seconds = ((performance.now() - started) / 1000).toFixed(1);
    const wanted = `${this.model.outcome} is ${wantedText(body.target)}`;
    const what = found.length ? `${counted(found.length, "answer")} for: ${wanted}` : `No answer for: ${wanted}`;
    this.isAnswered = true;
    this.answers.outdated = false;
    this.answers.show(explanation, { target: body.target, locked: body.parameters.locked });
    this.say(explanation.status === "already" ? `Nothing needs to change: ${wanted}.`
      : `${what}, after ${seconds} s.${more ? " Looking for others …" : ""}`);
    this.export.show(this.model, body, explanation);
    this.chart.show(body.instances[0], found, body.target, more);
  }

  failed(error) {
    const again = make("button", { type: "button", class: "plain", onclick: () => this.ask() }, "Try again");
    const wait = error.wait ? ` Try again in ${counted(error.wait, "second")}.` : "";
    this.say(error.message + wait, error.passing ? again : null, "wrong");
  }

  /** Make an answer the row. */
  use(row) {
    this.editor.edit(row);
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
}

startTheme(byId("theme"), () => page?.repaint());
start();
