/** Published servers with MCP Apps: the tool that shows each, and what its app is seen to do. */

import { fileURLToPath } from "node:url";

export interface Fixture {
  tool: string;
  arguments?: Record<string, unknown>;
  /** What it says beside what every app does; without it, it starts and draws. */
  exception?: string;
  /** It never says that it has started. */
  silent?: true;
  /** What it must be seen to ask for. */
  asks?: string[];
  /** What must stand beside it. */
  beside?: RegExp;
}

export const FIXTURES: Record<string, Fixture> = {
  "basic-vanillajs": { tool: "get-time" },
  "basic-react": { tool: "get-time" },
  "basic-vue": { tool: "get-time" },
  "basic-preact": { tool: "get-time" },
  "basic-solid": { tool: "get-time" },
  "basic-svelte": { tool: "get-time" },
  "budget-allocator": { tool: "get-budget-data" },
  "system-monitor": { tool: "get-system-info", asks: ["tools/call"] },
  "cohort-heatmap": { tool: "get-cohort-data" },
  "customer-segmentation": { tool: "get-customer-data" },
  "scenario-modeler": { tool: "get-scenario-data" },
  debug: { tool: "debug-tool", asks: ["tools/call"] },
  "sheet-music": { tool: "play-sheet-music", arguments: { abcNotation: "X:1\nT:Scale\nM:4/4\nL:1/4\nK:C\nC D E F|G A B c|" }, exception: "its sound is fetched from an origin that is not allowed" },
  transcript: { tool: "transcribe", exception: "no microphone: no such permission is given" },
  shadertoy: { tool: "render-shadertoy", arguments: { fragmentShader: "void mainImage(out vec4 c, in vec2 p) { c = vec4(p / iResolution.xy, 0.5, 1.0); }" } },
  threejs: { tool: "show_threejs_scene", exception: "its scene is compiled from text, which no policy of ours allows; it says so" },
  "video-resource": { tool: "play_video", arguments: { videoId: "bunny-1mb" }, asks: ["resources/read"], exception: "only an app's own resource can be read; it says so" },
  "wiki-explorer": { tool: "get-first-degree-links", arguments: { url: "https://en.wikipedia.org/wiki/Model_Context_Protocol" }, exception: "its data needs the network, which its server doesn't have" },
  map: { tool: "show-map", silent: true, exception: "its script is on another origin, and no remote origin gives script", beside: /blocked by its policy/ },
  pdf: {
    tool: "display_pdf",
    arguments: { url: fileURLToPath(new URL("fixture.pdf", import.meta.url)) },
    exception: "its pages are drawn by a worker, which no app gets",
  },
};
