/** The licences of what is built into the page, in a file beside it; an unknown one ends the build. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Plugin } from "vite";

const ACCEPTED = ["MIT", "ISC", "0BSD", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0"];

/** The folder of the package that a module belongs to. */
function packageOf(module: string): string | null {
  return /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(module.replace(/^\0/, "").split("?")[0] ?? "")?.[0] ?? null;
}

export function licences(): Plugin {
  return {
    name: "licences",
    apply: "build",
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const output of Object.values(bundle)) {
        if (output.type !== "chunk") continue;
        for (const module of output.moduleIds) {
          const folder = packageOf(module);
          if (folder !== null) folders.add(folder);
        }
      }
      const texts = [...folders].sort().map((folder) => {
        const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as Record<string, unknown>;
        const licence = String(about["license"]);
        if (!ACCEPTED.includes(licence)) this.error(`${String(about["name"])} has the licence ${licence}`);
        const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
        const text = file === undefined ? "" : readFileSync(join(folder, file), "utf8").trim();
        return `${String(about["name"])} ${String(about["version"])} (${licence})\n\n${text}\n`;
      });
      if (texts.length === 0) this.error("no package was found in the page");
      this.emitFile({ type: "asset", fileName: "assets/licences.txt", source: texts.join(`\n${"-".repeat(72)}\n\n`) });
    },
  };
}
