// What a redrawn part of the page keeps: focus, what is unfolded and what was typed. And toolbars, which are one tab stop.

const keyed = (element, key) => element.querySelector(`[data-key=${CSS.escape(key)}]`);

/** Redraw `element` by calling `replace`; controls with the same `data-key` stay as they are. */
export function keep(element, replace, instead) {
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.key ?? "" : null;
  const unfolded = [...element.querySelectorAll("details[data-key][open]")].map((one) => one.dataset.key);
  const forms = [...element.querySelectorAll("form[data-key]:not([hidden])")].map((form) => form.dataset.key);
  const typed = [...element.querySelectorAll("form[data-key]:not([hidden]) input[data-key]")].map((input) => [input.dataset.key, input.value]);
  replace();
  for (const key of unfolded) if (keyed(element, key)) keyed(element, key).open = true;
  for (const form of forms.map((key) => keyed(element, key)).filter(Boolean)) showForm(element, form, true);
  for (const [key, text] of typed) if (keyed(element, key)) keyed(element, key).value = text;
  if (focused !== null && !element.contains(document.activeElement)) {
    ((focused && keyed(element, focused)) || instead).focus({ preventScroll: true });
  }
}

/** Show or hide a form that a button with `aria-controls` opens. */
export function showForm(element, form, shown) {
  form.hidden = !shown;
  element.querySelector(`[aria-controls=${CSS.escape(form.id)}]`)?.setAttribute("aria-expanded", String(shown));
}

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Make one tab stop of the buttons of a toolbar; the arrow keys go from one to the next. */
export function asToolbar(bar, buttons) {
  const choose = (chosen) => buttons.forEach((button) => { button.tabIndex = button === chosen ? 0 : -1; });
  bar.setAttribute("role", "toolbar");
  bar.addEventListener("focusin", ({ target }) => { if (buttons.includes(target)) choose(target); });
  bar.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(event.target), step = STEPS[event.key];
    if (at < 0 || !step) return;
    event.preventDefault();
    buttons[(at + step + buttons.length) % buttons.length].focus();
  });
  choose(buttons[0]);
  return bar;
}
