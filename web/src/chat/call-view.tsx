/** A tool call as a person reads it: a command as code with its lines, a change of a file as a diff. */
import { t } from "../words";
import { argumentsOf, diffLines, visible, wholeCall } from "./whole-call";

interface CallViewProps {
  arguments: string;
  /** What the call would change, as a unified diff. */
  preview?: string | undefined;
}

export function CallView({ arguments: given, preview }: CallViewProps) {
  const parts = argumentsOf(given);
  if (!parts?.length) return <pre dir="ltr">{wholeCall(given)}</pre>;
  const shown = preview ? parts.filter(({ name }) => name !== "content") : parts;
  return (
    <>
      <dl class="arguments">
        {shown.map(({ name, text, isCode }) => (
          <div key={name} class={isCode ? "as-code" : undefined}>
            <dt>{visible(name)}</dt>
            <dd dir="ltr">{isCode ? <pre>{visible(text)}</pre> : visible(text)}</dd>
          </div>
        ))}
      </dl>
      {preview && <Diff preview={preview} />}
    </>
  );
}

function Diff({ preview }: { preview: string }) {
  return (
    <pre class="diff" dir="ltr" role="group" aria-label={t().changes}>
      {diffLines(preview).map(({ kind, text }, index) => (
        <span key={index} class={kind}>
          {kind === "added" ? "+ " : kind === "removed" ? "- " : "  "}
          {text}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}
