/** Tokens to elements. Every element is made here; no markup of the text is ever used. */

import { type Token } from "markdown-it";
import { Component, Fragment, memo, useRef, type ReactNode } from "react";
import { Blocks, type Block } from "./blocks.ts";
import { CodeBlock } from "./CodeBlock.tsx";
import { ForeignLink } from "./ForeignLink.tsx";
import { Maths } from "./Maths.tsx";
import { isDone, isTask } from "./tasks.ts";

export function Markdown({ text, complete }: { text: string; complete: boolean }): ReactNode {
  const blocks = useRef<Blocks>(null);
  blocks.current ??= new Blocks();
  const all = blocks.current.read(text, complete);
  return (
    <div className="prose" dir="auto">
      {all.map((block, index) => (
        <BlockView key={block.key} block={block} open={!complete && index === all.length - 1} />
      ))}
    </div>
  );
}

/** The same tokens aren't drawn again; the last block of a growing text has new ones each time. */
const BlockView = memo(function BlockView({ block, open }: { block: Block; open: boolean }): ReactNode {
  return <Guard tokens={block.tokens}>{render(block.tokens, open)}</Guard>;
});

/** A block that can't be drawn is shown as its source, and the others as they are. */
class Guard extends Component<{ tokens: Token[]; children: ReactNode }, { broken: boolean }> {
  override state = { broken: false };

  static getDerivedStateFromError(): { broken: boolean } {
    return { broken: true };
  }

  override render(): ReactNode {
    if (!this.state.broken) return this.props.children;
    return <pre>{this.props.tokens.map((token) => token.content).join("")}</pre>;
  }
}

interface Frame {
  token: Token;
  children: ReactNode[];
}

/** Builds the tree of a flat list of tokens. */
function render(tokens: Token[], open: boolean): ReactNode {
  const root: ReactNode[] = [];
  const stack: Frame[] = [];
  const push = (node: ReactNode): void => void (stack.at(-1)?.children ?? root).push(node);
  tokens.forEach((token, index) => {
    if (token.nesting === 1) {
      stack.push({ token, children: [] });
    } else if (token.nesting === -1) {
      const frame = stack.pop();
      if (frame !== undefined) push(container(frame.token, frame.children, index));
    } else {
      push(leaf(token, index, open));
    }
  });
  while (stack.length > 0) {
    const frame = stack.pop();
    if (frame !== undefined) push(container(frame.token, frame.children, `rest${stack.length}`));
  }
  return <>{root}</>;
}

function attribute(token: Token, name: string): string | undefined {
  const value = token.attrs?.find(([key]) => key === name)?.[1];
  return value === undefined ? undefined : String(value);
}

type Align = "left" | "center" | "right";

function align(token: Token): Align | undefined {
  const found = /text-align:(left|center|right)/.exec(attribute(token, "style") ?? "");
  return found?.[1] as Align | undefined;
}

function container(token: Token, children: ReactNode[], key: number | string): ReactNode {
  switch (token.type) {
    case "paragraph_open":
      return token.hidden ? <Fragment key={key}>{children}</Fragment> : <p key={key}>{children}</p>;
    case "heading_open": {
      // The page's own headings are levels 1 and 2; those of an answer stand below.
      const level = Math.min(Number(token.tag.slice(1)) + 2, 6);
      const Heading = `h${level}` as "h3" | "h4" | "h5" | "h6";
      return (
        <Heading key={key} data-level={token.tag.slice(1)}>
          {children}
        </Heading>
      );
    }
    case "bullet_list_open":
      return <ul key={key}>{children}</ul>;
    case "ordered_list_open": {
      const start = Number(attribute(token, "start") ?? 1);
      return (
        <ol key={key} start={start}>
          {children}
        </ol>
      );
    }
    case "list_item_open":
      return (
        <li key={key} className={isTask(token) ? "task" : undefined}>
          {children}
        </li>
      );
    case "blockquote_open":
      return <blockquote key={key}>{children}</blockquote>;
    case "table_open":
      return (
        <div key={key} className="table-scroll" role="region" aria-label="Table" tabIndex={0}>
          <table>{children}</table>
        </div>
      );
    case "thead_open":
      return <thead key={key}>{children}</thead>;
    case "tbody_open":
      return <tbody key={key}>{children}</tbody>;
    case "tr_open":
      return <tr key={key}>{children}</tr>;
    case "th_open":
      return (
        <th key={key} scope="col" data-align={align(token)}>
          {children}
        </th>
      );
    case "td_open":
      return (
        <td key={key} data-align={align(token)}>
          {children}
        </td>
      );
    case "strong_open":
      return <strong key={key}>{children}</strong>;
    case "em_open":
      return <em key={key}>{children}</em>;
    case "s_open":
      return <s key={key}>{children}</s>;
    case "link_open":
      return (
        <ForeignLink key={key} address={attribute(token, "href") ?? ""}>
          {children}
        </ForeignLink>
      );
    default:
      return <Fragment key={key}>{children}</Fragment>;
  }
}

function leaf(token: Token, key: number, open: boolean): ReactNode {
  switch (token.type) {
    case "inline":
      return <Fragment key={key}>{render(token.children ?? [], open)}</Fragment>;
    case "text":
      return token.content;
    case "softbreak":
      return "\n";
    case "hardbreak":
      return <br key={key} />;
    case "code_inline":
      return (
        <code key={key} dir="auto">
          {token.content}
        </code>
      );
    case "fence":
    case "code_block":
      return <CodeBlock key={key} code={token.content} language={token.info.trim().split(/\s+/)[0] ?? ""} open={open} />;
    case "hr":
      return <hr key={key} />;
    case "image":
      // An image of elsewhere would tell a stranger who reads this: it is a link.
      return (
        <ForeignLink key={key} address={attribute(token, "src") ?? ""} image>
          {token.content}
        </ForeignLink>
      );
    case "task":
      // It says how the text stands; nobody ticks it here.
      return <input key={key} type="checkbox" className="task-mark" checked={isDone(token)} disabled aria-label={isDone(token) ? "Done" : "To do"} />;
    case "maths_inline":
      return <Maths key={key} source={token.content} />;
    case "maths_block":
      return <Maths key={key} source={token.content} display />;
    default:
      return token.content;
  }
}
