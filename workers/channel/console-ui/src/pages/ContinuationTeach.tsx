/** What stands where there are no continuations: what they are, and what switches them on. */

import type { ReactNode } from "react";
import { CopyButton } from "../ui/CopyButton.tsx";
import { Empty } from "../ui/States.tsx";

const CONFIG = `{
  "tools": { "continuationServers": ["work-control"] },
  "continuations": { "enabled": true }
}`;

const WHAT =
  "A tool that takes hours can't keep a turn open. With a durable continuation it answers at once, goes on by itself, and " +
  "submits its result later: the agent then says one more thing in the same conversation, once, or it stands here that nobody knows whether it was said.";

export function Off(): ReactNode {
  return (
    <Empty icon="clock" title="Continuations are not switched on">
      <p className="teaching">{WHAT}</p>
      <p className="teaching">
        Name the MCP servers that may begin such work in <code>tools.continuationServers</code> (or write a <code>continuations</code> block,
        whose <code>enabled</code> is not false), and restart the daemon:
      </p>
      <div className="command block">
        <pre>{CONFIG}</pre>
        <CopyButton text={CONFIG} label="Copy the configuration" />
      </div>
    </Empty>
  );
}

export function None(): ReactNode {
  return (
    <Empty icon="clock" title="No continuations yet">
      <p className="teaching">{WHAT}</p>
      <p className="teaching">
        They are switched on. The next one begins when a server of <code>tools.continuationServers</code> claims it within a turn, or a
        service of <code>continuations.detachedServices</code> on a named route.
      </p>
    </Empty>
  );
}
