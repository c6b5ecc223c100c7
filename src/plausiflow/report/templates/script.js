"use strict";
// Draws the cards from the data in the page, a few at a time. Texts are set as text, never as markup.
(() => {
  const PAGE_SIZE = 20, MAX_PRINTED = 1000, MAX_FEATURES = 14, MAX_ANSWERS = 5, SVG = "http://www.w3.org/2000/svg";
  const data = JSON.parse(document.getElementById("data").textContent);
  const { rows, answers, columns, verdicts } = data;
  const place = (id) => document.getElementById(id);
  const filter = { search: "", verdict: "", order: "given", page: 0 };
  let searchable = null;

  function make(tag, attributes, ...inside) {
    return fill(document.createElement(tag), attributes, inside);
  }
  function draw(tag, attributes, ...inside) {
    return fill(document.createElementNS(SVG, tag), attributes, inside);
  }
  function fill(element, attributes, inside) {
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, String(value));
    element.append(...inside.filter((part) => part !== null && part !== ""));
    return element;
  }
  function number(value) {
    if (value === null) return "–";
    if (Math.abs(value) >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
    return String(Number(value.toPrecision(4)));
  }
  function percent(share) {
    if (share > 0 && share < 0.0005) return "under 0.1 %";
    if (share < 1 && share >= 0.9995) return "almost 100 %";
    return `${Number((100 * share).toFixed(1))} %`;
  }
  const range = (first, i) => Array.from({ length: first[i + 1] - first[i] }, (_, k) => first[i] + k);

  // One card

  function card(i) {
    const status = rows.status[i], [sign, name] = verdicts[status], own = range(rows.first, i);
    const badge = make("span", { class: `verdict ${status}` }, `${sign}\u00a0${name}`);
    const alone = make("a", { class: "alone-link", href: `#row-${i}` }, `Page of row ${rows.label[i]}`);
    const heading = make("h3", { id: `card-${i}` }, `Row ${rows.label[i]}`, badge, " ", alone);
    const parts = [outcomes(i), make("p", { class: "sentence" }, rows.sentence[i])];
    if (!rows.sentence[i].includes(rows.reason[i])) {
      parts.push(make("p", { class: "quiet" }, `${own.length ? "Note" : "Reason"}: ${rows.reason[i]}`));
    }
    const [best] = own, inside = make("div", { class: "inside" });
    if (own.length) {
      inside.append(
        make("div", null, ...values(i, data.changes, answers.first, best, "Would be")),
        make("div", { class: "beside" }, density(i, own), figures(best)),
      );
      if (own.length > 1) inside.append(alternatives(own.slice(1)));
    } else {
      inside.append(make("div", { class: "alone" }, ...withoutAnswer(i)));
    }
    return make("article", { class: "card", "aria-labelledby": `card-${i}` }, heading, ...parts, inside);
  }
  function outcomes(i) {
    const known = [];
    if (rows.predicted[i]) known.push(`predicted ${rows.predicted[i]}`);
    if (rows.target[i]) known.push(`target ${rows.target[i]}`);
    if (rows.probability[i] !== null) known.push(`current probability of the target ${percent(rows.probability[i])}`);
    return known.length ? make("p", { class: "quiet" }, `${data.outcome}: ${known.join(", ")}`) : null;
  }
  function withoutAnswer(i) {
    const misses = range(rows.misses, i);
    if (!misses.length) return values(i, null, null, 0, "");
    return misses.flatMap((miss) => [
      make("h4", null, "Nearest miss"),
      make("p", null, data.misses.why[miss]),
      ...values(i, data.missChanges, data.misses.first, miss, "Nearest miss"),
    ]);
  }

  // Before and after

  function values(i, changes, first, answer, after) {
    const changed = new Map();
    if (changes) for (const cell of range(first, answer)) changed.set(changes.column[cell], cell);
    const line = (j) => valueLine(i, j, changes, changed.get(j));
    const where = after ? `row ${rows.label[i]}, ${after}` : `row ${rows.label[i]}`;
    const all = columns.map((_, j) => j), head = after ? ["Feature", "Now", after, "Change"] : ["Feature", "Now"];
    if (all.length <= MAX_FEATURES || !changes) {
      if (changes) return [grid("Before and after; changed features are marked", where, head, all.map(line))];
      return [folded(`The row's ${all.length} features`, () => grid("The row", where, head, all.map(line)))];
    }
    const kept = all.filter((j) => !changed.has(j));
    return [
      grid("Features that change", where, head, all.filter((j) => changed.has(j)).map(line)),
      folded(`${kept.length} features that do not change`, () => grid("Features that do not change", where, head, kept.map(line))),
    ];
  }
  function valueLine(i, j, changes, cell) {
    const now = columns[j].texts[columns[j].codes[i]], name = make("th", { scope: "row" }, columns[j].name);
    if (!changes) return make("tr", { class: "kept" }, name, make("td", null, now));
    if (cell === undefined) {
      return make("tr", { class: "kept" }, name, make("td", null, now), make("td", null, now), make("td", null, "–"));
    }
    return make("tr", { class: "changed" }, name, make("td", null, changes.before[cell]),
      make("td", null, changes.after[cell]), make("td", null, purposeText(changes, cell)));
  }
  function purposeText(changes, cell) {
    const move = moveText(changes.move[cell]), purpose = changes.purpose[cell];
    return purpose ? `${move}, ${purpose}` : move;
  }
  function moveText(move) {
    if (move === null || move === 0) return "◆ different value";
    const share = Math.abs(move) < 0.0005 ? "under 0.1 %" : percent(Math.abs(move));
    return `${move > 0 ? "▲ up" : "▼ down"} ${share} of range`;
  }
  function grid(caption, where, head, lines) {
    const top = make("tr", null, ...head.map((text) => make("th", { scope: "col" }, text)));
    const made = make("table", null, make("caption", null, caption), make("thead", null, top),
      make("tbody", null, ...lines));
    return make("div", { class: "wide", role: "region", "aria-label": `${caption}: ${where}`, tabindex: 0 }, made);
  }
  function folded(title, inside) {
    const details = make("details", null, make("summary", null, title));
    details.addEventListener("toggle", () => details.append(inside()), { once: true });
    return details;
  }

  // How plausible the answers are, compared with real rows

  function density(i, own) {
    const curve = data.curves[rows.curve[i]], score = answers.score ? answers.score[own[0]] : null;
    if (score === null) return "";
    const where = `plausibility score ${number(score)} (threshold 0)`;
    if (!curve) return make("p", null, where);
    const share = answers.denser ? answers.denser[own[0]] : null;
    const text = share === null ? where : `${where}; more typical than ${percent(share)} of real rows`;
    const label = `Plausibility scores of real rows with the outcome ${curve.label}, and of the answer: ${text}`;
    return make("figure", null, picture(curve, own, label), make("figcaption", null, `● answer: ${text}`));
  }
  function picture(curve, own, label) {
    const width = 264, base = 78, top = 18, points = curve.points;
    const low = points[0][0], high = points[points.length - 1][0];
    const x = (value) => Math.min(width - 6, Math.max(6, 6 + (width - 12) * (value - low) / (high - low)));
    const y = (height) => base - (base - top) * height;
    const path = points.map(([at, height]) => `L${x(at).toFixed(1)} ${y(height).toFixed(1)}`).join("");
    const zero = x(0).toFixed(1), anchor = x(0) < width / 3 ? "start" : x(0) > 2 * width / 3 ? "end" : "middle";
    const marks = own.filter((answer) => answers.score[answer] !== null).reverse().map((answer) => draw("circle", {
      cx: x(answers.score[answer]).toFixed(1), cy: base, r: answer === own[0] ? 6 : 4,
      class: answer === own[0] ? "best" : "other",
    }));
    return draw("svg", { class: "chart", width, height: 104, viewBox: `0 0 ${width} 104`, role: "img",
      "aria-label": label }, draw("title", null, label),
    draw("path", { class: "real", d: `M${x(low).toFixed(1)} ${base}${path}L${x(high).toFixed(1)} ${base}Z` }),
    draw("line", { class: "axis", x1: 0, x2: width, y1: base, y2: base }),
    draw("line", { class: "threshold", x1: zero, x2: zero, y1: top - 4, y2: base }),
    draw("text", { x: zero, y: top - 7, "text-anchor": anchor }, "threshold"),
    draw("text", { x: 0, y: 100 }, "less typical"), draw("text", { x: width, y: 100, "text-anchor": "end" }, "more typical"),
    ...marks);
  }
  function figures(answer) {
    const shown = { cost: number, probability: percent, prediction: number, judged: percent, steady: percent };
    const lines = Object.entries(shown).filter(([name]) => answers[name] && answers[name][answer] !== null);
    return make("dl", null, ...lines.map(([name, text]) => make("div", null,
      make("dt", null, data.figures[name]), make("dd", null, text(answers[name][answer])))));
  }
  function alternatives(others) {
    const shares = ["probability", "judged"];
    const names = ["cost", "probability", "prediction", "score", "judged"].filter((name) => answers[name]);
    const lines = others.map((answer) => {
      const known = names.filter((name) => answers[name][answer] !== null);
      const texts = known.map((name) => `${data.figures[name].toLowerCase()} ${(shares.includes(name) ? percent : number)(answers[name][answer])}`);
      return make("li", null, answers.sentence[answer], make("div", { class: "quiet" }, texts.join(", ")));
    });
    const rest = lines.splice(MAX_ANSWERS), list = (start, own) => make("ol", { start }, ...own);
    return make("div", { class: "alone" }, make("h4", null, "Other answers"), list(2, lines),
      rest.length ? folded(`${rest.length} more answers`, () => list(MAX_ANSWERS + 2, rest)) : null);
  }

  // Search, filter, order and pages

  function matching() {
    const words = filter.search.toLowerCase().split(/\s+/).filter(Boolean);
    const all = rows.status.map((_, i) => i).filter((i) =>
      (!filter.verdict || rows.status[i] === filter.verdict) && words.every((word) => text(i).includes(word)));
    const figure = answers[filter.order];
    if (!figure) return all;
    const sign = filter.order === "score" ? 1 : -1;
    const key = (i) => {
      const value = rows.first[i] < rows.first[i + 1] ? figure[rows.first[i]] : null;
      return value === null ? Infinity : sign * value;
    };
    return all.map((i) => [key(i), i]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] - b[1])).map((p) => p[1]);
  }
  function text(i) {
    searchable ??= rows.label.map((label, k) => [label, verdicts[rows.status[k]][1], rows.reason[k],
      rows.predicted[k], rows.target[k], rows.sentence[k],
      ...columns.map((column) => column.texts[column.codes[k]])].join("\n").toLowerCase());
    return searchable[i];
  }
  function show() {
    const all = matching(), pages = Math.max(1, Math.ceil(all.length / PAGE_SIZE));
    filter.page = Math.min(filter.page, pages - 1);
    const own = all.slice(filter.page * PAGE_SIZE, (filter.page + 1) * PAGE_SIZE);
    showOne(null);
    place("cards").replaceChildren(...own.map(card));
    const first = filter.page * PAGE_SIZE;
    place("shown").textContent = own.length
      ? `Cards ${first + 1} to ${first + own.length} of ${all.length}, page ${filter.page + 1} of ${pages}`
      : "No row matches.";
    const turn = (name, by) => {
      const button = make("button", { type: "button" }, name), to = filter.page + by;
      button.disabled = to < 0 || to >= pages;
      button.addEventListener("click", () => { filter.page = to; show(); place("rows").focus(); });
      return button;
    };
    place("pages").replaceChildren(turn("Previous page", -1), turn("Next page", 1));
    place("pages").hidden = pages < 2;
  }

  // One row on its own page, and all rows on paper

  function linked() {
    const found = /^#row-(\d+)$/.exec(location.hash);
    return found && Number(found[1]) < rows.status.length ? Number(found[1]) : null;
  }
  function showOne(i) {
    place("main").setAttribute("class", i === null ? "" : "one");
    place("one-controls").hidden = i === null;
    if (i !== null) place("cards").replaceChildren(card(i));
  }
  function navigate() {
    const i = linked();
    if (i === null) show();
    else showOne(i);
  }
  function printed() {
    if (linked() === null) place("cards").replaceChildren(...matching().slice(0, MAX_PRINTED).map(card));
  }
  addEventListener("hashchange", navigate);
  addEventListener("beforeprint", printed);
  addEventListener("afterprint", navigate);
  place("print").addEventListener("click", () => print());

  for (const name of ["search", "verdict", "order"]) {
    place(name).addEventListener("input", (event) => {
      Object.assign(filter, { [name]: event.target.value, page: 0 });
      show();
    });
  }
  place("controls").hidden = !rows.status.length;
  navigate();
})();
