// The what-if page: a row, a question, answers, a map. Each part stands in a module of its own.

import { Answers } from "./answers.js";
import * as api from "./api.js";
import { make, place, settled } from "./dom.js";
import { Editor } from "./editor.js";
import { Chart } from "./map.js";
import { Picker } from "./picker.js";
import { Question } from "./question.js";
import { Says } from "./says.js";
import { Take } from "./take.js";
import { startTheme } from "./theme.js";
import { counted, spaced, wantedText } from "./words.js";

const TYPING = 120, RESTING = 350;

let page = null;

class Page {
  constructor(model, rows) {
    this.model = model;
    this.request = null;
    this.isAnswered = false;
    this.isCurrent = false;
    this.answers = new Answers(place("cards"), model, (row) => this.use(row));
    this.says = new Says(place("says"), model);
    this.chart = new Chart(place("map-choice"), place("map"), model);
    this.take = new Take(place("take"));
    this.question = new Question(place("question"), model, () => this.changed("question"), () => this.ask());
    this.predictSoon = settled(TYPING, () => this.predict());
    this.drawSoon = settled(RESTING, () => this.draw());
    this.editor = new Editor(place("features"), model.features, (what) => this.changed(what));
    this.picker = new Picker(model, rows, (row) => this.editor.show(row));
    place("typical").onclick = () => this.editor.show(model.typical);
    place("back").onclick = () => this.editor.show(this.editor.start);
    place("about").textContent = `${spaced(model.outcome)} · ${model.name}`;
    this.say("Choose what it should be, then ask.");
    this.answers.clear();
    if (rows.length) this.picker.choose(0);
    this.editor.show(rows[0] ?? model.typical);
  }

  /** Another model takes its place. */
  close() {
    this.request?.abort();
    this.says.request?.abort();
    this.chart.close();
  }

  /** The row or the question is another one. */
  changed(what) {
    if (!this.editor) return;
    this.request?.abort();
    this.isCurrent = false;
    this.question.busy = false;
    this.question.tell(this.editor.locked, this.editor.ranges);
    place("back").disabled = !this.editor.isEdited;
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
      this.says.unreadable("A value of the row cannot be read: see the marked field.");
      return;
    }
    const said = await this.says.ask(this.editor.row);
    if (!said) return;
    this.editor.tell(said.problem);
    if (said.problem) return;
    this.question.suggest(said);
    this.drawSoon();
  }

  /** The map of the row alone, once its outcome is known. */
  async draw() {
    if (page !== this || this.isCurrent || !this.editor.isReadable || this.says.last?.problem) return;
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
      // The best answer comes first; others, which take longer, follow.
      let found = await this.explained(body(1), signal);
      const more = question.k > 1 && found.status === "found";
      this.show(found, body(1), started, more);
      if (more) {
        found = await this.explained(body(question.k), signal);
        this.show(found, body(question.k), started, false);
      }
      question.busy = false;
    } catch (error) {
      if (api.wasReplaced(error)) return;
      question.busy = false;
      this.isCurrent = false;
      this.failed(error);
    }
  }

  async explained(body, signal) {
    const told = await api.explain(this.model.name, body, signal), [explanation] = told.explanations;
    const rows = explanation.counterfactuals.map((answer) => answer.values);
    if (!this.model.outcomes.length && rows.length) {
      const { predictions } = await api.predict(this.model.name, { instances: rows }, signal);
      predictions.forEach((said, i) => { explanation.counterfactuals[i].prediction = said.value; });
    }
    return explanation;
  }

  show(explanation, body, started, more) {
    const found = explanation.counterfactuals, seconds = ((performance.now() - started) / 1000).toFixed(1);
    const wanted = `${spaced(this.model.outcome)} is ${wantedText(body.target)}`;
    const what = found.length ? `${counted(found.length, "answer")} for: ${wanted}` : `No answer for: ${wanted}`;
    this.isAnswered = true;
    this.answers.outdated = false;
    this.answers.show(explanation, { target: body.target, locked: body.parameters.locked });
    this.say(explanation.status === "already" ? `Already so: ${wanted}.`
      : `${what}, after ${seconds} s.${more ? " Looking for others …" : ""}`);
    this.take.show(this.model, body, explanation);
    this.chart.show(body.instances[0], found, body.target, more);
  }

  failed(error) {
    const again = make("button", { type: "button", class: "plain", onclick: () => this.ask() }, "Try again");
    const wait = error.wait ? ` Try again in ${counted(error.wait, "second")}.` : "";
    this.say(error.message + wait, error.passing ? again : null, "wrong");
  }

  /** An answer becomes the row. */
  use(row) {
    this.editor.edit(row);
    place("row-title").scrollIntoView({ block: "start" });
  }

  say(text, action = null, className = "") {
    place("state").className = className;
    place("state").replaceChildren(...[text, action].filter(Boolean));
  }

  repaint() {
    this.chart.paint();
  }
}

/** Anything that keeps the page from starting, with a way to try again. */
function stopped(error) {
  const again = make("button", { type: "button", class: "plain", onclick: start }, "Try again");
  place("notice").replaceChildren(make("p", null, error.message), again);
  place("notice").hidden = false;
}

async function start() {
  place("notice").hidden = true;
  try {
    const { models } = await api.models();
    if (!models.length) throw new api.Problem("This service has no model yet.");
    const list = place("model");
    list.replaceChildren(...models.map((name) => make("option", { value: name }, name)));
    place("model-choice").hidden = models.length < 2;
    list.onchange = () => open(list.value).catch(stopped);
    await open(models[0]);
  } catch (error) {
    stopped(error);
  }
}

async function open(name) {
  const [model, { rows }] = await Promise.all([api.model(name), api.rows(name)]);
  document.title = `What if? – ${name} – plausiflow`;
  place("page").hidden = false;
  page?.close();
  page = new Page(model, rows);
}

startTheme(place("theme"), () => page?.repaint());
start();
