/** Light or dark: the system's choice unless the person made one on this device. */

import { Store } from "./store.ts";

export type Theme = "system" | "light" | "dark";
const KEY = "mono-theme";

function stored(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === "light" || value === "dark" ? value : "system";
  } catch {
    return "system";
  }
}

export const theme = new Store<Theme>(stored());

function show(value: Theme): void {
  if (value === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = value;
}
show(theme.get());

export function setTheme(value: Theme): void {
  theme.set(value);
  show(value);
  try {
    if (value === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, value);
  } catch {
    // Storage is closed: it holds for this visit.
  }
}
