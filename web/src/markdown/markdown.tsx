/**
 * Markdown as vnodes. There is no way from a model's words to raw HTML: tags but `<br>` and a bare `<details>` are shown as text, links lead only to
 * the web and to mail, and a picture from elsewhere is loaded only when its reader asks for it.
 */
import type { Token, Tokens } from "marked";
import { Component, type ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { t } from "../words";
import { Blocks } from "./blocks";
import { CodeBlock } from "./code";
import { decodeEntities } from "./entities";
import { type Fold, folded } from "./fold";
import { FootnoteMark, FootnoteText, WithFootnotes } from "./footnotes";
import { Formula } from "./math";
import { Picture } from "./picture";

interface MarkdownProps {
  text: string;
  isStreaming?: boolean;
  /** Where in the text it was continued: the blocks there are marked. */
  joints?: readonly number[] | undefined;
}

/** Draws an answer's words. Those that cannot be drawn are shown as they were written: one text never takes the page along. */
export class Markdown extends Component<MarkdownProps, { isBeyondUs: boolean }> {
  override state = { isBeyondUs: false };
  override componentDidCatch(): void {
    this.setState({ isBeyondUs: true });
  }
  override render() {
    if (!this.state.isBeyondUs) return <Drawn {...this.props} />;
    return (
      <div class="markdown as-written" dir="auto">
        {this.props.text}
      </div>
    );
  }
}

function Drawn({ text, isStreaming = false, joints = [] }: MarkdownProps) {
  const blocks = useMemo(() => new Blocks(), []);
  const tokens = isStreaming ? blocks.read(text) : blocks.finish(text);
  const marked = blocks.at(joints);
  return (
    <div class="markdown" dir="auto">
      <WithFootnotes tokens={tokens}>
        {folded(tokens).map((part) =>
          "token" in part ? (
            <Block key={part.index} token={part.token} isJoint={marked.has(part.token)} />
          ) : (
            <Folded key={part.index} {...part} />
          ),
        )}
      </WithFootnotes>
    </div>
  );
}

/** `<details>` with its summary: what stands between the tags is Markdown, folded. */
function Folded({ summary, tokens }: Fold) {
  return (
    <details class="folded">
      <summary>{decodeEntities(summary) || "…"}</summary>
      {blocks(tokens)}
    </details>
  );
}

/** One block. Settled ones are the same token each time, and are not drawn again. */
class Block extends Component<BlockProps> {
  override shouldComponentUpdate({ token, isJoint }: BlockProps): boolean {
    return token !== this.props.token || isJoint !== this.props.isJoint;
  }
  override render() {
    const { token, isJoint } = this.props;
    if (!isJoint) return renderBlock(token);
    return (
      <div class="joint" title={t().continuedHere}>
        {renderBlock(token)}
      </div>
    );
  }
}

interface BlockProps {
  token: Token;
  isJoint?: boolean;
}

function blocks(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map((token, index) => <Block key={index} token={token} />);
}

function renderBlock(token: Token): ComponentChildren {
  switch (token.type) {
    case "paragraph":
      return <p dir="auto">{inlines(token.tokens)}</p>;
    case "heading": {
      const Heading = `h${token.depth}` as "h1";
      return <Heading dir="auto">{inlines(token.tokens)}</Heading>;
    }
    case "code":
      return (
        <CodeBlock
          text={token.text}
          language={token.lang ?? ""}
          isOpen={Boolean((token as { isOpen?: boolean }).isOpen)}
        />
      );
    case "blockquote":
      return <blockquote dir="auto">{blocks(token.tokens)}</blockquote>;
    case "list":
      return renderList(token as Tokens.List);
    case "table":
      return renderTable(token as Tokens.Table);
    case "hr":
      return <hr />;
    case "footnote":
      return <FootnoteText label={token.label}>{inlines(token.tokens)}</FootnoteText>;
    case "mathBlock":
      return <Formula text={token.text} isBlock />;
    case "html":
      return LINE_BREAK.test(token.text) ? null : <p class="as-written">{token.text}</p>;
    case "text":
      if ((token as { isPlain?: boolean }).isPlain) return <p class="as-written">{token.text}</p>;
      return "tokens" in token && token.tokens ? <>{inlines(token.tokens)}</> : <>{decodeEntities(token.text)}</>;
    case "checkbox":
      return (
        <input type="checkbox" disabled checked={token.checked} aria-label={token.checked ? t().done : t().toDo} />
      );
    case "space":
    case "def":
      return null;
    default:
      return renderInline(token);
  }
}

function renderList(list: Tokens.List): ComponentChildren {
  const items = list.items.map((item, index) => (
    <li key={index} dir="auto" class={item.task ? "task" : undefined}>
      {blocks(item.tokens)}
    </li>
  ));
  return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
}

function renderTable(table: Tokens.Table): ComponentChildren {
  const cell = ({ tokens, align }: Tokens.TableCell) => ({
    class: align ? `align-${align}` : undefined,
    children: inlines(tokens),
  });
  return (
    <div class="table" tabIndex={0} role="group" aria-label={t().table}>
      <table dir="auto">
        <thead>
          <tr>
            {table.header.map((each, index) => (
              <th key={index} {...cell(each)} />
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, index) => (
            <tr key={index}>
              {row.map((each, column) => (
                <td key={column} {...cell(each)} />
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function inlines(tokens: Token[] | undefined): ComponentChildren {
  return tokens?.map(renderInline);
}

function renderInline(token: Token): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong>{inlines(token.tokens)}</strong>;
    case "em":
      return <em>{inlines(token.tokens)}</em>;
    case "del":
      return <del>{inlines(token.tokens)}</del>;
    case "codespan":
      return <code dir="auto">{token.text}</code>;
    case "br":
      return <br />;
    case "link":
      return <Link href={token.href}>{inlines(token.tokens)}</Link>;
    case "image":
      return <Picture href={token.href} alt={token.text} />;
    case "footnoteMark":
      return <FootnoteMark label={token.label} raw={token.raw} />;
    case "math":
      return <Formula text={token.text} />;
    case "html":
      return LINE_BREAK.test(token.text) ? <br /> : token.text;
    case "escape":
      return token.text;
    case "text":
      return "tokens" in token && token.tokens ? inlines(token.tokens) : inPieces(decodeEntities(token.text));
    case "checkbox":
      return renderBlock(token);
    default:
      return "raw" in token ? token.raw : null;
  }
}

/** The one tag with a meaning: models write it in the cells of tables. */
const LINE_BREAK = /^\s*<br\s*\/?>\s*$/i;

const PIECE = 500;

/** A long text as several text nodes. While it grows only the last one changes, and the browser keeps the other lines. */
function inPieces(text: string): ComponentChildren {
  if (text.length <= PIECE) return text;
  const pieces: string[] = [];
  for (let from = 0; from < text.length; ) {
    const space = text.indexOf(" ", from + PIECE);
    const to = space < 0 ? text.length : space + 1;
    pieces.push(text.slice(from, to));
    from = to;
  }
  return pieces;
}

const LINKS = new Set(["http:", "https:", "mailto:"]);

function Link({ href, children }: { href: string; children: ComponentChildren }) {
  if (!LINKS.has(protocolOf(href))) return <span title={href}>{children}</span>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

/** The protocol of an absolute address; nothing where it is none. */
export function protocolOf(href: string): string {
  try {
    return new URL(href).protocol;
  } catch {
    return "";
  }
}
