/** A page that can't be drawn, or whose script is gone since an update, takes nothing else along. */

import { Component, type ReactNode } from "react";
import { Icon } from "./Icon.tsx";

export class Boundary extends Component<{ children: ReactNode }, { broken: boolean }> {
  override state = { broken: false };

  static getDerivedStateFromError(): { broken: boolean } {
    return { broken: true };
  }

  override render(): ReactNode {
    if (!this.state.broken) return this.props.children;
    return (
      <div className="page-body">
        <div className="card failure" role="alert">
          <Icon name="alert" />
          <div className="card-body">
            <h1>This page can't be shown</h1>
            <p>The console may have been updated since it was opened.</p>
            <button type="button" className="button" onClick={() => location.reload()}>
              Load it again
            </button>
          </div>
        </div>
      </div>
    );
  }
}
