/** Light or dark: what was chosen before, else what the system says. */

const KEY = "splinefm-theme";

export function chooseTheme() {
  let kept = null;
  try {
    kept = localStorage.getItem(KEY);
  } catch {
    // No storage: the system decides.
  }
  const system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => {
    document.documentElement.dataset.theme = system.matches ? "dark" : "light";
  };
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  else {
    follow();
    system.addEventListener("change", follow);
  }
}

/** Change from light to dark or back, and remember it. */
export function switchTheme() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // A page without storage forgets the choice.
  }
}

/** Print in the light theme, whatever the screen shows. */
export function printLight() {
  let before = null;
  addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    document.documentElement.dataset.theme = before;
  });
}
