/** A PDF can carry script, and a viewer within the page would run it: it is opened elsewhere. */

import type { ReactNode } from "react";
import { Name } from "../ui/Name.tsx";

export function Pdf({ name }: { bytes: Uint8Array<ArrayBuffer>; name: string }): ReactNode {
  return (
    <p className="preview-note">
      <Name>{name}</Name> can't be shown here. Download it and open it in a viewer.
    </p>
  );
}
