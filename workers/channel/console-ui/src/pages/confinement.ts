/** What is missing of a worker's confinement; what isn't said counts as missing. Pure. */

import type { Worker } from "../api/types.ts";

/** Null without a process. */
export function weaknesses(worker: Worker): string[] | null {
  if (worker.pid === null || worker.pid === undefined) return null;
  const { sandbox } = worker;
  if (sandbox === null || sandbox === undefined) return ["the kernel doesn't say what confines it"];
  const checks: [boolean, string][] = [
    [sandbox.seccomp === 2, "no system-call filter"],
    [sandbox.no_new_privs === true, "no_new_privs is not set"],
    [(sandbox.landlock_abi ?? 0) > 0, "no Landlock"],
    [sandbox.capabilities === 0, "it has capabilities"],
    [sandbox.uid !== undefined && sandbox.uid !== 0, "it is root"],
    [Object.values(sandbox.probes ?? {}).every((outcome) => outcome === "refused"), "a probe was not refused"],
  ];
  return checks.filter(([good]) => !good).map(([, what]) => what);
}
