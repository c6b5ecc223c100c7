// Values and figures as text for people.

export const MISSING = "missing";

export const isNumber = (feature) => ["number", "integer", "continuous"].includes(feature.kind);

export const hasLevels = (feature) => ["boolean", "category", "ordered"].includes(feature.kind);

/** Return the text of a level, a label or a boolean. */
export function levelText(value) {
  if (value === null || value === undefined) return MISSING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  return String(value);
}

/** Return the text of a value; numbers have thousands separators and the decimals of their grid. */
export function valueText(feature, value) {
  if (!isNumber(feature) || typeof value !== "number") return levelText(value);
  return numberText(value, decimalsOf(feature), isYear(feature));
}

function numberText(value, decimals, bare) {
  const most = Number.isInteger(value) ? 0 : Math.max(decimals, Math.abs(value) < 1 ? 4 : 2);
  return value.toLocaleString("en", {
    minimumFractionDigits: Math.min(decimals, 20), maximumFractionDigits: Math.max(decimals, most), useGrouping: !bare,
  });
}

export function decimalsOf(feature) {
  if (feature.step) {
    const [, decimals = ""] = String(feature.step).split(".");
    return feature.step < 1e-6 ? 6 : decimals.length;
  }
  const span = feature.largest - feature.smallest;
  return span > 0 ? Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(span)))) : 0;
}

function isYear(feature) {
  return !decimalsOf(feature) && feature.smallest >= 1800 && feature.largest <= 2200;
}

/** Return a number with about three digits. */
export function formatFigure(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return String(Number(value.toPrecision(3)));
}

/** Return a share in per cent; only 0 and 1 are shown as 0 % and 100 %. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  const text = (100 * share).toFixed(1);
  if (share < 1 && text === "100.0") return "over\u00a099.9\u00a0%";
  if (share > 0 && text === "0.0") return "under\u00a00.1\u00a0%";
  return `${Number(text)}\u00a0%`;
}

/** Return a share in whole per cent. */
export function rounded(share) {
  if (share === null || share === undefined) return "–";
  if (share > 0 && share < 0.005) return "under\u00a01\u00a0%";
  if (share < 1 && share > 0.995) return "over\u00a099\u00a0%";
  return `${Math.round(100 * share)}\u00a0%`;
}

/** Return the distance of a score from the threshold. */
export function nats(score) {
  const [size, side] = [Math.abs(score), score < 0 ? "below" : "above"];
  return `${size.toFixed(size < 10 ? 2 : 0)} nats ${side} the threshold`;
}

/** Return the same distance as a ratio of densities, for people who do not use nats. */
export function timesAsDense(score) {
  const ratio = Math.exp(Math.abs(score));
  const much = ratio >= 1000 ? "over 1,000" : Number(ratio.toPrecision(2)).toLocaleString("en");
  if (Math.abs(score) < 0.05) return "at the threshold";
  return score < 0 ? `${much} times less dense than required` : `${much} times as dense as required`;
}

export function listed(parts) {
  if (parts.length < 2) return parts.join("");
  return `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}`;
}

export const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;

/** Return the text of a target: a label, or an interval of a predicted number. */
export function wantedText(target) {
  if (!Array.isArray(target)) return levelText(target);
  const [low, high] = target;
  if (low === null) return `at most ${formatFigure(high)}`;
  return high === null ? `at least ${formatFigure(low)}` : `${formatFigure(low)} to ${formatFigure(high)}`;
}

export function same(a, b) {
  return a === b || (a ?? null) === (b ?? null);
}
