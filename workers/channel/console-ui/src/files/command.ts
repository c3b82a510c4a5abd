import type { Artifact } from "../api/types.ts";

/** What fetches a file in a terminal. A name that a shell could read as more than a name is left out. */
export function command(file: Pick<Artifact, "id" | "name">): string {
  const name = /^\w[\w.-]*$/.test(file.name) ? file.name : "FILE";
  return `monoctl artifacts get ${file.id} -o ${name}`;
}
