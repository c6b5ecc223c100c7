// The start of the what-if page: it shows the model of the link, or the first one.

import * as api from "./api.js";
import { byId, make } from "./dom.js";
import { Page } from "./page.js";
import { fromFragment } from "./state.js";
import { startTheme } from "./theme.js";

let page = null;

/** Show an error that prevents the start, with a button to try again. */
function stopped(error) {
  const again = make("button", { type: "button", class: "plain", onclick: start }, "Try again");
  byId("notice").replaceChildren(make("p", null, error.message), again);
  byId("notice").hidden = false;
  byId("page").hidden = true;
}

async function start() {
  byId("notice").hidden = true;
  byId("page").hidden = false;
  try {
    const { models } = await api.models(), state = fromFragment(location.hash);
    if (!models.length) throw new api.Problem("This service has no model yet.");
    const list = byId("model"), known = state && models.includes(state.model);
    list.replaceChildren(...models.map((name) => make("option", { value: name }, name)));
    byId("model-choice").hidden = models.length < 2;
    list.onchange = () => open(list.value).catch(stopped);
    list.value = known ? state.model : models[0];
    await open(list.value, known ? state : null);
    if (state && !known) byId("linked").textContent = `The link is for the model ${state.model}, which this service does not have.`;
  } catch (error) {
    stopped(error);
  }
}

async function open(name, state = null) {
  const [model, { rows }] = await Promise.all([api.model(name), api.rows(name)]);
  document.title = `What if? – ${name} – plausiflow`;
  page?.close();
  page = new Page(model, rows);
  await page.begin(state);
}

addEventListener("hashchange", () => { if (fromFragment(location.hash)) start(); });
startTheme(byId("theme"), () => page?.repaint());
start();
