// Requests to the service; every error becomes a sentence.

import { byId } from "./dom.js";

const STORAGE_KEY = "plausiflow-token";
let tokenRequest = null;

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
export const letter = (name, body) => call(`${address(name)}:letter`, body);
export const population = (name, body) => call(`${address(name)}:population`, body);
export const map = (name, body, signal) => call(`${address(name)}:map`, body, signal);

/** Return whether an error only means that a newer request replaced this one. */
export const wasAborted = (error) => error instanceof DOMException && error.name === "AbortError";

const address = (name) => `v1/models/${encodeURIComponent(name)}`;

async function call(path, body, signal) {
  const response = await send(path, body, signal);
  if (response.status === 401 && (await askForToken())) return call(path, body, signal);
  if (response.ok) return response.json();
  const content = await response.json().catch(() => null);
  const text = typeof content?.error === "string" ? content.error : `The service answered with ${response.status}.`;
  throw new Problem(text, response.status, Number(response.headers.get("Retry-After")) || 0);
}

async function send(path, body, signal) {
  const headers = {}, token = sessionStorage.getItem(STORAGE_KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(path, {
      method: body === undefined ? "GET" : "POST", headers, body: JSON.stringify(body), signal,
    });
  } catch (error) {
    if (wasAborted(error)) throw error;
    throw new Problem("The service does not answer. Check that it is still running, then try again.");
  }
}

/** Ask for a token once for all waiting requests; resolves to whether one was entered. */
function askForToken() {
  tokenRequest ??= new Promise((done) => {
    const dialog = byId("token"), text = byId("token-text");
    text.value = "";
    dialog.addEventListener("close", () => {
      tokenRequest = null;
      const used = dialog.returnValue === "use" && text.value !== "";
      if (used) sessionStorage.setItem(STORAGE_KEY, text.value);
      done(used);
    }, { once: true });
    if (sessionStorage.getItem(STORAGE_KEY)) byId("token-why").textContent = "This token is not the right one.";
    sessionStorage.removeItem(STORAGE_KEY);
    dialog.returnValue = "cancel";
    dialog.showModal();
  });
  return tokenRequest;
}
