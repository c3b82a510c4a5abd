import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { licences } from "./scripts/licences.ts";

// During development the API comes from a daemon or from `npm run mock`.
const api = process.env["CONSOLE_URL"] ?? "http://127.0.0.1:5051";

export default defineConfig({
  plugins: [react(), licences()],
  server: {
    proxy: Object.fromEntries(["/api", "/login"].map((path) => [path, { target: api, changeOrigin: true }])),
  },
  build: {
    // The policy of the page allows no `data:` address but for images, so nothing is inlined.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    chunkSizeWarningLimit: 700,
  },
});
