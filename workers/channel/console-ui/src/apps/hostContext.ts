/** What an app is told about where it is shown. */

import type { McpUiDisplayMode, McpUiHostContext } from "@modelcontextprotocol/ext-apps/app-bridge";
import type { AppRecord } from "../api/types.ts";
import { theme } from "../state/theme.ts";
import { MAX_HEIGHT } from "./limits.ts";

/** The standard's colours by the console's own (`styles/tokens.css`). */
const BACKGROUND = {
  primary: "--ground", secondary: "--side", tertiary: "--sunken", inverse: "--text", ghost: "transparent",
  info: "--accent-soft", danger: "--bad-soft", success: "--good-soft", warning: "--busy-soft", disabled: "--sunken",
};
const TEXT = {
  primary: "--text", secondary: "--muted", tertiary: "--muted", inverse: "--ground", ghost: "--muted",
  info: "--accent", danger: "--bad", success: "--good", warning: "--busy", disabled: "--line-strong",
};
const BORDER = {
  primary: "--line-strong", secondary: "--line", tertiary: "--line", inverse: "--text", ghost: "transparent",
  info: "--accent", danger: "--bad", success: "--good", warning: "--busy", disabled: "--line",
};
const RING = {
  primary: "--accent", secondary: "--line-strong", inverse: "--ground", info: "--accent", danger: "--bad", success: "--good", warning: "--busy",
};
const SIZES: Record<string, [size: string, lineHeight: string]> = {
  "--font-text-xs": ["0.75rem", "1.4"], "--font-text-sm": ["0.875rem", "1.45"], "--font-text-md": ["1rem", "1.5"], "--font-text-lg": ["1.125rem", "1.5"],
  "--font-heading-xs": ["0.875rem", "1.35"], "--font-heading-sm": ["1rem", "1.35"], "--font-heading-md": ["1.125rem", "1.3"],
  "--font-heading-lg": ["1.25rem", "1.3"], "--font-heading-xl": ["1.5rem", "1.25"], "--font-heading-2xl": ["1.875rem", "1.2"],
  "--font-heading-3xl": ["2.25rem", "1.15"],
};
const REST: Record<string, string> = {
  "--font-weight-normal": "400", "--font-weight-medium": "500", "--font-weight-semibold": "600", "--font-weight-bold": "700",
  "--border-radius-xs": "3px", "--border-radius-sm": "5px", "--border-radius-md": "7px", "--border-radius-lg": "10px", "--border-radius-xl": "14px",
  "--border-radius-full": "9999px", "--border-width-regular": "1px",
  "--shadow-hairline": "0 0 0 1px rgb(0 0 0 / 8%)", "--shadow-sm": "0 1px 2px rgb(0 0 0 / 10%)",
  "--shadow-md": "0 2px 8px rgb(0 0 0 / 12%)", "--shadow-lg": "0 6px 24px rgb(0 0 0 / 16%)",
};

/** All 76 variables; `own` gives the value of one of the console's, with both of its colours. */
function styleVariables(own: (name: string) => string): Record<string, string> {
  const value = (name: string): string => (name.startsWith("--") ? own(name) : name);
  const all: Record<string, string> = {};
  for (const [family, names] of Object.entries({ background: BACKGROUND, text: TEXT, border: BORDER, ring: RING })) {
    for (const [name, from] of Object.entries(names)) all[`--color-${family}-${name}`] = value(from);
  }
  all["--font-sans"] = own("--font");
  all["--font-mono"] = own("--mono");
  for (const [name, [size, lineHeight]] of Object.entries(SIZES)) {
    all[`${name}-size`] = size;
    all[`${name}-line-height`] = lineHeight;
  }
  return { ...all, ...REST };
}

const dark = matchMedia("(prefers-color-scheme: dark)");

export function currentTheme(): "light" | "dark" {
  const chosen = theme.get();
  if (chosen !== "system") return chosen;
  return dark.matches ? "dark" : "light";
}

/** Calls `changed` when the page turns light or dark. */
export function onTheme(changed: () => void): () => void {
  dark.addEventListener("change", changed);
  const stop = theme.subscribe(changed);
  return () => {
    dark.removeEventListener("change", changed);
    stop();
  };
}

/** In the thread the width is given and the height follows; in full both are given. */
export function dimensions(mode: McpUiDisplayMode, place: { width: number; height: number }): NonNullable<McpUiHostContext["containerDimensions"]> {
  const width = Math.round(place.width);
  return mode === "fullscreen" ? { width, height: Math.round(place.height) } : { width, maxHeight: MAX_HEIGHT };
}

export const MODES: McpUiDisplayMode[] = ["inline", "fullscreen"];

export function hostContext(record: AppRecord, mode: McpUiDisplayMode, place: { width: number; height: number }): McpUiHostContext {
  const style = getComputedStyle(document.documentElement);
  const { name, title, description, inputSchema } = record.tool;
  return {
    toolInfo: {
      tool: {
        name,
        ...(title === undefined ? {} : { title }),
        ...(description === undefined ? {} : { description }),
        inputSchema: { ...inputSchema, type: "object" },
      },
    },
    theme: currentTheme(),
    styles: { variables: styleVariables((own) => style.getPropertyValue(own).trim()) as never },
    displayMode: mode,
    availableDisplayModes: MODES,
    containerDimensions: dimensions(mode, place),
    locale: navigator.language,
    timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    userAgent: "mono-console",
    platform: "web",
    deviceCapabilities: { touch: matchMedia("(any-pointer: coarse)").matches, hover: matchMedia("(any-hover: hover)").matches },
    safeAreaInsets: { top: 0, right: 0, bottom: 0, left: 0 },
  };
}
