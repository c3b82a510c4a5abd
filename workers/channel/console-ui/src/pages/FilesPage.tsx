/** The reply files that are kept, against what may be kept. */

import type { ReactNode } from "react";
import { api, sentence } from "../api/client.ts";
import type { Artifact, ArtifactPage } from "../api/types.ts";
import { Download } from "../files/Download.tsx";
import { notify } from "../state/notices.ts";
import { useResource } from "../state/resource.ts";
import { DataTable, Page } from "../ui/DataTable.tsx";
import { count, plural, size } from "../ui/format.ts";
import { Name } from "../ui/Name.tsx";
import { RunLink } from "../ui/RunLink.tsx";
import { Empty, Failed, Loading } from "../ui/States.tsx";
import { Time } from "../ui/Time.tsx";

const read = (): Promise<ArtifactPage> => api.artifacts();

export default function FilesPage(): ReactNode {
  const { value, error, reload, set } = useResource(read, ["runs", "status"]);
  const more = async (): Promise<void> => {
    try {
      const page = await api.artifacts(value?.nextCursor);
      set((old) => ({ ...page, artifacts: [...old.artifacts, ...page.artifacts] }));
    } catch (cause) {
      notify(sentence(cause), "bad");
    }
  };
  return (
    <Page title="Files">
      {error !== null && <Failed message={error} onRetry={reload} />}
      {value === null && error === null && <Loading what="the files" />}
      {value?.usage !== undefined && (
        <section className="quota" aria-label="Usage">
          <p>
            <strong>{size(value.usage.usedBytes)}</strong> of {size(value.usage.ceilingBytes)} used by{" "}
            {plural(value.usage.count, "file")} of {count(value.usage.maxCount)}
            {value.usage.due > 0 && <span className="muted">, {count(value.usage.due)} about to go</span>}
            {value.usage.dryRun && <span className="muted"> (retention only reports)</span>}
          </p>
          <meter
            aria-label="Storage used"
            min={0}
            max={Math.max(1, value.usage.ceilingBytes)}
            high={value.usage.ceilingBytes * 0.85}
            value={value.usage.usedBytes}
          />
        </section>
      )}
      {value !== null && value.artifacts.length === 0 && <Empty icon="file" title="No files" />}
      {value !== null && value.artifacts.length > 0 && (
        <DataTable<Artifact>
          label="Files"
          rows={value.artifacts}
          id={(file) => file.id}
          columns={[
            {
              title: "Name",
              cell: (file) => (
                <span className="file-cell">
                  <Download file={file} />
                  <Name className="name">{file.name}</Name>
                </span>
              ),
            },
            { title: "Type", cell: (file) => file.mediaType },
            { title: "Size", figures: true, cell: (file) => size(file.sizeBytes) },
            { title: "Created", cell: (file) => <Time at={file.createdAt} /> },
            { title: "Expires", cell: (file) => <Time at={file.expiresAt} /> },
            {
              title: "Run",
              cell: (file) => <RunLink id={file.runId} />,
            },
            {
              title: "Integrity",
              cell: (file) => (
                <code className="id" title={file.integrityId}>
                  {file.integrityId.replace("sha256:", "").slice(0, 12)}
                </code>
              ),
            },
          ]}
        />
      )}
      {value?.nextCursor !== undefined && (
        <button type="button" className="button centred" onClick={() => void more()}>
          More
        </button>
      )}
    </Page>
  );
}
