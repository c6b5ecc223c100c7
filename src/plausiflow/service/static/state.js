// The state of the page in the part of an address after "#", which browsers do not send to the service: the row, the
// values that were edited, the limits, the target and the options.

import { KINDS } from "./limits.js";

/** Return a short text that is the same for the same row. */
export function fingerprint(row) {
  let hash = 2166136261;
  for (const character of JSON.stringify(row)) hash = Math.imul(hash ^ character.codePointAt(0), 16777619);
  return (hash >>> 0).toString(36);
}

/** Return the fragment of a state: `model`, `row` (its number, or null for the typical one), `check`, `values`, `limits`, `target`, `options`. */
export function toFragment({ model, row, check, values, limits, target, options }) {
  const parts = new URLSearchParams({ model });
  if (row !== null) parts.set("row", String(row + 1));
  parts.set("check", check);
  if (Object.keys(values).length) parts.set("values", JSON.stringify(values));
  for (const { kind, name, bounds } of limits) parts.append(kind, JSON.stringify(kind === "range" ? [name, ...bounds] : name));
  if (target !== null) parts.set("target", JSON.stringify(target));
  for (const [name, value] of Object.entries(options)) parts.set(name, JSON.stringify(value));
  return `#${parts}`;
}

/** Return the state of a fragment, or null if there is none; what cannot be read is left out. */
export function fromFragment(fragment) {
  const parts = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!parts.get("model")) return null;
  const row = Number(parts.get("row")) - 1, values = read(parts.get("values"));
  const limits = KINDS.flatMap((kind) => parts.getAll(kind).map(read).map((found) => toLimit(kind, found)).filter(Boolean));
  const options = Object.fromEntries(["k", "least", "margin"].map((name) => [name, read(parts.get(name))]).filter(([, value]) => value !== null));
  return {
    model: parts.get("model"), row: Number.isInteger(row) && row >= 0 ? row : null, check: parts.get("check"),
    values: values && typeof values === "object" && !Array.isArray(values) ? values : {}, limits, target: read(parts.get("target")), options,
  };
}

function toLimit(kind, found) {
  if (kind !== "range") return typeof found === "string" ? { kind, name: found } : null;
  if (!Array.isArray(found) || found.length !== 3 || typeof found[0] !== "string") return null;
  const [name, ...bounds] = found, fine = bounds.every((bound) => bound === null || typeof bound === "number");
  return fine && bounds.some((bound) => bound !== null) ? { kind, name, bounds } : null;
}

function read(text) {
  try {
    return text === null ? null : JSON.parse(text);
  } catch {
    return null;
  }
}
