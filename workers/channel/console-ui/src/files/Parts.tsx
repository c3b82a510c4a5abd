/** The parts of a reply, in their order. */

import { lazy, Suspense, useState, type ComponentType, type ReactNode } from "react";
import type { AppPart, Part } from "../api/types.ts";
import { Icon } from "../ui/Icon.tsx";
import { Name } from "../ui/Name.tsx";
import { Boundary } from "../ui/Boundary.tsx";
import { Loading } from "../ui/States.tsx";
import { FileCard } from "./FileCard.tsx";

let loaded: ComponentType<{ part: AppPart }> | null = null;
/** What hosts an app is large, and most answers have none. Called early, it is there in time. */
export async function loadApps(): Promise<typeof import("../apps/AppCard.tsx")> {
  const module = await import("../apps/AppCard.tsx");
  loaded = module.default;
  return module;
}
const LazyCard = lazy(loadApps);

/** What is there is shown at once; and it stays what it was, or the app would load again. */
function App({ part }: { part: AppPart }): ReactNode {
  const [Card] = useState(() => loaded ?? LazyCard);
  return <Card part={part} />;
}

export function Parts({ parts }: { parts: Part[] }): ReactNode {
  if (parts.length === 0) return null;
  return (
    <div className="parts">
      {parts.map((part, index) => {
        switch (part.type) {
          case "attachment":
            return <FileCard key={`${part.id}-${index}`} part={part} />;
          case "mcp_app":
            return (
              <Boundary key={`app-${part.id}`}>
                <Suspense fallback={<Loading what="the app" />}>
                  <App part={part} />
                </Suspense>
              </Boundary>
            );
          case "failure":
            return (
              <article key={`failure-${index}`} className="card failure" aria-label="A part that failed">
                <Icon name="alert" />
                <div className="card-body">
                  <p className="card-title">{part.name === undefined ? "A file or app is missing" : <Name>{part.name}</Name>}</p>
                  <p dir="auto">{part.message}</p>
                  <p className="muted">
                    <code>{part.code}</code>
                  </p>
                </div>
              </article>
            );
          default:
            return (
              <article key={`other-${index}`} className="card">
                <Icon name="file" />
                <div className="card-body">
                  <p>This part of the reply can't be shown by this version of the console.</p>
                </div>
              </article>
            );
        }
      })}
    </div>
  );
}
