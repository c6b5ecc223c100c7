// Light or dark colours: those of the system, or those chosen here.

const STORAGE_KEY = "plausiflow-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

export function startTheme(button, onChange) {
  const show = () => {
    const chosen = localStorage.getItem(STORAGE_KEY), now = chosen ?? (dark.matches ? "dark" : "light");
    if (chosen) document.documentElement.dataset.theme = chosen;
    button.textContent = now === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Use ${now === "dark" ? "light" : "dark"} colours`);
    onChange();
  };
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light");
    localStorage.setItem(STORAGE_KEY, now === "dark" ? "light" : "dark");
    show();
  });
  dark.addEventListener("change", show);
  show();
}
