// Asks the service; what goes wrong becomes a sentence.

import { place } from "./dom.js";

const KEPT = "plausiflow-token";
let asking = null;

export class Problem extends Error {
  constructor(text, status = 0, wait = 0) {
    super(text);
    this.status = status;
    this.wait = wait;
  }

  /** Whether the same request may succeed later. */
  get passing() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export const models = () => call("v1/models");
export const model = (name) => call(address(name));
export const rows = (name) => call(`${address(name)}/rows`);
export const predict = (name, body, signal) => call(`${address(name)}:predict`, body, signal);
export const explain = (name, body, signal) => call(`${address(name)}:explain`, body, signal);
export const map = (name, body, signal) => call(`${address(name)}:map`, body, signal);

/** Whether an error only says that a newer request took the place of this one. */
export const wasReplaced = (error) => error instanceof DOMException && error.name === "AbortError";

const address = (name) => `v1/models/${encodeURIComponent(name)}`;

async function call(path, body, signal) {
  const answer = await sent(path, body, signal);
  if (answer.status === 401 && (await asked())) return call(path, body, signal);
  if (answer.ok) return answer.json();
  const told = await answer.json().catch(() => null);
  const text = typeof told?.error === "string" ? told.error : `The service answered with ${answer.status}.`;
  throw new Problem(text, answer.status, Number(answer.headers.get("Retry-After")) || 0);
}

async function sent(path, body, signal) {
  const headers = {}, token = sessionStorage.getItem(KEPT);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, body: JSON.stringify(body), signal,
    });
  } catch (error) {
    if (wasReplaced(error)) throw error;
    throw new Problem("The service does not answer. See whether it is still running, then try again.");
  }
}

/** Asks for a token, once for all requests that wait for it; says whether there is one. */
function asked() {
  asking ??= new Promise((done) => {
    const dialog = place("token"), text = place("token-text");
    text.value = "";
    dialog.addEventListener("close", () => {
      asking = null;
      const used = dialog.returnValue === "use" && text.value !== "";
      if (used) sessionStorage.setItem(KEPT, text.value);
      done(used);
    }, { once: true });
    if (sessionStorage.getItem(KEPT)) place("token-why").textContent = "The token that was given is not the right one.";
    sessionStorage.removeItem(KEPT);
    dialog.returnValue = "leave";
    dialog.showModal();
  });
  return asking;
}
